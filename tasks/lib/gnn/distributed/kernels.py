"""Compiled loops of a worker that has a part of the graph: rows and sums that it reads, and that others ask it for.

Those that write a layer's matrix are parallel over its rows; the others run in the thread that looks ahead.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.model.mean_kernels import add, add_masked
from superworkflow.tasks.lib.gnn.sampler.kernels import AHEAD, ask_rows
from superworkflow.tasks.lib.kernels.prefetch import prefetch, prefetch_row


@nb.njit(nogil=True, cache=True)
def copy_rows(table: NDArray[np.float32], rows: NDArray[np.int64], out: NDArray[np.float32]) -> None:
    """Rows of a table one behind the other: table [n, d], rows [r], out [r * d], filled."""
    width, flat = table.shape[1], table.reshape(-1)
    for i in range(len(rows)):
        ask_rows(flat, width, rows, i + AHEAD, 1)
        out[i * width : (i + 1) * width] = table[rows[i]]


@nb.njit(nogil=True, cache=True)
def place_in_rows(
    indptr: NDArray[np.int64], rows: NDArray[np.int64], begins: NDArray[np.int64], starts: NDArray[np.int64],
    positions: NDArray[np.int64], places: NDArray[np.int64],
) -> None:  # fmt: skip
    """Places of drawn edges among those of the worker's nodes.

    Args:
        indptr: of these.
        rows: of the receivers [r].
        begins: where each row begins in the whole edge set.
        starts, positions: [r + 1], [e]; see `kernels.draw_edges`.
        places: [e], filled.
    """
    for i in range(len(rows)):
        moved = indptr[rows[i]] - begins[rows[i]]
        for e in range(starts[i], starts[i + 1]):
            places[e] = positions[e] + moved


@nb.njit(nogil=True, cache=True)
def rename(names: NDArray[Any], numbers: NDArray[np.int64]) -> None:
    """Give numbers [n] the names that these have."""
    for i in range(len(numbers)):
        if i + AHEAD < len(numbers):
            prefetch(names, numbers[i + AHEAD])
        numbers[i] = names[numbers[i]]


@nb.njit(nogil=True, cache=True)
def place_edges(
    receivers: NDArray[np.int64], starts: NDArray[np.int64], values: NDArray[Any], out: NDArray[Any]
) -> None:
    """Put values of the edges of some receivers, given in the order of these, where those of each receiver begin.

    Args:
        receivers: [r], distinct.
        starts: of all receivers [n + 1].
        values: of the edges of these [e].
        out: [starts[n]], of which what is these receivers' is filled.
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
        starts, senders: of drawn edges [r + 1], [e].
        bounds: numbers at which each worker's nodes begin, and the end [workers + 1].
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
    starts: NDArray[np.int64], senders: NDArray[np.int64], bounds: NDArray[np.int64], mine: int,
    ends: NDArray[np.int64], own_starts: NDArray[np.int64], own: NDArray[np.int64], asked: NDArray[np.int64],
    sum_starts: NDArray[np.int64], ranks: NDArray[np.uint16],
) -> None:  # fmt: skip
    """Divide drawn edges by who has their senders.

    Args:
        starts, senders, bounds: as of `count_senders`.
        mine: rank of this worker.
        ends: where each other worker's edges begin in `asked` [workers]; moved to where they end.
        own_starts, own: edges from this worker's nodes, as rows among them [r + 1], [edges], filled.
        asked: senders of the other edges, [edges], filled; the first one that each receiver has of a worker is given
            as its complement, so that it begins a sum.
        sum_starts: where the sums of each receiver begin [r + 1], filled.
        ranks: of each sum, who makes it, filled.
    """
    low, high = bounds[mine], bounds[mine + 1]
    last, at, summed = np.full(len(ends), -1), 0, 0
    for i in range(len(starts) - 1):
        own_starts[i], sum_starts[i] = at, summed
        for e in range(starts[i], starts[i + 1]):
            node = senders[e]
            if low <= node < high:
                own[at] = node - low
                at += 1
                continue
            rank = _owner(bounds, node)
            if last[rank] != i:
                last[rank] = i
                ranks[summed] = rank
                summed += 1
                node = ~node
            asked[ends[rank]] = node
            ends[rank] += 1
    own_starts[len(starts) - 1], sum_starts[len(starts) - 1] = at, summed


@nb.njit(nogil=True, cache=True)
def sum_asked(
    table: NDArray[np.float32], asked: NDArray[np.int64], low: int, numbers: NDArray[Any], dropped: int,
    state: np.uint64, out: NDArray[np.float32],
) -> None:  # fmt: skip
    """Sums of rows that another worker asks for, one behind the other.

    Args:
        table: of this worker's nodes [n, d].
        asked: as `split_senders` makes it.
        low: number of the first of them.
        numbers: by which dropout goes, of each [n].
        dropped, state: as of `mean_kernels.gather_rows`.
        out: [sums * d], filled.
    """
    width, flat, begin = table.shape[1], table.reshape(-1), -np.int64(table.shape[1])
    words = np.empty((width + 3) >> 2, np.uint64)
    for e in range(len(asked)):
        if e + AHEAD < len(asked):
            ahead = asked[e + AHEAD]
            prefetch_row(flat, ((ahead if ahead >= 0 else ~ahead) - low) * width, width)
        node = asked[e]
        if node < 0:
            node = ~node
            begin += width
            out[begin : begin + width] = np.float32(0)
        row, one = out[begin : begin + width], table[node - low]
        if dropped:
            add_masked(row, one, numbers[node - low], dropped, state, words)
        else:
            add(row, one)
