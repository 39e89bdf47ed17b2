"""The largest values of rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray


def largest_left(values: NDArray[np.float32], left_out: Iterable[Any], k: int) -> tuple[NDArray[np.int64], Any]:
    """Columns of the largest values of each row, the largest first and of equal ones the first, and these values.

    Args:
        values: float32 [rows, columns]; changed.
        left_out: indices of values that are left out.
        k: values of a row at most.

    Returns:
        int64 [rows, k], -1 where fewer are left, and float32 [rows, k]; k at most the number of columns.
    """
    for index in left_out:
        values[index] = -np.inf
    places = np.empty((len(values), min(k, values.shape[1])), np.int64)
    largest_of_rows(values, places)
    return places, np.take_along_axis(values, places, 1)


@nb.njit(cache=True, parallel=True)
def largest_of_rows(values: NDArray[np.float32], places: NDArray[Any]) -> None:
    """Find the largest values of each row, in descending order, of equal ones the first.

    Args:
        values: float32 [rows, columns].
        places: int64 [rows, k], filled with their columns; -1 where a row has fewer than k values above -inf.
    """
    for row in nb.prange(len(values)):
        own, found, count = values[row], places[row], 0
        for column in range(len(own)):
            value = own[column]
            if not value > (own[found[count - 1]] if count == len(found) else -np.inf):
                continue
            place = min(count, len(found) - 1)
            while place > 0 and value > own[found[place - 1]]:
                found[place] = found[place - 1]
                place -= 1
            found[place] = column
            count = min(count + 1, len(found))
        found[count:] = -1
