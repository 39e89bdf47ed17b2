"""Compiled loops that copy rows of owned nodes and of rows received from their owners."""

from __future__ import annotations

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.prefetch import AHEAD, prefetch_row, prefetch_rows


@nb.njit(nogil=True, cache=True)
def copy_rows(table: NDArray[np.float32], rows: NDArray[np.int64], out: NDArray[np.float32]) -> None:
    """Rows of a table, concatenated: table [n, d], rows [r], out [r * d], filled."""
    width, flat = table.shape[1], table.reshape(-1)
    for i in range(len(rows)):
        prefetch_rows(flat, width, rows, i + AHEAD, 1)
        out[i * width : (i + 1) * width] = table[rows[i]]


@nb.njit(parallel=True, cache=True)
def gather_remote(
    table: NDArray[np.float32], values: NDArray[np.float32], where: NDArray[np.int64], out: NDArray[np.float32]
) -> None:
    """Rows of nodes that this worker or another one owns; -0 becomes 0.

    Args:
        table: rows of the owned nodes [n, d].
        values: rows received from other workers, concatenated.
        where: row of each node in `table` [r], or the complement of its row's offset in `values`.
        out: [r, d], filled.
    """
    width, flat = table.shape[1], table.reshape(-1)
    for i in nb.prange(len(where)):
        if i + AHEAD < len(where):
            ahead = where[i + AHEAD]
            if ahead >= 0:
                prefetch_row(flat, ahead * width, width)
            else:
                prefetch_row(values, ~ahead, width)
        begin = where[i]
        row = table[begin] if begin >= 0 else values[~begin : ~begin + width]
        for c in range(width):
            out[i, c] = np.float32(0) + row[c]
