"""Compiled loops of training: draws of neighbours, their compact numbers, sums over them, and dropout masks.

All but the sums and the masks run in one thread and release the GIL, so that several batches can be prepared at a time.
Sums and masks are parallel; each sum adds in the order of the edges, so its bits do not depend on the threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.float16 import value_of
from superworkflow.tasks.lib.kernels.prefetch import AHEAD, prefetch, prefetch_rows
from superworkflow.tasks.lib.kernels.random import GAMMA, mix, uniform
from superworkflow.tasks.lib.subgraphs.draw import draw_uniform

ALL_NEIGHBORS = -1
"""Fan-out of a hop that takes every neighbour."""
COLUMNS = 16
"""Columns that one thread sums at a time: a cache line."""


@nb.njit(nogil=True, cache=True)
def keys_of(nodes: NDArray[np.int64], state: np.uint64, keys: NDArray[np.uint64]) -> None:
    """A random word for each node, [n], by its number."""
    for i in range(len(nodes)):
        keys[i] = mix(state + np.uint64(nodes[i] + 1) * GAMMA)


class Renumbered(NamedTuple):
    """Rows of some nodes of a graph, with neighbours by new numbers; draws from them equal draws from the graph.

    Args:
        order: old number of each node of the senders' set.
        begins: offset of each row in the whole edge set.
    """

    order: NDArray[Any]
    begins: NDArray[np.int64]


@nb.njit(nogil=True, cache=True)
def count_draws(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    rows: NDArray[np.int64],
    size: int,
    labor: bool,
    state: np.uint64,
    lost: NDArray[np.int64],
    starts: NDArray[np.int64],
    renumbered: Renumbered | None,
) -> None:
    """Offsets of each receiver's drawn edges.

    Args:
        indptr, indices: rows of the edge set.
        rows: rows of the receivers [r].
        size: fan-out, or `ALL_NEIGHBORS`.
        labor: draw each neighbour by its own random number instead of a fixed number of neighbours.
        state: state of the random stream of this hop and edge set.
        lost: positions of removed edges, ascending.
        starts: [r + 1], filled.
        renumbered: numbering of a part's rows; None for rows of the whole graph.
    """
    starts[0] = 0
    for i in range(len(rows)):
        if i + AHEAD < len(rows):
            prefetch(indptr, np.int64(rows[i + AHEAD]))
        first, last = indptr[rows[i]], indptr[rows[i] + 1]
        moved = moved_on(renumbered, rows[i], first)
        gone, end = _lost_in(lost, first + moved, last + moved)
        degree = last - first - (end - gone)
        if size < 0 or degree <= size:
            count = degree
        elif labor:
            count = 0
            share = size / degree
            for place in range(first, last):
                if gone < end and lost[gone] == place + moved:
                    gone += 1
                elif uniform_of(_node(renumbered, indices[place]), state) < share:
                    count += 1
        else:
            count = np.int64(size)
        starts[i + 1] = starts[i] + count


@nb.njit(nogil=True, cache=True)
def draw_edges(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    rows: NDArray[np.int64],
    receivers: NDArray[np.int64],
    size: int,
    labor: bool,
    state: np.uint64,
    lost: NDArray[np.int64],
    starts: NDArray[np.int64],
    renumbered: Renumbered | None,
    marks: NDArray[np.uint64],
    positions: NDArray[np.int64],
) -> None:
    """Draw edges, ascending for each receiver.

    Args:
        indptr, indices, rows, size, labor, state, lost, renumbered: as given to `count_draws`.
        receivers: the nodes [r], by old numbers.
        starts: offsets, as `count_draws` filled them.
        marks: scratch, zeros [most degree / 64 + 1] before and after.
        positions: positions of the edges in their set, [starts[r]], filled.
    """
    for i in range(len(rows)):
        first, last = indptr[rows[i]], indptr[rows[i] + 1]
        moved = moved_on(renumbered, rows[i], first)
        gone, end = _lost_in(lost, first + moved, last + moved)
        degree, slot = last - first - (end - gone), starts[i]
        if size < 0 or degree <= size:
            for place in range(first, last):
                if gone < end and lost[gone] == place + moved:
                    gone += 1
                else:
                    positions[slot] = place + moved
                    slot += 1
        elif labor:
            share = size / degree
            for place in range(first, last):
                if gone < end and lost[gone] == place + moved:
                    gone += 1
                elif uniform_of(_node(renumbered, indices[place]), state) < share:
                    positions[slot] = place + moved
                    slot += 1
        else:
            own = mix(state + np.uint64(receivers[i] + 1) * GAMMA)
            draw_uniform(positions, slot, degree, size, own, marks)
            begin = first + moved
            for j in range(slot, slot + size):
                # Draws ascend and count the remaining edges only: each is shifted by the lost edges before it.
                positions[j] += begin
                while gone < end and lost[gone] <= positions[j]:
                    gone += 1
                    begin += 1
                    positions[j] += 1


@nb.njit(nogil=True)
def moved_on(renumbered: Any, row: Any, first: Any) -> Any:
    """Offset of a row within the whole edge set."""
    if renumbered is None:
        return np.int64(0)
    return renumbered.begins[row] - first


@nb.njit(nogil=True)
def _node(renumbered: Any, number: Any) -> Any:
    """Old number of a node."""
    if renumbered is None:
        return number
    return renumbered.order[number]


@nb.njit(inline="always")
def _lost_in(lost: Any, first: Any, last: Any) -> Any:
    """Range of a row's lost edges."""
    if len(lost) == 0:
        return 0, 0
    return np.searchsorted(lost, first), np.searchsorted(lost, last)


