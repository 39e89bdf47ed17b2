"""The guard zones and the checked mode see the mistakes that they are there for."""

from typing import Any, NamedTuple

import numba as nb
import numpy as np
import pytest

from superworkflow.tasks.embed._steps import add_row
from tests.kernels.checked import is_checked
from tests.kernels.guarded import POISONS, Overrun, guarded_matrix


class Pair(NamedTuple):
    values: np.ndarray
    number: int


@nb.njit
def add_floats(row: Any, first: int, count: int, other: Any) -> None:
    add_row(row, first, count, np.float32(1), other, 0)


@nb.njit
def add_to_first(arrays: Any, first: int, count: int, other: Any) -> None:
    add_row(arrays[0], first, count, np.float32(1), other, 0)


@nb.njit
def element(values: Any, i: int) -> Any:
    return values[i]


@nb.njit
def both(whole: Any, part: Any) -> Any:
    part[0] = 5
    return whole, whole[2]


def test_a_write_of_an_intrinsic_behind_an_array() -> None:
    row, other = np.zeros(32, np.float32), np.ones(48, np.float32)
    add_floats(row, 0, 32, other)
    assert (row == 1).all()
    with pytest.raises(Overrun, match=r"add_floats wrote outside float32\[32\], 128 bytes: bytes \d+ to \d+ behind it"):
        add_floats(row, 0, 48, other)


@pytest.mark.parametrize("kind", [lambda values: (values, 1), lambda values: Pair(values, 1)], ids=["tuple", "named"])
def test_arrays_in_tuples(kind: Any) -> None:
    values, ones = np.zeros(32, np.float32), np.ones(32, np.float32)
    add_to_first(kind(values), 0, 32, ones)
    assert (values == 1).all()
    with pytest.raises(Overrun, match="behind"):
        add_to_first(kind(values), 16, 32, ones)
    with pytest.raises(Overrun, match="before"):
        add_to_first(kind(values), -16, 32, ones)


def test_a_slice_has_zones_of_its_own_and_overlapping_arrays_stay_one() -> None:
    values = np.zeros(32, np.float32)
    with pytest.raises(Overrun):
        add_floats(values[:16], 0, 32, values[16:])
    whole, third = both(values, values[2:])
    assert whole is values
    assert third == values[2] == 5
    both(values[1::2], values[::2])
    assert values.tolist()[:4] == [5, 0, 5, 0]


def test_what_stands_beside_an_array_changes_from_call_to_call() -> None:
    found = set()
    for _ in POISONS:
        row = np.zeros(16, np.float32)
        add_floats(row, 0, 16, np.zeros(8, np.float32))
        found.add(row.tobytes())
    assert len(found) > 1


def test_read_only_and_empty_arrays_and_records() -> None:
    fixed = np.arange(5)
    fixed.flags.writeable = False
    assert element(fixed, 3) == 3
    assert element(np.zeros(3, [("a", np.int8), ("b", np.int64)]), 2)["b"] == 0
    add_to_first((np.zeros(0, np.float32),), 0, 0, np.zeros(0, np.float32))


def test_matrices_of_training() -> None:
    @nb.njit
    def train(extra: int) -> None:
        with nb.objmode(matrix="float32[::1]"):
            matrix = guarded_matrix(3, 16)
        add_row(matrix, 0, 48 + extra, np.float32(1), matrix, 0)

    train(0)
    with pytest.raises(Overrun, match="a matrix of 3 x 16"):
        train(16)


@pytest.mark.skipif(not is_checked(), reason="only where kernels are checked")
def test_the_checked_mode_sees_an_index_in_a_parallel_loop() -> None:
    @nb.njit(parallel=True)
    def squares(values: Any, last: int) -> None:
        for i in nb.prange(last):
            values[i] = i * i

    squares(np.zeros(5), 5)
    with pytest.raises(IndexError):
        squares(np.zeros(5), 6)
