"""Compiled: what a task draws for others in the rows that it has."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.lib.subgraphs.draw import DrawScratch
from superworkflow.tasks.sample.induced import find_link, first_from
from superworkflow.tasks.sample.kernel import LATEST_K, NO_VALUES, RANDOM_WEIGHTED, draw_row

_NO_LIMIT = np.iinfo(np.int64).max


@nb.njit(nogil=True, cache=True)
def room_for(indptr: Any, low: Any, nodes: Any, draws: Any, size: Any, by_path: Any) -> Any:
    """(entries that draws may take together, largest degree).

    Args:
        indptr: int64, of the rows from node `low` on.
        nodes: asked for, [n].
        draws: paths that lead to each, int64 [n] where draws are by path.
        size: most edges of a draw.
    """
    entries, most = np.int64(0), np.int64(0)
    for i in range(len(nodes)):
        node = np.int64(nodes[i]) - low
        degree = indptr[node + 1] - indptr[node]
        times = draws[i] if by_path else np.int64(1)
        entries += degree if times > degree else min(degree, size * times)
        most = max(most, degree)
    return entries, most


@nb.njit(nogil=True, cache=True)
def draw_asked(
    rows: Any, low: Any, size: Any, strategy: Any, apart: Any, by_path: Any, keys: Any, times: Any, links: Any,
    begins: Any, nodes: Any, draws: Any, most: Any, counts: Any, positions: Any, targets: Any, paths: Any,
) -> Any:  # fmt: skip
    """Draw in each row that is asked for, as `kernel.sample` does.

    Args:
        rows: from node `low` on.
        size, strategy: of the op.
        apart: edges between both seeds are left out.
        by_path: draw for each path.
        keys: uint64 [g], state of the op in each subgraph.
        times: int64 [g], latest timestamp of each; empty unless the strategy asks for it.
        links: [g, 2], seeds of each; no rows unless `apart`.
        begins: int64 [g + 1]: requests of subgraph g are those from ``begins[g]`` to ``begins[g + 1] - 1``.
        nodes: asked for, [n].
        draws: int64 [n], paths to each; empty unless `by_path`.
        most: see `room_for`.
        counts: int64 [n], how many were drawn in each.
        positions: places of what was drawn in `rows`, [room].
        targets: neighbours there, [room].
        paths: int64 [room], how often each was drawn; empty unless `by_path`.

    Returns:
        How many were drawn in all.
    """
    indptr, indices = rows.indptr, rows.indices
    room = min(size, most)
    work = DrawScratch(np.zeros((most >> 6) + 1, np.uint64), np.empty(room, np.int64), np.empty(room, np.int64))
    ends = np.empty(2, np.int64)
    values = np.int64(0)
    if strategy == RANDOM_WEIGHTED and not len(rows.weights):
        values = np.int64(NO_VALUES)
    filled = np.int64(0)
    for group in range(len(keys)):
        limit = times[group] if strategy == LATEST_K else np.int64(_NO_LIMIT)
        for i in range(begins[group], begins[group + 1]):
            node = np.int64(nodes[i])
            first = indptr[node - low]
            degree = indptr[node - low + 1] - first
            here = draws[i] if by_path else np.int64(1)
            gap, skip = degree, np.int64(0)
            if apart:
                find_link(links, group, node, indices, first, degree, ends)
                gap, skip = ends[0], ends[1]
                degree -= skip
            state = mix(keys[group] + np.uint64(node + 1) * GAMMA)
            count = draw_row(
                positions, paths, filled, first, values, degree, gap, skip, size, strategy, rows, limit, state, here,
                by_path, work,
            )  # fmt: skip
            for k in range(filled, filled + count):
                if positions[k] >= gap:
                    positions[k] += skip
                positions[k] += first
                targets[k] = indices[positions[k]]
            counts[i] = count
            filled += count
    return filled


@nb.njit(nogil=True, cache=True)
def join_asked(
    rows: Any, low: Any, apart: Any, links: Any, begins: Any, nodes: Any, target_begins: Any, targets: Any,
    counts: Any, positions: Any, places: Any,
) -> Any:  # fmt: skip
    """All edges between nodes of the same subgraph, in rows that are asked for.

    Args:
        rows, low, apart, links, begins, nodes: see `draw_asked`.
        target_begins: int64 [g + 1], as `begins`, of `targets`.
        targets: nodes of each subgraph that edges may lead to, ascending.
        counts: int64 [n], how many edges each row has.
        positions, places: int64 [room]: places of edges in `rows`, and of their ends among the subgraph's `targets`.

    Returns:
        How many there are; where there is no room for them, only this.
    """
    indptr, indices = rows.indptr, rows.indices
    ends = np.empty(2, np.int64)
    filled = np.int64(0)
    for group in range(len(begins) - 1):
        begin, end = target_begins[group], target_begins[group + 1]
        for i in range(begins[group], begins[group + 1]):
            node = np.int64(nodes[i])
            first = indptr[node - low]
            degree = indptr[node - low + 1] - first
            ends[0], ends[1] = degree, 0
            if apart:
                find_link(links, group, node, indices, first, degree, ends)
            before = filled
            if degree <= end - begin:
                for k in range(degree):
                    place = first_from(targets, begin, end - begin, indices[first + k])
                    is_there = begin + place < end and targets[begin + place] == indices[first + k]
                    if is_there and not ends[0] <= k < ends[0] + ends[1]:
                        if filled < len(positions):
                            positions[filled], places[filled] = first + k, place
                        filled += 1
            else:
                for place in range(end - begin):
                    k = first_from(indices, first, degree, targets[begin + place])
                    while k < degree and indices[first + k] == targets[begin + place]:
                        if not ends[0] <= k < ends[0] + ends[1]:
                            if filled < len(positions):
                                positions[filled], places[filled] = first + k, place
                            filled += 1
                        k += 1
            counts[i] = filled - before
    return filled
