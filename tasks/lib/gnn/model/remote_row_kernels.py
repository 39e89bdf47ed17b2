"""Kernels that read rows of which some are remote."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.model.mean_kernels import add, add_four, add_masked, end_mean
from superworkflow.tasks.lib.kernels.prefetch import AHEAD, prefetch_row, prefetch_rows


@nb.njit(parallel=True, cache=True)
def gather_remote_rows(
    table: NDArray[np.float32], others: NDArray[np.float32], where: NDArray[np.int64], nodes: NDArray[np.int64],
    dropped: int, state: np.uint64, out: NDArray[np.float32], column: int,
) -> None:  # fmt: skip
    """`mean_kernels.gather_rows` of nodes that this worker or others own.

    Args:
        table, others, where: `table`, `values` and `where` of `kv_store.RemoteRows`.
        nodes: keys of the nodes' dropout [r].
        dropped, state, out, column: as in `gather_rows`.
    """
    width, flat = table.shape[1], table.reshape(-1)
    for i in nb.prange(len(where)):
        if i + AHEAD < len(where):
            ahead = where[i + AHEAD]
            if ahead >= 0:
                prefetch_row(flat, ahead * width, width)
            else:
                prefetch_row(others, ~ahead, width)
        row, begin = out[i, column : column + width], where[i]
        row[:] = np.float32(0)
        one = table[begin] if begin >= 0 else others[~begin : ~begin + width]
        if dropped:
            add_masked(row, one, nodes[i], dropped, state, np.empty((width + 3) >> 2, np.uint64))
        else:
            add(row, one)


@nb.njit(parallel=True, cache=True)
def gather_shared_means(
    table: NDArray[np.float32], numbers: NDArray[Any], own_starts: NDArray[np.int64], own: NDArray[np.int64],
    sums: NDArray[np.float32], sum_starts: NDArray[np.int64], where: NDArray[np.int64], starts: NDArray[np.int64],
    dropped: int, state: np.uint64, out: NDArray[np.float32], column: int,
) -> None:  # fmt: skip
    """`mean_kernels.gather_means` of neighbours that this worker or others own: own rows first, then partial sums.

    Args:
        table: rows of the worker's nodes [n, d].
        numbers: key of each node's dropout [n].
        own_starts, own: rows of each receiver's own neighbours [r + 1], [e].
        sums: partial sums of other workers, after dropout, concatenated.
        sum_starts, where: offsets of each receiver's sums [r + 1], and the complement of each sum's offset in `sums`.
        starts: edge offsets of the receivers [r + 1].
        dropped, state, out, column: as in `gather_means`.
    """
    width, flat = table.shape[1], table.reshape(-1)
    for i in nb.prange(len(starts) - 1):
        e, last = own_starts[i], own_starts[i + 1]
        row = out[i, column : column + width]
        row[:] = np.float32(0)
        if dropped:
            words = np.empty((width + 3) >> 2, np.uint64)
            while e < last:
                prefetch_rows(flat, width, own, e + AHEAD, 1)
                add_masked(row, table[own[e]], numbers[own[e]], dropped, state, words)
                e += 1
        while e + 4 <= last:
            prefetch_rows(flat, width, own, e + AHEAD, 4)
            add_four(row, table[own[e]], table[own[e + 1]], table[own[e + 2]], table[own[e + 3]])
            e += 4
        while e < last:
            prefetch_rows(flat, width, own, e + AHEAD, 1)
            add(row, table[own[e]])
            e += 1
        for p in range(sum_starts[i], sum_starts[i + 1]):
            add(row, sums[~where[p] : ~where[p] + width])
        end_mean(row, starts[i + 1] - starts[i])
