"""Kernels that read rows of which some are remote."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.model.mean_kernels import add, add_four, add_masked, end_mean
from superworkflow.tasks.lib.gnn.sampler.kernels import AHEAD, ask_rows
from superworkflow.tasks.lib.kernels.prefetch import prefetch_row


@nb.njit(parallel=True, cache=True)
def gather_near(
    table: NDArray[np.float32], others: NDArray[np.float32], where: NDArray[np.int64], nodes: NDArray[np.int64],
    dropped: int, state: np.uint64, out: NDArray[np.float32], at: int,
) -> None:  # fmt: skip
    """`mean_kernels.gather_rows` of nodes of which some are elsewhere.

    Args:
        table: of the worker's own nodes [n, d].
        others: rows of others' nodes, one behind the other.
        where: row in `table` of each node [r]; of another's the complement of where its row begins in `others`.
        nodes: numbers that dropout goes by [r].
        dropped, state, out, at: as of `gather_rows`.
    """
    width, flat = table.shape[1], table.reshape(-1)
    for i in nb.prange(len(where)):
        if i + AHEAD < len(where):
            ahead = where[i + AHEAD]
            if ahead >= 0:
                prefetch_row(flat, ahead * width, width)
            else:
                prefetch_row(others, ~ahead, width)
        row, begin = out[i, at : at + width], where[i]
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
    dropped: int, state: np.uint64, out: NDArray[np.float32], at: int,
) -> None:  # fmt: skip
    """`mean_kernels.gather_means` of neighbours of which some are elsewhere: first the own ones, then others' sums.

    Args:
        table: of the worker's own nodes [n, d].
        numbers: by which dropout goes, of each [n].
        own_starts, own: rows of each receiver's own neighbours [r + 1], [e].
        sums: of the rows of others' nodes, after dropout, one behind the other.
        sum_starts, where: of each receiver's sums [r + 1], and the complement of where each begins in `sums`.
        starts: where the drawn edges of each receiver begin [r + 1].
        dropped, state, out, at: as of `gather_means`.
    """
    width, flat = table.shape[1], table.reshape(-1)
    for i in nb.prange(len(starts) - 1):
        e, last = own_starts[i], own_starts[i + 1]
        row = out[i, at : at + width]
        row[:] = np.float32(0)
        if dropped:
            words = np.empty((width + 3) >> 2, np.uint64)
            while e < last:
                ask_rows(flat, width, own, e + AHEAD, 1)
                add_masked(row, table[own[e]], numbers[own[e]], dropped, state, words)
                e += 1
        while e + 4 <= last:
            ask_rows(flat, width, own, e + AHEAD, 4)
            add_four(row, table[own[e]], table[own[e + 1]], table[own[e + 2]], table[own[e + 3]])
            e += 4
        while e < last:
            ask_rows(flat, width, own, e + AHEAD, 1)
            add(row, table[own[e]])
            e += 1
        for p in range(sum_starts[i], sum_starts[i + 1]):
            add(row, sums[~where[p] : ~where[p] + width])
        end_mean(row, starts[i + 1] - starts[i])
