"""Compiled: draws of a task, for the requests of shards, in the rows that it has.

Slow reference: `PlainSampler` in tests/tasks/sampling.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.lib.subgraphs.draw import DrawScratch
from superworkflow.tasks.sample.induced import find_link, first_from
from superworkflow.tasks.sample.program import LATEST_K, NO_LIMIT, NO_VALUES, RANDOM_WEIGHTED, OpRule, Row, SeedLink
from superworkflow.tasks.sample.row_draws import draw_row


class RowRequests(NamedTuple):
    """Rows that g subgraphs request draws in, for one op.

    Args:
        keys: uint64 [g], state of the op in each subgraph.
        times: int64 [g], latest timestamp of each; empty unless the strategy needs it.
        links: int64 [g, 2], seeds of each; no rows unless edges between them are left out.
        begins: int64 [g + 1]: requests of subgraph g are those from ``begins[g]`` to ``begins[g + 1] - 1``.
        nodes: int64 [n], whose rows.
        draws: int64 [n], paths to each node; empty unless draws are by path.
    """

    keys: NDArray[np.uint64]
    times: NDArray[np.int64]
    links: NDArray[np.int64]
    begins: NDArray[np.int64]
    nodes: NDArray[np.int64]
    draws: NDArray[np.int64]


class RowDraws(NamedTuple):
    """Draws in requested rows, row by row.

    Args:
        counts: int64 [n], edges of each row.
        positions: int64 [room], indices of the edges in the task's rows.
        targets: [room].
        paths: int64 [room], how often each was drawn; empty unless draws are by path.
    """

    counts: NDArray[np.int64]
    positions: NDArray[np.int64]
    targets: NDArray[Any]
    paths: NDArray[np.int64]


class JoinRequests(NamedTuple):
    """Rows in which g subgraphs request all edges to some nodes.

    Args:
        links, begins, nodes: as in `RowRequests`.
        target_begins: int64 [g + 1], as `begins`, of `targets`.
        targets: int64, nodes of each subgraph that edges may lead to, ascending.
    """

    links: NDArray[np.int64]
    begins: NDArray[np.int64]
    nodes: NDArray[np.int64]
    target_begins: NDArray[np.int64]
    targets: NDArray[np.int64]


@nb.njit(nogil=True, cache=True)
def room_for(indptr: Any, low: Any, nodes: Any, draws: Any, size: Any, by_path: Any) -> Any:
    """(entries that draws may take together, largest degree).

    Args:
        indptr: int64, of the rows from node `low` on.
        nodes, draws: see `RowRequests`.
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
def draw_requested(
    graph: Any, low: Any, size: Any, strategy: Any, by_path: Any, requests: Any, most: Any, out: Any
) -> Any:
    """Draw in each requested row, as `kernel.sample` does.

    Args:
        graph: `StackedRows`, from node `low` on.
        size, strategy: of the op.
        by_path: draw for each path.
        requests: `RowRequests`.
        most: largest degree, see `room_for`.

    Writes:
        out: `RowDraws`.

    Returns:
        How many were drawn in all.
    """
    indptr, indices = graph.indptr, graph.indices
    keys, times, links, begins, nodes, draws = requests
    counts, positions, targets, paths = out
    room = min(size, most)
    work = DrawScratch(np.zeros((most >> 6) + 1, np.uint64), np.empty(room, np.int64), np.empty(room, np.int64))
    values = np.int64(0)
    if strategy == RANDOM_WEIGHTED and not len(graph.weights):
        values = np.int64(NO_VALUES)
    filled = np.int64(0)
    for group in range(len(keys)):
        limit = times[group] if strategy == LATEST_K else np.int64(NO_LIMIT)
        rule = OpRule(size, strategy, values, limit, by_path)
        for i in range(begins[group], begins[group + 1]):
            node = nodes[i]
            first = indptr[node - low]
            degree = indptr[node - low + 1] - first
            here = draws[i] if by_path else np.int64(1)
            gap, skip = degree, np.int64(0)
            if len(links):
                gap, skip = find_link(SeedLink(links[group, 0], links[group, 1]), node, indices, first, degree)
            state = mix(keys[group] + np.uint64(node + 1) * GAMMA)
            row = Row(first, degree - skip, gap, skip)
            count = draw_row(positions, paths, filled, row, rule, graph, state, here, work)
            for k in range(filled, filled + count):
                if positions[k] >= gap:
                    positions[k] += skip
                positions[k] += first
                targets[k] = indices[positions[k]]
            counts[i] = count
            filled += count
    return filled


@nb.njit(nogil=True, cache=True)
def join_requested(graph: Any, low: Any, requests: Any, counts: Any, positions: Any, places: Any) -> Any:
    """All edges between nodes of the same subgraph, in the requested rows.

    Args:
        graph: `StackedRows`, from node `low` on.
        requests: `JoinRequests`.

    Writes:
        counts: int64 [n], edges of each row.
        positions, places: int64 [room]: indices of edges in the rows, and of their ends among the subgraph's targets.

    Returns:
        How many there are; where there is no room for them, only `counts` are complete.
    """
    indptr, indices = graph.indptr, graph.indices
    links, begins, nodes, target_begins, targets = requests
    filled = np.int64(0)
    for group in range(len(begins) - 1):
        begin, end = target_begins[group], target_begins[group + 1]
        for i in range(begins[group], begins[group + 1]):
            node = nodes[i]
            first = indptr[node - low]
            degree = indptr[node - low + 1] - first
            gap, skip = degree, np.int64(0)
            if len(links):
                gap, skip = find_link(SeedLink(links[group, 0], links[group, 1]), node, indices, first, degree)
            before = filled
            if degree <= end - begin:  # search the targets for each neighbour
                for k in range(degree):
                    place = first_from(targets, begin, end - begin, indices[first + k])
                    is_there = begin + place < end and targets[begin + place] == indices[first + k]
                    if is_there and not gap <= k < gap + skip:
                        if filled < len(positions):
                            positions[filled], places[filled] = first + k, place
                        filled += 1
            else:  # search the row for each target
                for place in range(end - begin):
                    k = first_from(indices, first, degree, targets[begin + place])
                    while k < degree and indices[first + k] == targets[begin + place]:
                        if not gap <= k < gap + skip:
                            if filled < len(positions):
                                positions[filled], places[filled] = first + k, place
                            filled += 1
                        k += 1
            counts[i] = filled - before
    return filled
