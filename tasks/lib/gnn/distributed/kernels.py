"""Compiled loops of distributed sampling: places and partition of drawn edges, and partial sums for other workers.

They run in the thread that prepares batches ahead.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.model.mean_kernels import add, add_masked
from superworkflow.tasks.lib.kernels.prefetch import AHEAD, prefetch, prefetch_row


@nb.njit(nogil=True, cache=True)
def place_in_rows(
    indptr: NDArray[np.int64], rows: NDArray[np.int64], begins: NDArray[np.int64], starts: NDArray[np.int64],
    positions: NDArray[np.int64], places: NDArray[np.int64],
) -> None:  # fmt: skip
    """Places of drawn edges among the edges of the worker's nodes.

    Args:
        indptr: row offsets of the worker's nodes.
        rows: rows of the receivers [r].
        begins: offset of each row in the whole edge set.
        starts, positions: drawn edges [r + 1], [e]; see `sampler.kernels.draw_edges`.
        places: [e], filled.
    """
    for i in range(len(rows)):
        moved = indptr[rows[i]] - begins[rows[i]]
        for e in range(starts[i], starts[i + 1]):
            places[e] = positions[e] + moved


@nb.njit(nogil=True, cache=True)
def rename(names: NDArray[Any], numbers: NDArray[np.int64]) -> None:
    """Replace each number [n] by its entry in `names`."""
    for i in range(len(numbers)):
        if i + AHEAD < len(numbers):
            prefetch(names, numbers[i + AHEAD])
        numbers[i] = names[numbers[i]]


@nb.njit(nogil=True, cache=True)
def place_edges(
    receivers: NDArray[np.int64], starts: NDArray[np.int64], values: NDArray[Any], out: NDArray[Any]
) -> None:
    """Write values of some receivers' edges, which are in the order of these receivers, to the receivers' offsets.

    Args:
        receivers: [r], distinct.
        starts: edge offsets of all receivers [n + 1].
        values: values of the edges [e].
        out: [starts[n]], filled for these receivers.
    """
    e = 0
    for i in receivers:
        for place in range(starts[i], starts[i + 1]):
            out[place] = values[e]
            e += 1


@nb.njit(inline="always")
def _owner(bounds: Any, node: Any) -> Any:
    """Owner of a node among workers whose nodes begin at `bounds`."""
    low, high = 0, len(bounds) - 1
    while low + 1 < high:
        middle = (low + high) >> 1
        if bounds[middle] <= node:
            low = middle
        else:
            high = middle
    return low


@nb.njit(nogil=True, cache=True)
def count_senders(
    starts: NDArray[np.int64], senders: NDArray[np.int64], bounds: NDArray[np.int64], edges: NDArray[np.int64],
    sums: NDArray[np.int64],
) -> None:  # fmt: skip
    """Count the edges from each worker's nodes, and their receivers, each of which needs one sum.

    Args:
        starts, senders: drawn edges [r + 1], [e].
        bounds: first number of each worker's nodes, and the end [workers + 1].
        edges, sums: [workers], filled.
    """
    edges[:] = 0
    sums[:] = 0
    last = np.full(len(edges), -1)
    for i in range(len(starts) - 1):
        for e in range(starts[i], starts[i + 1]):
            rank = _owner(bounds, senders[e])
            edges[rank] += 1
            if last[rank] != i:
                last[rank] = i
                sums[rank] += 1


@nb.njit(nogil=True, cache=True)
def split_senders(
    starts: NDArray[np.int64], senders: NDArray[np.int64], bounds: NDArray[np.int64], own_rank: int,
    ends: NDArray[np.int64], own_starts: NDArray[np.int64], own: NDArray[np.int64], remote: NDArray[np.int64],
    sum_starts: NDArray[np.int64], ranks: NDArray[np.uint16],
) -> None:  # fmt: skip
    """Split drawn edges by the worker that owns the sender.

    Args:
        starts, senders, bounds: as in `count_senders`.
        own_rank: rank of this worker.
        ends: begin of each other worker's edges in `remote` [workers]; advanced to their end.
        own_starts, own: edges from this worker's nodes, as rows among them [r + 1], [edges], filled.
        remote: senders of the other edges [edges], filled; the first sender of each sum (of one receiver and one
            worker) is stored as its complement.
        sum_starts: offsets of each receiver's sums [r + 1], filled.
        ranks: worker that computes each sum, filled.
    """
    low, high = bounds[own_rank], bounds[own_rank + 1]
    last, count, summed = np.full(len(ends), -1), 0, 0
    for i in range(len(starts) - 1):
        own_starts[i], sum_starts[i] = count, summed
        for e in range(starts[i], starts[i + 1]):
            node = senders[e]
            if low <= node < high:
                own[count] = node - low
                count += 1
                continue
            rank = _owner(bounds, node)
            if last[rank] != i:
                last[rank] = i
                ranks[summed] = rank
                summed += 1
                node = ~node
            remote[ends[rank]] = node
            ends[rank] += 1
    own_starts[len(starts) - 1], sum_starts[len(starts) - 1] = count, summed


@nb.njit(nogil=True, cache=True)
def sum_requested(
    table: NDArray[np.float32], senders: NDArray[np.int64], low: int, numbers: NDArray[Any], dropped: int,
    state: np.uint64, out: NDArray[np.float32],
) -> None:  # fmt: skip
    """Sums of rows that another worker requests, concatenated.

    Args:
        table: rows of this worker's nodes [n, d].
        senders: `remote` of the other worker's `split_senders`, for this worker.
        low: number of this worker's first node.
        numbers: key of each node's dropout [n].
        dropped, state: as in `mean_kernels.gather_rows`.
        out: [sums * d], filled.
    """
    width, flat, begin = table.shape[1], table.reshape(-1), -np.int64(table.shape[1])
    words = np.empty((width + 3) >> 2, np.uint64)
    for e in range(len(senders)):
        if e + AHEAD < len(senders):
            ahead = senders[e + AHEAD]
            prefetch_row(flat, ((ahead if ahead >= 0 else ~ahead) - low) * width, width)
        node = senders[e]
        if node < 0:
            node = ~node
            begin += width
            out[begin : begin + width] = np.float32(0)
        row, one = out[begin : begin + width], table[node - low]
        if dropped:
            add_masked(row, one, numbers[node - low], dropped, state, words)
        else:
            add(row, one)
