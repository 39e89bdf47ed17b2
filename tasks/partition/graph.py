"""A typed graph as METIS reads it: one set of vertices, symmetric rows, weights of edges, and constraints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.heterograph import LABEL, SPLIT
from superworkflow.tasks.lib.graph.heterograph import STRING, HeteroGraph
from superworkflow.tasks.lib.graph.stat_names import stat_name
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.partition.kernels import count_ends, fill_ends, merge_rows, sort_rows
from superworkflow.tasks.partition.metis import MOST

MOST_CONSTRAINTS = 8
TRAINING, EDGES = "training_nodes", "edges"


class Constraint(NamedTuple):
    """Balance constraint of parts: a name, and the weight of each vertex by node set, int64 [nodes]."""

    name: str
    weights: dict[str, NDArray[np.int64]]

    @property
    def total(self) -> int:
        return sum(int(each.sum()) for each in self.weights.values())


def constraints_of(graph: HeteroGraph) -> list[Constraint]:
    """Nodes of each set, nodes to train on if they are known, and edges, which are where they start; none is empty."""
    zeros = {name: np.zeros(each.count, np.int64) for name, each in graph.node_sets.items()}
    sets = sorted(graph.node_sets.values(), key=lambda each: -each.count)
    found = [
        Constraint(f"nodes.{stat_name(each.name, graph.node_number(each.name))}",
                   {**zeros, each.name: np.ones(each.count, np.int64)})
        for each in sets
    ]  # fmt: skip
    found.append(Constraint(TRAINING, {name: _trained(graph, name) for name in graph.node_sets}))
    owned = {name: values.copy() for name, values in zeros.items()}
    for edges in graph.edge_sets.values():
        owned[edges.source] += np.diff(graph.rows(edges.name).indptr)
    found.append(Constraint(EDGES, owned))
    return [each for each in found if each.total]


def binding(constraints: Sequence[Constraint], parts: int, imbalance: float) -> list[Constraint]:
    """Those that METIS is given: the largest node set, and others that a part may exceed by one item at least."""
    first, *others = constraints
    kept = [each for each in others if each.total * (imbalance - 1) >= parts]
    named = [each for each in kept if not each.name.startswith("nodes.")]
    return [first, *[each for each in kept if each not in named][: MOST_CONSTRAINTS - 1 - len(named)], *named]


def _trained(graph: HeteroGraph, node_set: str) -> NDArray[np.int64]:
    """1 for a node of split train; where no splits are named, for one that has a label."""
    kinds = {each.name: each for each in graph.node_sets[node_set].features}
    for name in (SPLIT, LABEL):
        feature = kinds.get(name)
        if feature is not None and feature.dtype == STRING and not feature.shape:
            column = graph.node_feature(node_set, name)
            column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            chosen = pc.equal(column, b"train") if name == SPLIT else pc.greater(pc.binary_length(column), 0)
            found: NDArray[np.int64] = chosen.to_numpy(zero_copy_only=False).astype(np.int64)
            return found
    return np.zeros(graph.node_sets[node_set].count, np.int64)


class Symmetric(NamedTuple):
    """A symmetric graph: rows int64 [vertices + 1], neighbours int32 [entries], and their weights, None for 1 each."""

    starts: NDArray[np.int64]
    adjacency: NDArray[np.int32]
    weights: NDArray[np.int32] | None


def symmetric(graph: HeteroGraph) -> Symmetric:
    """All node sets, one after the other, and all edges in both directions; those that others reverse are left out.

    Raises:
        UserError: METIS cannot count so much.
    """
    bases, vertices = {}, 0
    for name, nodes in graph.node_sets.items():
        bases[name] = vertices
        vertices += nodes.count
    used = [each for each in graph.edge_sets.values() if each.reversed_of is None]
    if max(vertices, 2 * sum(each.count for each in graph.edge_sets.values())) > MOST:
        raise UserError(
            "the graph is too large for METIS, which counts in 32 bits", where=graph.dataset.uri,
            value=sum(each.count for each in used), remedy="Set partition.method=contiguous",
        )  # fmt: skip
    starts = np.zeros(vertices + 1, np.int64)
    given: list[tuple[Any, Any, int, int]] = []
    for each in used:
        indptr, indices = map(read_only, graph.rows(each.name))
        given.append((indptr, indices, bases[each.source], bases[each.target]))
        count_ends(indptr, indices, bases[each.source], bases[each.target], starts)
    np.cumsum(starts, out=starts)
    adjacency, cursors = np.empty(int(starts[-1]), np.int32), starts[:-1].copy()
    for indptr, indices, source, target in given:
        fill_ends(indptr, indices, source, target, cursors, adjacency)
    merged = np.empty(vertices + 1, np.int64)
    sort_rows(starts, adjacency, merged)
    weights = np.empty(int(merged[-1]), np.int32)
    largest = merge_rows(starts, adjacency, weights)
    adjacency.resize(int(merged[-1]), refcheck=False)  # gives the rest of the memory back
    same = largest <= 1 or not len(weights) or int(weights.min()) == largest
    return Symmetric(merged, adjacency, None if same else weights)
