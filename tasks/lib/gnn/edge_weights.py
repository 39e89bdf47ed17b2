"""Edge weights: a feature of edge sets that multiplies messages, or the probability of a draw; degrees by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.gnn.relations import Relation
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.lib.graph.stat_names import is_single

WHERE = "train.weight"


def weights_of(graph: HeteroGraph, relations: Iterable[Relation], name: str) -> dict[int, NDArray[np.float32]]:
    """Weights of the edge sets that have this feature, float32 [edges] by number.

    Args:
        graph: the graph.
        relations: edge sets that are read.
        name: name of the feature.

    Raises:
        UserError: no edge set has the feature, it is not one number for each edge, or a weight is negative or not
            finite.
    """
    found = {}
    for relation in weighted_sets(graph, relations, name):
        with np.errstate(over="ignore"):  # infinite values are refused below
            values = np.ascontiguousarray(graph.edge_feature(relation.name, name), np.float32).reshape(-1)
        check_weights(graph, relation, name, values)
        found[relation.number] = values
    return found


def weighted_sets(
    graph: HeteroGraph, relations: Iterable[Relation], name: str, parameter: str = WHERE
) -> list[Relation]:
    """Edge sets that have the feature that a parameter names.

    Raises:
        UserError: no edge set has it, or it is not one number for each edge.
    """
    found = []
    for relation in relations:
        features = {each.name: each for each in graph.edge_sets[relation.name].features}
        if name not in features:
            continue
        feature = features[name]
        if not is_single(feature):
            where = f"{graph.dataset.uri}, {relation.name}.{name}"
            what = f"a {parameter.rpartition('.')[2]} is one number for each edge"
            raise UserError(what, where=where,
                            value=f"{feature.dtype}{list(feature.shape)}", remedy="Name another feature")  # fmt: skip
        found.append(relation)
    if not found:
        valid = sorted({each.name for edges in graph.edge_sets.values() for each in edges.features})
        raise UserError("edges have no such feature", where=parameter, value=name,
                        remedy=f"They have: {', '.join(valid)[:500] or 'none'}")  # fmt: skip
    return found


def check_weights(
    graph: HeteroGraph, relation: Relation, name: str, weights: NDArray[np.float32],
    position: Callable[[int], int] = int,
) -> None:  # fmt: skip
    """Check weights of all or some edges of a set.

    Args:
        graph, relation, name: the feature.
        weights: float32 [edges].
        position: maps an index of `weights` to a position in the set.

    Raises:
        UserError: a weight is negative or not finite; names the edge.
    """
    fits = np.isfinite(weights) & (weights >= 0)
    if not fits.all():
        place = int(np.flatnonzero(~fits)[0])
        where = f"{graph.dataset.uri}, {relation.name}.{name}, {_ends(graph, relation, position(place))}"
        raise UserError("a weight is not negative, and finite", where=where, value=float(weights[place]),
                        remedy="Correct it, or leave the edge out")  # fmt: skip


def _ends(graph: HeteroGraph, relation: Relation, edge: int) -> str:
    indptr, indices = graph.rows(relation.name)
    source = int(np.searchsorted(indptr, edge, "right")) - 1
    ends = graph.ids(relation.receivers)[source], graph.ids(relation.senders)[int(indices[edge])]
    return f"{ends[0].as_py()} to {ends[1].as_py()}"


def degrees_of(rows: CsrRows, weights: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """Degree of each node, or the sum of its edges' weights, float32 [nodes].

    Args:
        rows: rows of the nodes.
        weights: weights of their edges, float32 [edges].
    """
    counts = np.diff(rows.indptr)
    if weights is None:
        return counts.astype(np.float32)
    return np.bincount(np.repeat(np.arange(len(counts)), counts), weights, len(counts)).astype(np.float32)
