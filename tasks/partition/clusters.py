"""Graphs with too many edges for METIS alone: it divides clusters of their vertices, and its parts are improved after.

Label propagation within bounds (Meyerhenke, Sanders and Schulz, "Partitioning complex networks via size-constrained
clustering", SEA 2014): a vertex takes the label that most of its edges lead to, if what has that label has room. First
each vertex has a label of its own, and what ends with one label is a cluster, a vertex of a smaller graph, which METIS
divides; then parts are the labels, and the same moves across their borders cut less and make them even.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.contract.progress import Progress
from superworkflow.tasks.lib.kernels.prefetch import prefetch
from superworkflow.tasks.partition import MOST_ENTRIES
from superworkflow.tasks.partition.graph import Symmetric
from superworkflow.tasks.partition.metis import bisect

_CLUSTERS_A_PART = 16
"""The least number of clusters of a part: METIS makes parts even by moving them as a whole."""
_SWEEPS, _SETTLED = 6, 0.05
"""Times that vertices are asked for another label; fewer once so small a share of them took one."""
_LOSSES = (1.0, 0.8, 0.5, 0.0)
"""Threshold at which a vertex leaves an overfull part: its edges to the other part, at least, as a share of those to
its own."""
_AHEAD = 16


def divide(
    rows: Symmetric, weights: NDArray[np.int32], parts: int, imbalance: float, each_time: float, seed: int,
    scratch: Path, progress: Progress, most_entries: int = MOST_ENTRIES,
) -> NDArray[np.int32]:  # fmt: skip
    """The part of each vertex, int32 [vertices], numbered by bisection.

    Args:
        rows: the graph.
        weights: of each vertex in each constraint, int32 [vertices, constraints].
        parts: a power of two.
        imbalance: how many times the mean of a constraint a part may have.
        each_time: the same of one bisection.
        seed, scratch: of METIS, see `bisect`.
        progress: for log messages.
        most_entries: of rows that METIS is given as they are.
    """
    if len(rows.adjacency) <= most_entries:
        return bisect(rows.starts, rows.adjacency, rows.weights, weights, parts, each_time, seed, scratch)[0]
    totals = weights.sum(0, dtype=np.int64)
    labels, count = clustered(rows, weights, totals // (parts * _CLUSTERS_A_PART))
    alone = len(weights) - int(np.count_nonzero(np.diff(rows.starts)))  # they are in no cluster, and cost METIS little
    if 2 * (count - alone) > len(weights) - alone or count < parts:  # there are none to be found
        progress.log(f"{count:,} clusters of {len(weights):,}, too many or too few: METIS divides the graph itself")
        return bisect(rows.starts, rows.adjacency, rows.weights, weights, parts, each_time, seed, scratch)[0]
    small, heavy = contracted(rows, weights, labels, count)
    progress.log(f"{count:,} clusters, {len(small.adjacency) // 2:,} pairs of neighbours among them")
    found = divide(small, heavy, parts, imbalance, each_time, seed, scratch, progress, most_entries)[labels]
    bounds = np.maximum(np.floor(totals * imbalance / parts), 1).astype(np.int64)
    even_out(rows, weights, found, parts, bounds)
    return found


def clustered(rows: Symmetric, weights: NDArray[np.int32], bounds: NDArray[np.int64]) -> tuple[NDArray[np.int32], int]:
    """The cluster of each vertex, int32 [vertices], and how many clusters there are.

    Args:
        rows, weights: see `divide`.
        bounds: the most that a cluster of several vertices may have of each constraint, int64 [constraints].
    """
    vertices = len(weights)
    labels, sweep = np.arange(vertices, dtype=np.int32), _Sweep(rows, weights, vertices)
    sweep.loads[:] = weights
    for _ in range(_SWEEPS):
        if sweep(labels, bounds, 1.0) <= _SETTLED * vertices:
            break
    used = np.zeros(vertices, np.int32)
    used[labels] = 1
    numbers = np.cumsum(used, dtype=np.int32)
    return numbers[labels] - np.int32(1), int(numbers[-1])


def contracted(
    rows: Symmetric, weights: NDArray[np.int32], labels: NDArray[np.int32], count: int
) -> tuple[Symmetric, NDArray[np.int32]]:
    """The graph of clusters, whose edges weigh what those between their vertices do, and the clusters' weights.

    Args:
        rows, weights: see `divide`.
        labels: the cluster of each vertex [vertices].
        count: how many there are.
    """
    members = np.argsort(labels, kind="stable").astype(np.int32)
    begins = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=count))]).astype(np.int64)
    starts, sums, touched = np.zeros(count + 1, np.int64), np.zeros(count, np.int64), np.empty(count, np.int32)
    given = rows.starts, rows.adjacency, _weights_of(rows), labels, members, begins, sums, touched, starts
    none = np.empty(0, np.int32)
    contract(*given, none, none)
    np.cumsum(starts, out=starts)
    adjacency, heavy = np.empty(int(starts[-1]), np.int32), np.empty(int(starts[-1]), np.int32)
    contract(*given, adjacency, heavy)
    columns = [np.bincount(labels, weights[:, c], count).astype(np.int32) for c in range(weights.shape[1])]
    return Symmetric(starts, adjacency, heavy), np.stack(columns, axis=1)


def even_out(
    rows: Symmetric, weights: NDArray[np.int32], found: NDArray[np.int32], parts: int, bounds: NDArray[np.int64]
) -> None:
    """Move vertices across the borders of parts, so that fewer edges are cut and no part has more than it may.

    Args:
        rows, weights, parts: see `divide`.
        found: the part of each vertex [vertices], changed. A part that has too much, and no neighbour with room, keeps
            it.
        bounds: the most that a part may have of each constraint, int64 [constraints].
    """
    sweep = _Sweep(rows, weights, parts)
    for c in range(weights.shape[1]):
        sweep.loads[:, c] = np.bincount(found, weights[:, c], parts)
    for least in _LOSSES:
        for _ in range(_SWEEPS):
            if sweep(found, bounds, least) <= _SETTLED * len(found):
                break
        if (sweep.loads <= bounds).all():
            break
    sweep(found, bounds, 1.0)


class _Sweep:
    """Asks each vertex for another label, those with few neighbours first, which have no choice later.

    Args:
        rows, weights: see `divide`.
        labels: how many there may be.

    Attributes:
        loads: what each label has of each constraint, int64 [labels, constraints]; kept up to date.
    """

    def __init__(self, rows: Symmetric, weights: NDArray[np.int32], labels: int):
        self._rows, self._weights = rows, weights
        degrees = np.diff(rows.starts)
        self._order = np.argsort(degrees, kind="stable").astype(np.int32)
        self._sums, self._touched = np.zeros(labels, np.int64), np.empty(min(labels, int(degrees.max())), np.int32)
        self.loads = np.zeros((labels, weights.shape[1]), np.int64)

    def __call__(self, labels: NDArray[np.int32], bounds: NDArray[np.int64], least: float) -> int:
        return int(
            move_labels(
                self._rows.starts, self._rows.adjacency, _weights_of(self._rows), self._weights, self._order, bounds,
                least, labels, self.loads, self._sums, self._touched,
            )
        )  # fmt: skip


def _weights_of(rows: Symmetric) -> NDArray[np.int32]:
    return np.empty(0, np.int32) if rows.weights is None else rows.weights


@nb.njit(nogil=True, cache=True)
def move_labels(
    starts: Any, adjacency: Any, edge_weights: Any, vertex_weights: Any, order: Any, bounds: Any, least: float,
    labels: Any, loads: Any, sums: Any, touched: Any,
) -> int:  # fmt: skip
    """Give each vertex the label that most of its edges lead to and that has room, if it is not its own.

    Args:
        starts, adjacency: rows.
        edge_weights: int32 [entries], all above 0; of length 0 for 1 each.
        vertex_weights: int32 [vertices, constraints], not below 0.
        order: int32, the vertices in the order in which they are asked.
        bounds: int64 [constraints], what a label may have for another vertex to take it.
        least: a vertex whose label has more than it may, and would have less without it, also takes one that fewer
            edges lead to than to its own, but at least this share of them, rounded.
        labels: int32 [vertices], changed.
        loads: int64 [labels, constraints], what each label has; changed.
        sums: int64 [labels], all 0.
        touched: int32, as many as labels that a vertex's neighbours can have.

    Returns:
        How many vertices took another label.
    """
    moved, constraints = 0, len(bounds)
    for i in range(len(order)):
        v = order[i]
        own, count = labels[v], 0
        for e in range(starts[v], starts[v + 1]):
            if e + _AHEAD < len(adjacency):
                prefetch(labels, np.int64(adjacency[e + _AHEAD]))
            label = labels[adjacency[e]]
            if sums[label] == 0:
                touched[count] = label
                count += 1
            sums[label] += edge_weights[e] if len(edge_weights) else 1
        most, best, too_much = np.float64(sums[own]), own, False
        for c in range(constraints):
            too_much |= loads[own, c] > bounds[c] and vertex_weights[v, c] > 0
        if too_much:
            most = least * most - 0.5  # as many as that share is enough, rounded
        for k in range(count):
            label = touched[k]
            if label != own and sums[label] > most:
                fits = True
                for c in range(constraints):
                    fits &= loads[label, c] + vertex_weights[v, c] <= bounds[c]
                if fits:
                    most, best = np.float64(sums[label]), label
        for k in range(count):
            sums[touched[k]] = 0
        if best != own:
            for c in range(constraints):
                loads[own, c] -= vertex_weights[v, c]
                loads[best, c] += vertex_weights[v, c]
            labels[v] = best
            moved += 1
    return moved


@nb.njit(nogil=True, cache=True)
def contract(
    starts: Any, adjacency: Any, edge_weights: Any, labels: Any, members: Any, begins: Any, sums: Any, touched: Any,
    found: Any, out: Any, out_weights: Any,
) -> None:  # fmt: skip
    """Rows of the graph of clusters.

    Args:
        starts, adjacency, edge_weights: as `move_labels` takes them.
        labels: int32 [vertices], the cluster of each vertex.
        members: int32 [vertices], the vertices of each cluster after each other.
        begins: int64 [clusters + 1], where those of each one begin.
        sums: int64 [clusters], all 0; touched: int32 [clusters].
        found: int64 [clusters + 1]; with an empty `out`, ``found[k + 1]`` is set to the neighbours of cluster k; else
            where the entries of each one begin.
        out, out_weights: int32 [entries], filled; or empty.
    """
    for k in range(len(begins) - 1):
        count = 0
        for i in range(begins[k], begins[k + 1]):
            v = members[i]
            for e in range(starts[v], starts[v + 1]):
                if e + _AHEAD < len(adjacency):
                    prefetch(labels, np.int64(adjacency[e + _AHEAD]))
                label = labels[adjacency[e]]
                if label != k:
                    if sums[label] == 0:
                        touched[count] = label
                        count += 1
                    sums[label] += edge_weights[e] if len(edge_weights) else 1
        if len(out):
            for j in range(count):
                out[found[k] + j] = touched[j]
                out_weights[found[k] + j] = sums[touched[j]]
        else:
            found[k + 1] = count
        for j in range(count):
            sums[touched[j]] = 0
