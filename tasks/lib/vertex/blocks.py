"""Blocks of vertices, grown breadth first, which a splash updates as trees.

Splash belief propagation (Gonzalez, Low and Guestrin, "Residual Splash for Optimally Parallelizing Belief Propagation",
AISTATS 2009) updates a tree around the vertex of largest residual from its leaves to the root and back, so that what
the tree says travels through it at once. Here the trees are in blocks that are always the same and have colours as
vertices have: a run still equals one sequential execution.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.vertex.colours import by_colour, greedy
from superworkflow.tasks.lib.vertex.scheduler import Queue

load_kernels_fast()


@nb.njit(nogil=True, cache=True)
def grow(indptr: Any, indices: Any, in_indptr: Any, in_indices: Any, size: int, order: Any, starts: Any) -> Any:
    """Divide the vertices into blocks; returns their number.

    Each begins at the first vertex that is in none, and takes vertices in none breadth first.

    Args:
        indptr: int64 [vertices + 1] of out-edges.
        indices: int32 [arcs].
        in_indptr: int64 [vertices + 1] of in-edges; [0] if each edge is in both rows.
        in_indices: int32 [arcs] or [0].
        size: most vertices of a block.
        order: int32 [vertices], becomes the vertices by block, in the order in which it took them.
        starts: int64 [vertices + 1], becomes where each block begins; further ones stay.
    """
    vertices = len(indptr) - 1
    taken = np.zeros(vertices, np.bool_)
    end, blocks = 0, 0
    for seed in range(vertices):
        if taken[seed]:
            continue
        starts[blocks] = place = end
        taken[seed] = True
        order[end] = seed
        end += 1
        while place < end:
            vertex = order[place]
            place += 1
            for part in range(2 if len(in_indptr) else 1):
                begins, ends = (indptr, indices) if part == 0 else (in_indptr, in_indices)
                for arc in range(begins[vertex], begins[vertex + 1]):
                    other = ends[arc]
                    if not taken[other] and end - starts[blocks] < size:
                        taken[other] = True
                        order[end] = other
                        end += 1
        blocks += 1
    starts[blocks] = end
    return blocks


@nb.njit(nogil=True, cache=True)
def conflict(
    indptr: Any, indices: Any, in_indptr: Any, in_indices: Any, distance: int, colours: Any, block: Any
) -> Any:
    """A vertex that has one colour with one of another block within a distance, or -1; else as of `grow`.

    Args:
        distance: 0 to 2.
        colours: int32 [vertices].
        block: int32 [vertices], the block of each.
    """
    vertices = len(indptr) - 1
    seen = np.full(colours.max() + 1 if vertices else 0, -1, np.int64)
    there = np.zeros(len(seen), np.int64)
    for vertex in range(vertices if distance > 0 else 0):
        seen[colours[vertex]], there[colours[vertex]] = vertex, block[vertex]
        for part in range(2 if len(in_indptr) else 1):
            begins, ends = (indptr, indices) if part == 0 else (in_indptr, in_indices)
            for arc in range(begins[vertex], begins[vertex + 1]):
                other = ends[arc]
                colour = colours[other]
                if colour == colours[vertex] and block[other] != block[vertex]:
                    return vertex
                if distance > 1:
                    if seen[colour] == vertex and there[colour] != block[other]:
                        return other
                    seen[colour], there[colour] = vertex, block[other]
    return -1


@nb.njit(nogil=True, cache=True)
def signalled_blocks(signals: Any, degrees: Any, starts: Any, lowest: Any, queue: Any) -> Any:
    """Blocks with a vertex that was signalled with some priority at least; and their updates.

    Args:
        signals: int32 [vertices], bits of float32 priorities.
        degrees: int64 [vertices].
        starts: int64 [blocks + 1].
        lowest: bits of the lowest priority that is taken, from 1.
        queue: int32 [blocks], becomes the result.

    Returns:
        blocks, updates, and arcs of these.
    """
    count, updates, arcs = 0, 0, 0
    for block in range(len(starts) - 1):
        most = 0
        for vertex in range(starts[block], starts[block + 1]):
            most = max(most, signals[vertex])
        if most >= lowest:
            queue[count] = block
            count += 1
            updates += 2 * (starts[block + 1] - starts[block]) - 1
            for vertex in range(starts[block], starts[block + 1]):
                arcs += 2 * degrees[vertex]
    return count, updates, arcs


def coloured_blocks(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], in_indptr: NDArray[np.int64], in_indices: NDArray[np.int32],
    size: int, distance: int,
) -> tuple[NDArray[np.int32], int, NDArray[np.int32], NDArray[np.int64]]:  # fmt: skip
    """Blocks of a graph, coloured so that those of one colour lie further apart than `distance`.

    Args:
        indptr: int64 [vertices + 1] of out-edges.
        indices: int32 [arcs].
        in_indptr: int64 [vertices + 1] of in-edges; [0] if each edge is in both rows.
        in_indices: int32 [arcs] or [0].
        size: most vertices of a block.
        distance: 0 to 2.

    Returns:
        colour int32 [vertices]; the number of colours; order int32 [vertices] by colour and block; starts int64
        [blocks + 1], where each block begins there.
    """
    vertices = len(indptr) - 1
    grown, starts = np.empty(vertices, np.int32), np.zeros(vertices + 1, np.int64)
    blocks = grow(indptr, indices, in_indptr, in_indices, size, grown, starts)
    lengths, block = np.diff(starts[: blocks + 1]), np.empty(vertices, np.int32)
    block[grown] = np.repeat(np.arange(blocks, dtype=np.int32), lengths)
    colours, count = np.zeros(blocks, np.int32), min(1, blocks)
    if distance and blocks:
        ends = np.repeat(block, np.diff(indptr)), block[indices]
        apart = ends[0] != ends[1]
        pairs = sp.coo_array((np.ones(int(apart.sum()), bool), tuple(each[apart] for each in ends)), (blocks, blocks))
        rows = (pairs + pairs.T).tocsr()
        rows.sort_indices()
        none = np.empty(0, np.int64), np.empty(0, np.int32)
        colours[:] = -1
        count = greedy(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), *none, distance, colours)
    by_block, bounds = np.empty(blocks, np.int32), np.zeros(count + 1, np.int64)
    by_colour(colours, count, by_block, bounds)
    made = np.concatenate([[0], np.cumsum(lengths[by_block])]).astype(np.int64)
    offsets = np.arange(vertices) - np.repeat(made[:-1], lengths[by_block])
    order = grown[np.repeat(starts[by_block], lengths[by_block]) + offsets]
    return colours[block], count, order, made


class Splash:
    """Blocks of a graph, by place.

    Args:
        starts: int64 [blocks + 1], where each begins.
        bounds: int64 [colours + 1], where each colour begins.
        degrees: int64 [vertices].

    Attributes:
        path: int32 [vertices], memory of the order in which blocks are updated.
        seen: int64 [vertices], memory of what that order has reached.
    """

    def __init__(self, starts: NDArray[np.int64], bounds: NDArray[np.int64], degrees: NDArray[np.int64]):
        self.starts, self._degrees = starts, degrees
        self.path, self.seen = np.empty(len(degrees), np.int32), np.zeros(len(degrees), np.int64)
        self._bounds = np.searchsorted(starts[:-1], bounds)
        self._queue = np.empty(len(starts) - 1, np.int32)

    def queue(self, signals: NDArray[np.int32], lowest: int) -> Queue:
        """Active blocks: those with a vertex that was signalled.

        Args:
            signals: int32 [vertices], bits of float32 priorities.
            lowest: bits of the lowest priority that is taken, 0 for all blocks; see `scheduler.bucket`.
        """
        if not lowest:
            signals[:] = np.maximum(signals, 1)
        count, updates, arcs = signalled_blocks(signals, self._degrees, self.starts, max(1, lowest), self._queue)
        found = self._queue[:count]
        return Queue(found, np.searchsorted(found, self._bounds).astype(np.int64), int(arcs), int(updates))