@nb.njit(inline="always")
def uniform_of(node: Any, state: Any) -> Any:
    """A random number of a node, uniform in [0, 1)."""
    return uniform(state + np.uint64(node + 1) * GAMMA)


@nb.njit(nogil=True, cache=True)
def compact(
    indices: NDArray[Any],
    positions: NDArray[np.int64],
    places: NDArray[np.int32],
    frontier: NDArray[np.int64],
    count: int,
    senders: NDArray[np.int32],
) -> int:
    """Number the senders of drawn edges in the order of their first occurrence.

    Args:
        indices: nodes of the edge set.
        positions: positions of the drawn edges [e].
        places: index in `frontier` of each node of the senders' set, -1 if it is not there; updated.
        frontier: nodes, of which the first `count` are given; with room for `e` more.
        count: number of nodes in `frontier`.
        senders: indices in `frontier` of the senders [e], filled.

    Returns:
        Number of nodes in `frontier` now.
    """
    for e in range(len(positions)):
        if e + 2 * AHEAD < len(positions):
            prefetch(indices, positions[e + 2 * AHEAD])
        if e + AHEAD < len(positions):
            prefetch(places, np.int64(indices[positions[e + AHEAD]]))
        node = indices[positions[e]]
        place = places[node]
        if place < 0:
            place = count
            places[node] = np.int32(count)
            frontier[count] = node
            count += 1
        senders[e] = np.int32(place)
    return count


@nb.njit(nogil=True, cache=True)
def enter(nodes: NDArray[np.int64], places: NDArray[np.int32]) -> None:
    """Assign places 0 to n - 1 to distinct nodes."""
    for i in range(len(nodes)):
        places[nodes[i]] = np.int32(i)


@nb.njit(nogil=True, cache=True)
def leave(nodes: NDArray[np.int64], places: NDArray[np.int32]) -> None:
    """Reset the places of nodes to -1."""
    for i in range(len(nodes)):
        places[nodes[i]] = np.int32(-1)


@nb.njit(parallel=True, cache=True)
def sum_edges(values: NDArray[Any], starts: NDArray[np.int64], senders: NDArray[Any], out: NDArray[np.float32]) -> None:
    """Sum the rows of each receiver's senders: values [n, d] as `float16.as_read` gives them, starts [r + 1],
    senders [e], out [r, d].
    """
    width, flat = values.shape[1], values.reshape(-1)
    for i in nb.prange(len(starts) - 1):
        for c in range(width):
            out[i, c] = np.float32(0)
        for e in range(starts[i], starts[i + 1]):
            prefetch_rows(flat, width, senders, e + AHEAD, 1)
            sender = senders[e]
            for c in range(width):
                out[i, c] += value_of(values[sender, c])


@nb.njit(parallel=True, cache=True)
def spread_edges(
    values: NDArray[np.float32], starts: NDArray[np.int64], senders: NDArray[Any], out: NDArray[np.float32]
) -> None:
    """The transpose of `sum_edges`: add each receiver's row to the rows of its senders.

    Args:
        values: rows of the receivers [r, d].
        starts, senders: [r + 1], [e].
        out: rows of the senders [n, d], filled; each thread has its own columns.
    """
    width = values.shape[1]
    for block in nb.prange((width + COLUMNS - 1) // COLUMNS):
        low, high = block * COLUMNS, min(width, (block + 1) * COLUMNS)
        for i in range(len(out)):
            for c in range(low, high):
                out[i, c] = np.float32(0)
        for i in range(len(starts) - 1):
            for e in range(starts[i], starts[i + 1]):
                sender = senders[e]
                for c in range(low, high):
                    out[sender, c] += values[i, c]


@nb.njit(parallel=True, cache=True)
def fill_masks(numbers: NDArray[np.int64], dropped: int, state: np.uint64, out: NDArray[np.float32]) -> None:
    """Dropout masks, one row for each item.

    Args:
        numbers: numbers of the items [n].
        dropped: share of entries that are dropped, in 65536ths, below 65536.
        state: state of the random stream.
        out: [n, d], filled: 0 for dropped entries, 1 / (1 - share) for the others.
    """
    scale = np.float32(65536.0 / (65536.0 - dropped))
    width = out.shape[1]
    for i in nb.prange(len(numbers)):
        own = mix(state + np.uint64(numbers[i] + 1) * GAMMA)
        word = np.uint64(0)
        for c in range(width):
            if c & 3 == 0:
                word = mix(own + np.uint64((c >> 2) + 1) * GAMMA)
            lane = np.int64(word & np.uint64(0xFFFF))
            word = word >> np.uint64(16)
            out[i, c] = np.float32(0) if lane < dropped else scale
