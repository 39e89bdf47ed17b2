"""The largest values of rows."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray


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
