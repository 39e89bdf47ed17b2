"""Compiled loops that make the arcs of intervals even, and rows of a graph whose vertices are numbered anew."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.lib.subgraphs.draw import sort_part

FORWARD, BACK = 0, 1
"""Ways of arcs, as gathers read them."""
ARCS, OTHER = 0, 1
"""Measures of an interval: arcs that its gathers read forwards; and those that they read backwards, or, of a symmetric
graph, where these are as many, arcs from other intervals."""
_PARTNERS, _TRIED, _MISSED, _PASSES = 8, 16, 256, 8
"""Most intervals with which one exchanges vertices in a round, light vertices that are tried for a heavy one, heavy
ones that are tried in vain, and multiples of the graph's size that all rounds read."""


@nb.njit(nogil=True, cache=True)
def count_arcs(starts: NDArray[np.int64], ends: NDArray[Any], counts: NDArray[np.int64]) -> bool:
    """Count the arcs of each vertex both ways.

    Args:
        starts, ends: rows: senders by receiver.
        counts: zeros [vertices, 2], filled with the arcs that begin a row, and those that end there.

    Returns:
        True if the graph is symmetric: each arc is there as often as its reverse, by sums of 64-bit hashes.
    """
    difference = np.uint64(0)
    for v in range(len(starts) - 1):
        counts[v, FORWARD] = starts[v + 1] - starts[v]
        for e in range(starts[v], starts[v + 1]):
            u = np.int64(ends[e])
            counts[u, BACK] += 1
            difference += _arc(v, u) - _arc(u, v)
    return bool(difference == np.uint64(0))


@nb.njit(nogil=True)
def _arc(one: Any, other: Any) -> Any:
    return mix(mix(np.uint64(one + 1) * GAMMA) + np.uint64(other + 1) * GAMMA)


@nb.njit(nogil=True, cache=True)
def loads_of(
    starts: NDArray[np.int64], ends: NDArray[Any], counts: NDArray[np.int64], labels: NDArray[np.int32],
    crossing: bool, loads: NDArray[np.int64],
) -> None:  # fmt: skip
    """Count the arcs of each interval, by measure.

    Args:
        starts, ends, counts: see `count_arcs`.
        labels: interval of each vertex [vertices].
        crossing: the second measure are arcs from other intervals; the graph is symmetric then.
        loads: zeros [intervals, 2], filled.
    """
    for v in range(len(labels)):
        own = labels[v]
        loads[own, ARCS] += counts[v, FORWARD]
        if crossing:
            for e in range(starts[v], starts[v + 1]):
                loads[own, OTHER] += labels[ends[e]] != own
        else:
            loads[own, OTHER] += counts[v, BACK]


@nb.njit(nogil=True)
def _leave(starts: Any, ends: Any, labels: Any, v: Any, one: Any, other: Any) -> Any:
    """Crossing arcs that two intervals get, fewer below 0, when a vertex moves from the one to the other."""
    of_one = of_other = arcs = 0
    for e in range(starts[v], starts[v + 1]):
        u = ends[e]
        if u != v:
            arcs += 1
            of_one += labels[u] == one
            of_other += labels[u] == other
    return 2 * of_one - arcs, arcs - 2 * of_other


@nb.njit(nogil=True)
def _by_measure(
    starts: Any, ends: Any, counts: Any, labels: Any, members: Any, own: Any, crosses: Any, measure: Any, down: Any
) -> Any:  # fmt: skip
    """Places of vertices of an interval by what each has of a measure, and these numbers."""
    found = np.empty(len(members), np.int64)
    for i in range(len(members)):
        v = members[i]
        found[i] = -_leave(starts, ends, labels, v, own, -1)[0] if crosses else counts[v, measure]
    order = np.argsort(-found if down else found, kind="mergesort")
    return order, found[order]


