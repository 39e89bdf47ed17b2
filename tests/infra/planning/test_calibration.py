"""Estimates in the light of measurements."""

import math

import numpy as np
import pytest

from superworkflow.infra.planning.calibration import MOST, AffineEstimate, fitted

WORKS = (0.01, 0.1, 1.0, 3.0, 10.0, 100.0)


def _measured(s: float, r: float, start: float = 0.5) -> list[tuple[AffineEstimate, float]]:
    return [(AffineEstimate(start, work), s * start + r * work) for work in WORKS]


def test_without_measurements_the_estimate() -> None:
    assert fitted(AffineEstimate(0.5, 3), []) == 3.5
    assert fitted(AffineEstimate(0.5, 3), [(AffineEstimate(0, 0), 1.0), (AffineEstimate(1, 1), 0.0)]) == 3.5


@pytest.mark.parametrize("work", [0.0, 0.05, 2.0, 40.0, 500.0])
@pytest.mark.parametrize(("s", "r"), [(1, 1), (0.3, 1), (4, 1), (1, 2.5), (0.3, 2.5), (4, 0.2)])
def test_start_and_work_are_told_apart(s: float, r: float, work: float) -> None:
    assert fitted(AffineEstimate(0.5, work), _measured(s, r)) == pytest.approx(0.5 * s + r * work)


def test_small_runs_say_nothing_of_large_ones() -> None:
    small = [(AffineEstimate(0.5, 1e-4 * k), 2.0 + 0.02 * k) for k in range(5)]
    assert fitted(AffineEstimate(0.5, 0), small) == pytest.approx(2.0, rel=0.05)
    assert fitted(AffineEstimate(0.5, 1000), small) == pytest.approx(1002, rel=0.05)


def test_a_machine_that_is_slower_in_all() -> None:
    assert fitted(AffineEstimate(0.5, 20), [(AffineEstimate(0.5, 0.5), 2.0)]) == pytest.approx(41)


def test_one_measurement() -> None:
    assert fitted(AffineEstimate(0.5, 0.0), [(AffineEstimate(0.5, 0.0), 0.2)]) == pytest.approx(0.2)
    assert fitted(AffineEstimate(0.5, 200), [(AffineEstimate(0.5, 100), 40)]) == pytest.approx(79.5, rel=0.02)


def test_odd_measurements_do_not_move_it() -> None:
    odd = [(AffineEstimate(0.5, 3), 900.0), (AffineEstimate(0.5, 1), 1e-6), (AffineEstimate(0.5, 10), 1e7)]
    assert fitted(AffineEstimate(0.5, 3), [*_measured(0.5, 2), *odd]) == pytest.approx(6.25)


def test_no_further_than_the_bounds() -> None:
    absurd = [(AffineEstimate(1, work), 1e12) for work in WORKS]
    value = fitted(AffineEstimate(1, 5), absurd)
    assert math.isfinite(value)
    assert value <= 6 * MOST


def test_noise_averages_out() -> None:
    random = np.random.default_rng(0)
    noisy = [(parts, value * random.uniform(0.8, 1.25)) for parts, value in _measured(0.4, 1.6) * 4]
    for work in WORKS:
        assert fitted(AffineEstimate(0.5, work), noisy) == pytest.approx(0.2 + 1.6 * work, rel=0.2)
