"""Compiled: edges between given nodes, in rows that are sorted by target."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.prefetch import prefetch
from superworkflow.tasks.sample.order import firsts_first
from superworkflow.tasks.sample.places import FREE, bits_for, slot_of

_AHEAD = 8


@nb.njit(nogil=True)
def find_link(link: Any, node: Any, indices: Any, low: Any, degree: Any) -> Any:
    """(place, count) in a node's row of the edges that join both seeds; (degree, 0) where there are none."""
    if node != link.source and node != link.target:
        return degree, np.int64(0)
    wanted = link.target if node == link.source else link.source
    place, count = first_from(indices, low, degree, wanted), np.int64(0)
    while place + count < degree and indices[low + place + count] == wanted:
        count += 1
    return place, count


@nb.njit(nogil=True)
def first_from(indices: Any, low: Any, degree: Any, wanted: Any) -> Any:
    """The first place in a row whose entry is not below `wanted`."""
    begin, end = np.int64(0), degree
    while begin < end:
        middle = (begin + end) >> 1
        if indices[low + middle] < wanted:
            begin = middle + 1
        else:
            end = middle
    return begin


@nb.njit(nogil=True)
def induced(
    graph: Any, edge_set: Any, sources: Any, targets: Any, link: Any, table: Any, places: Any, out: Any, filled: Any,
    room: Any, firsts: Any,
) -> Any:  # fmt: skip
    """All edges of one set between nodes of the subgraph, at ``min(degree, members log degree)`` a row.

    Args:
        graph: `StackedRows`; edge_set: its row of `Program.edges`.
        sources, targets: nodes of the subgraph that edges may start from and lead to.
        link: `SeedLink`.
        table: of 2**`bits_for` slots at least, scratch; places: int32, of the nodes in it, scratch.
        firsts: seeds among the targets.

    Writes:
        out: `EdgeColumns`, from `filled` to `room` - 1.

    Returns:
        The end of what was written, or more than `room` where it does not suffice.
    """
    indptr, indices = graph.indptr, graph.indices
    out_sources, out_targets, out_positions = out
    base, first = edge_set[0], edge_set[1]
    bits = bits_for(len(targets))
    shift = np.uint64(64 - bits)
    table[: 1 << bits] = FREE
    for place in range(len(targets)):
        slot = slot_of(table, shift, targets[place])
        table[slot], places[slot] = targets[place], place
    for place in range(len(sources)):
        if place + _AHEAD < len(sources):
            prefetch(indptr, base + np.int64(sources[place + _AHEAD]))
        if place + _AHEAD // 2 < len(sources):
            prefetch(indices, indptr[base + np.int64(sources[place + _AHEAD // 2])])
        low = indptr[base + np.int64(sources[place])]
        degree = indptr[base + np.int64(sources[place]) + 1] - low
        gap, skip = find_link(link, sources[place], indices, low, degree)
        steps = 1
        while degree >> steps:
            steps += 1
        begin = filled
        if degree <= len(targets) * steps:  # look up each neighbour among the targets
            least = np.int64(firsts)
            for k in range(degree):
                slot = slot_of(table, shift, indices[low + k])
                if table[slot] != FREE and not gap <= k < gap + skip:
                    if filled >= room:
                        return filled + degree
                    out_sources[filled], out_targets[filled] = place, places[slot]
                    out_positions[filled] = low + k - first
                    least = min(least, np.int64(places[slot]))
                    filled += 1
            if least < firsts:
                firsts_first(out_targets, out_positions, begin, filled, firsts)
        else:  # search the row for each target
            for target in range(len(targets)):
                k = first_from(indices, low, degree, targets[target])
                while k < degree and indices[low + k] == targets[target]:
                    if not gap <= k < gap + skip:
                        if filled >= room:
                            return filled + degree
                        out_sources[filled], out_targets[filled] = place, target
                        out_positions[filled] = low + k - first
                        filled += 1
                    k += 1
    return filled
