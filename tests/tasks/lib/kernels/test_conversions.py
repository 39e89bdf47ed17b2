"""Conversions between float64 and whole numbers, by instructions and by bits."""

from collections.abc import Callable
from typing import Any

import numba as nb
import numpy as np
import pytest
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels import conversions
from superworkflow.tasks.lib.kernels.conversions import LIMIT, real_of, whole_and_rest

Kernel = Callable[[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]], None]


@pytest.fixture(params=[False, True], ids=["instructions", "bits"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(conversions, "_BY_BITS", request.param)

    @nb.njit
    def convert(wholes, values, reals, parts):  # type: ignore[no-untyped-def]
        for k in range(len(wholes)):
            reals[k] = real_of(wholes[k])
        for k in range(len(values)):
            whole, rest = whole_and_rest(values[k])
            parts[k, 0] = whole
            parts[k, 1] = rest

    made: Kernel = convert
    return made


def near(bits: int) -> list[int]:
    """Numbers around a power of two."""
    return [2**bits - 1, 2**bits, 2**bits + 1]


def test_both_ways_give_the_values_of_numpy(kernel: Kernel) -> None:
    rng = np.random.default_rng(1)
    chosen = [0, 2**52 - 1, *(number for bits in range(1, 52) for number in near(bits))]
    wholes = np.concatenate([np.array(chosen), rng.integers(0, 1 << rng.integers(1, 53, 2000))])
    values = np.concatenate([
        wholes / 4, rng.random(2000) * 2.0 ** rng.integers(-60, 51, 2000), np.nextafter(wholes, 0.0),
        [0.0, 5e-324, LIMIT, 2.0**52 + 1, 2.0**62],
    ])  # fmt: skip
    exact = values < LIMIT
    reals, parts = np.zeros(len(wholes)), np.zeros((len(values), 2))
    kernel(wholes, values, reals, parts)
    assert np.array_equal(reals, wholes.astype(np.float64))
    assert np.array_equal(parts[exact, 0], np.floor(values[exact]))
    assert np.array_equal(parts[exact, 1], values[exact] - np.floor(values[exact]))
    assert (~exact).sum() >= 3
    assert (parts[~exact, 0] >= LIMIT).all()
