"""Sparse rows in plain NumPy: where they begin, the positions of their entries, and look-up of arcs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def row_starts(lengths: Any) -> NDArray[np.int64]:
    """`indptr` [rows + 1] of rows of these lengths."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def entries_of(starts: NDArray[np.int64], rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Begins [k + 1] of some rows when they are put behind each other, and the positions of their entries before."""
    lengths = np.diff(starts)[rows]
    begins = row_starts(lengths)
    return begins, np.arange(begins[-1]) + np.repeat(starts[:-1][rows] - begins[:-1], lengths)


def has_arcs(
    indptr: NDArray[np.int64], indices: NDArray[Any], sources: NDArray[np.int64], targets: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """True for each arc that is in these rows, ascending in each: a bisection of all rows at once."""
    if not len(indices):
        return np.zeros(len(sources), np.bool_)
    low, ends = indptr[sources], indptr[sources + 1]
    high, last = ends.copy(), len(indices) - 1
    while (left := low < high).any():
        middle = (low + high) >> 1
        below = left & (indices[np.minimum(middle, last)] < targets)
        low = np.where(below, middle + 1, low)
        high = np.where(left & ~below, middle, high)
    found: NDArray[np.bool_] = (low < ends) & (indices[np.minimum(low, last)] == targets)
    return found
