"""Exact sums are the nearest float64 to the true sum, in whatever order and groups."""

import math

import numba as nb
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.lib.kernels.exact_sum import WORDS, add_exactly, exact_total

ANY = st.floats(allow_nan=False, allow_infinity=False)


@nb.njit
def add_all(sums, values):
    for number, value in enumerate(values):
        add_exactly(sums, number % len(sums), value)


def total_of(values: list[float], rows: int) -> float:
    sums = np.zeros((rows, WORDS), np.int64)
    add_all(sums, np.array(values, np.float64))
    return exact_total(sums.sum(axis=0).tolist())


@settings(max_examples=60, deadline=None)
@given(values=st.lists(ANY, max_size=40), rows=st.integers(1, 3))
def test_equals_fsum(values: list[float], rows: int) -> None:
    found = total_of(values, rows)
    try:
        assert found == math.fsum(values)
    except OverflowError:  # fsum overflows in between
        assert total_of(values[::-1], 1) == found


def test_what_is_not_finite() -> None:
    assert total_of([1.0, math.inf, 2.0], 2) == math.inf
    assert total_of([1.0, -math.inf], 1) == -math.inf
    assert math.isnan(total_of([math.inf, -math.inf], 2))
    assert math.isnan(total_of([1.0, math.nan], 1))
    assert total_of([1e308, 1e308, -1e308], 2) == 1e308
    assert total_of([1e308] * 2, 1) == math.inf
    assert total_of([5e-324] * 3, 2) == 1.5e-323