@nb.njit(nogil=True)
def _exchange(
    starts: Any, ends: Any, counts: Any, bounds: Any, order: Any, labels: Any, crossing: Any, loads: Any,
    scales: Any, measure: Any, over: Any, under: Any,
) -> Any:  # fmt: skip
    """Exchange heavy vertices of an interval for light ones of another, where this makes all measures more even.

    Returns:
        Vertices of each that moved, and how many vertices and arcs were read.
    """
    (count, measures), crosses = loads.shape, crossing and measure == OTHER
    mine, yours = order[bounds[over] : bounds[over + 1]], order[bounds[under] : bounds[under + 1]]
    heavy, much = _by_measure(starts, ends, counts, labels, mine, over, crosses, measure, True)
    light, little = _by_measure(starts, ends, counts, labels, yours, under, crosses, measure, False)
    totals, changes = np.empty(measures), np.zeros((measures, 2), np.int64)
    for m in range(measures):
        totals[m] = loads[:, m].sum()
    i = j = moved = missed = 0
    read = len(mine) + len(yours)
    if crosses:
        read += loads[over, ARCS] + loads[under, ARCS]
    while i < len(heavy) and j < len(light) and much[i] > little[j] and missed < _MISSED:
        if loads[over, measure] * count <= totals[measure] or loads[under, measure] * count >= totals[measure]:
            break
        if much[i] - little[j] >= loads[over, measure] - loads[under, measure]:
            i += 1
            continue
        u, taken, of_over, of_under = mine[heavy[i]], False, 0, 0
        if crossing:
            of_over, of_under = _leave(starts, ends, labels, u, over, under)
            read += counts[u, FORWARD]
        for k in range(j, min(j + _TRIED, len(light))):
            v = yours[light[k]]
            read += 1
            for m in range(measures):
                changes[m, 0] = counts[v, m] - counts[u, m]
                changes[m, 1] = -changes[m, 0]
            if crossing:
                labels[u] = under
                more_under, more_over = _leave(starts, ends, labels, v, under, over)
                labels[u] = over
                read += counts[v, FORWARD]
                changes[OTHER, 0], changes[OTHER, 1] = of_over + more_over, of_under + more_under
            better = 0.0
            for m in range(measures):
                a, b, da, db = np.float64(loads[over, m]), np.float64(loads[under, m]), changes[m, 0], changes[m, 1]
                total = totals[m] + da + db
                squares = da * (2 * a + da) + db * (2 * b + db)
                better += scales[m] * (squares - (total * total - totals[m] * totals[m]) / count)
            if better < 0:
                for m in range(measures):
                    loads[over, m] += changes[m, 0]
                    loads[under, m] += changes[m, 1]
                    totals[m] += changes[m, 0] + changes[m, 1]
                mine[heavy[i]], yours[light[k]] = v, u
                labels[u], labels[v] = under, over
                light[j], light[k] = light[k], light[j]
                little[j], little[k] = little[k], little[j]
                taken = True
                break
        if taken:
            moved, missed = moved + 1, 0
            j += 1
        else:
            missed += 1
        i += 1
    return moved, read


@nb.njit(nogil=True, cache=True)
def even_out(
    starts: NDArray[np.int64], ends: NDArray[Any], counts: NDArray[np.int64], bounds: NDArray[np.int64],
    order: NDArray[np.int32], labels: NDArray[np.int32], crossing: bool, loads: NDArray[np.int64], limit: float,
) -> int:  # fmt: skip
    """Exchange vertices between intervals until each has the mean of each measure, no exchange helps, or it took long.

    The interval that is farthest from the mean exchanges vertices with those that are on the other side of it: the
    heaviest for the lightest, so that few move. An exchange is made if it lessens the sum of the variances of all
    measures, each over the square of its mean.

    Args:
        starts, ends, counts: see `count_arcs`.
        bounds: first place of each interval in `order`, and the last one's end [intervals + 1].
        order: vertices [places], changed.
        labels: interval of each vertex [vertices], changed.
        crossing, loads: see `loads_of`; the latter changed.
        limit: how far from the mean an interval may be, as a share of it.

    Returns:
        How many vertices moved.
    """
    count, measures = loads.shape
    over, scales = np.zeros((count, measures), np.bool_), np.empty(measures)
    for m in range(measures):
        scales[m] = 1 / max(1.0, loads[:, m].mean()) ** 2
    moved = read = 0
    while read < _PASSES * (len(order) + len(ends)):
        farthest, one, measure = limit, -1, 0
        for m in range(measures):
            mean = loads[:, m].mean()
            for i in range(count):
                away = abs(loads[i, m] - mean) / max(1.0, mean)
                if away > farthest and not over[i, m]:
                    farthest, one, measure = away, i, m
        if one < 0:
            break
        mean, found = loads[:, measure].mean(), 0
        read += count * measures
        heavy = loads[one, measure] > mean
        others = np.argsort(loads[:, measure] if heavy else -loads[:, measure], kind="mergesort")
        for other in others[:_PARTNERS]:
            if other != one and (loads[other, measure] < mean) == heavy:
                a, b = (one, other) if heavy else (other, one)
                found, more = _exchange(
                    starts, ends, counts, bounds, order, labels, crossing, loads, scales, measure, a, b
                )
                read += more
                if found:
                    over[other] = False
                    break
        over[one] = False
        over[one, measure] = not found
        moved += 2 * found
    return moved


@nb.njit(nogil=True, cache=True)
def rows_by_position(
    starts: NDArray[np.int64], ends: NDArray[Any], vertices: NDArray[np.int32], positions: NDArray[np.int32],
    begins: NDArray[np.int64], out: NDArray[np.int32],
) -> None:  # fmt: skip
    """Rows of some vertices, whose ends are positions, ascending.

    Args:
        starts, ends: rows of all vertices.
        vertices: the vertices [r].
        positions: of all vertices.
        begins: offsets of their rows in `out` [r + 1].
        out: filled.
    """
    for i in range(len(vertices)):
        v, begin = vertices[i], begins[i]
        for e in range(starts[v], starts[v + 1]):
            out[begin + e - starts[v]] = positions[ends[e]]
        sort_part(out, begin, begins[i + 1] - begin)
