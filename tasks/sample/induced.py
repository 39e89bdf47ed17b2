"""Compiled: edges between given nodes, in rows that are sorted by target."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.prefetch import prefetch
from superworkflow.tasks.sample.order import firsts_first
from superworkflow.tasks.sample.places import FREE, slot_of

_AHEAD = 8


@nb.njit(nogil=True)
def find_link(links: Any, number: Any, node: Any, indices: Any, low: Any, degree: Any, ends: Any) -> None:
    """(place, count) in a row of the edges that join both seeds, to `ends`."""
    ends[0], ends[1] = degree, 0
    if node != links[number, 0] and node != links[number, 1]:
        return
    wanted = links[number, 1] if node == links[number, 0] else links[number, 0]
    ends[0] = first_from(indices, low, degree, wanted)
    while ends[0] + ends[1] < degree and indices[low + ends[0] + ends[1]] == wanted:
        ends[1] += 1


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
    rows: Any, edge_set: Any, sources: Any, targets: Any, table: Any, orders: Any, bits: Any, out_sources: Any,
    out_targets: Any, out_positions: Any, filled: Any, room: Any, firsts: Any, apart: Any, links: Any, number: Any,
    ends: Any,
) -> Any:  # fmt: skip
    """All edges of one set between nodes of the subgraph, at ``min(degree, members log degree)`` a row.

    Returns:
        The end of what was written, or more than `room` where it does not suffice.
    """
    indptr, indices = rows.indptr, rows.indices
    base, first = edge_set[0], edge_set[1]
    shift = np.uint64(64 - bits)
    table[: 1 << bits] = FREE
    for place in range(len(targets)):
        slot = slot_of(table, shift, targets[place])
        table[slot], orders[slot] = targets[place], place
    for place in range(len(sources)):
        if place + _AHEAD < len(sources):
            prefetch(indptr, base + np.int64(sources[place + _AHEAD]))
        if place + _AHEAD // 2 < len(sources):
            prefetch(indices, indptr[base + np.int64(sources[place + _AHEAD // 2])])
        low = indptr[base + np.int64(sources[place])]
        degree = indptr[base + np.int64(sources[place]) + 1] - low
        if apart:
            find_link(links, number, sources[place], indices, low, degree, ends)
        else:
            ends[0], ends[1] = degree, 0
        steps = 1
        while degree >> steps:
            steps += 1
        begin = filled
        if degree <= len(targets) * steps:
            least = np.int64(firsts)
            for k in range(degree):
                slot = slot_of(table, shift, indices[low + k])
                if table[slot] != FREE and not ends[0] <= k < ends[0] + ends[1]:
                    if filled >= room:
                        return filled + degree
                    out_sources[filled], out_targets[filled], out_positions[filled] = (
                        place,
                        orders[slot],
                        low + k - first,
                    )
                    least = min(least, np.int64(orders[slot]))
                    filled += 1
            if least < firsts:
                firsts_first(out_targets, out_positions, begin, filled, firsts)
        else:
            for target in range(len(targets)):
                k = first_from(indices, low, degree, targets[target])
                while k < degree and indices[low + k] == targets[target]:
                    if not ends[0] <= k < ends[0] + ends[1]:
                        if filled >= room:
                            return filled + degree
                        out_sources[filled], out_targets[filled], out_positions[filled] = place, target, low + k - first
                        filled += 1
                    k += 1
    return filled
