"""Compiled products of sparse rows with dense matrices, and dropout of their numbers."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.random import GAMMA, mix


@nb.njit(nogil=True, cache=True)
def multiply_rows(
    starts: NDArray[np.int64], columns: NDArray[np.int32], values: NDArray[np.float32], matrix: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:  # fmt: skip
    """Sparse rows times a matrix.

    Args:
        starts: offsets of the rows [r + 1] in `columns` and `values`.
        columns, values: places and numbers of all entries.
        matrix: [columns, width].
        out: [r, width], filled.
    """
    for i in range(len(out)):
        row = out[i]
        row[:] = np.float32(0)
        for k in range(starts[i], starts[i + 1]):
            _add(row, matrix[columns[k]], values[k])


@nb.njit(nogil=True, cache=True)
def multiply_transposed(
    starts: NDArray[np.int64], columns: NDArray[np.int32], values: NDArray[np.float32], rows: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:  # fmt: skip
    """Sparse rows, transposed, times dense rows.

    Args:
        starts, columns, values: as in `multiply_rows`.
        rows: [r, width].
        out: [columns, width], filled.
    """
    for c in range(len(out)):
        out[c, :] = np.float32(0)
    for i in range(len(rows)):
        for k in range(starts[i], starts[i + 1]):
            _add(out[columns[k]], rows[i], values[k])


@nb.njit(nogil=True)
def _add(row: Any, one: Any, factor: Any) -> None:
    for c in range(len(row)):
        row[c] += factor * one[c]


@nb.njit(nogil=True, cache=True)
def drop_entries(
    starts: NDArray[np.int64], columns: NDArray[np.int32], values: NDArray[np.float32], nodes: NDArray[np.int32],
    dropped: int, state: np.uint64, out: NDArray[np.float32],
) -> None:  # fmt: skip
    """Numbers after the dropout that `gather_kernels.drop_rows` has of the same rows.

    Args:
        starts, columns, values: as in `multiply_rows`.
        nodes: of the rows [r].
        dropped, state: as in `sampler.kernels.fill_masks`.
        out: of the entries from starts[0] to starts[r], filled.
    """
    scale = np.float32(65536.0 / (65536.0 - dropped))
    for i in range(len(starts) - 1):
        own = mix(state + np.uint64(np.int64(nodes[i]) + 1) * GAMMA)
        for k in range(starts[i], starts[i + 1]):
            word = mix(own + np.uint64((columns[k] >> 2) + 1) * GAMMA)
            lane = np.int64((word >> np.uint64(16 * (columns[k] & 3))) & np.uint64(0xFFFF))
            out[k - starts[0]] = values[k] * (np.float32(0) if lane < dropped else scale)
