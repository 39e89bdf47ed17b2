"""Shortest paths from one node: the sum of weights along the shortest path, infinite where there is none.

With the scheduler priority, vertices near the source are updated first, as Δ-stepping does (Meyer and Sanders, 2003).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from superworkflow.tasks.lib.vertex.program import ProgramParams, Sync, VertexProgram


class SsspParams(ProgramParams):
    """Parameters of single-source shortest paths."""

    scheduler: Literal["sweep", "fifo", "priority"] = Field(
        default="priority", description="As of every vertex program."
    )
    source: str = Field(
        default="",
        coerce_numbers_to_str=True,
        description="Node from which distances are measured, as the edge list has it.",
    )


def init(scope: Any, params: Any) -> None:
    """Only the source is reached."""
    scope.distance = np.inf
    if scope.vertex == params.source:
        scope.distance = 0.0
        scope.signal(scope)
        for i in range(scope.out_degree):
            scope.signal(scope.neighbour(i), 1.0 / (1.0 + scope.weight(i)))


def update(scope: Any, params: Any) -> float:
    """The shortest way over a neighbour; those behind out-edges that it makes nearer are next."""
    nearest = scope.distance
    for i in range(scope.in_degree):
        nearest = min(nearest, scope.in_neighbour(i).distance + scope.in_weight(i))
    changed = nearest < scope.distance
    scope.distance = nearest
    for i in range(scope.out_degree):
        other = scope.neighbour(i)
        if nearest + scope.weight(i) < other.distance:
            scope.signal(other, 1.0 / (1.0 + nearest + scope.weight(i)))
    return 1.0 if changed else 0.0


def is_reached(scope: Any, params: Any) -> float:
    """1 for a vertex to which there is a path."""
    return 1.0 if scope.distance < np.inf else 0.0


def restart(values: Mapping[str, Any], earlier: Any) -> None:
    """Earlier distances, but of vertices whose shortest path may have led over an edge that is gone or longer."""
    import scipy.sparse as sp
    from scipy.sparse.csgraph import breadth_first_order

    distance, rows, heads = earlier.fields["distance"], earlier.rows, earlier.indices
    weights = np.ones(len(heads), np.float32) if earlier.weights is None else earlier.weights
    shortest = np.isfinite(distance[rows]) & (distance[rows] + weights == distance[heads])
    size = len(distance)
    first = np.unique(heads[shortest & earlier.lost])
    tails = np.concatenate([rows[shortest], np.full(len(first), size)])
    ends = np.concatenate([heads[shortest], first])
    tree = sp.csr_array((np.ones(len(ends), np.int8), (tails, ends)), shape=(size + 1, size + 1))
    doubtful = np.zeros(size + 1, bool)
    doubtful[breadth_first_order(tree, size, return_predecessors=False)] = True
    there = earlier.number >= 0
    stays, reset = (earlier.number[there & (doubtful[:size] == each)] for each in (False, True))
    values["distance"][stays] = distance[there & ~doubtful[:size]]
    values["distance"][reset] = np.inf
    earlier.changed[reset] = True


PROGRAM = VertexProgram(
    name="sssp", fields={"distance": "float64"}, init=init, update=update, params=SsspParams, nodes=("source",),
    syncs={"reached": Sync(is_reached, every=0)}, restart=restart,
    help="shortest distance of each node from one node",
)  # fmt: skip
