"""Configuration of the network that the parameters of training describe."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.heterograph import WEIGHT
from superworkflow.tasks.heterograph.scaling import fit
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.gnn.edge_features import NONE, Columns, chosen_edge_columns, edge_features_of, shown
from superworkflow.tasks.lib.gnn.features import columns_of, scaling_of, width_of
from superworkflow.tasks.lib.gnn.model.config import ONE_KIND, READS_EDGES, Head, NetworkConfig, SeedTimes
from superworkflow.tasks.lib.gnn.relations import Relation
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.train.params import TrainParams


def shape_of(graph: HeteroGraph, head: Head, params: TrainParams) -> NetworkConfig:
    """Configuration of a network on this graph.

    Raises:
        UserError: no edge set starts at the targets, or the model cannot read the graph.
    """
    relations = relations_of(graph)
    if not any(each.receivers in head.node_sets for each in relations):
        raise UserError(
            "no edge set starts at the labelled nodes, so no messages reach them",
            where=graph.dataset.uri, value=", ".join(head.node_sets),
            remedy="Add the edge set the other way round, as reversed",
        )  # fmt: skip
    if params.model in ONE_KIND and (len(relations) > 1 or len(graph.node_sets) > 1):
        raise UserError(
            f"{params.model} takes a graph of one node set and one edge set", where="train.model", value=params.model,
            remedy="Set train.model=sage, rgcn or rgat",
        )  # fmt: skip
    of_edges = edge_columns(graph, relations, params) if params.model in READS_EDGES else {}
    hidden = head.width if head.relations else params.width()
    return NetworkConfig(
        params.model, params.aggregator, params.layers, hidden, params.heads, params.bases, head,
        {name: each.count for name, each in graph.node_sets.items()},
        {name: width_of(graph, name) for name in graph.node_sets}, relations,
        params.weight if params.sums_weights else "", {name: columns_of(graph, name) for name in graph.node_sets},
        {name: found for name in graph.node_sets if (found := scaling_of(graph, name)) is not None},
        params.norm, *params.connections(bool(head.relations)), params.code,
        SeedTimes(params.seed_time, params.time, params.sampler == "latest", params.sizes, params.seed)
        if params.seed_time else None, of_edges,
        {name: _edge_scaling(graph, name, found, params) for name, found in of_edges.items()},
    )  # fmt: skip


def edge_columns(graph: HeteroGraph, relations: Iterable[Relation], params: TrainParams) -> dict[str, Columns]:
    """Features of edges that the parameters choose, by edge set.

    Raises:
        UserError: see `chosen_edge_columns`.
    """
    return chosen_edge_columns(graph, relations, params.edge_features, (WEIGHT, params.weight, params.time))


def unused_edge_features(graph: HeteroGraph, params: TrainParams) -> list[InputWarning]:
    """Warnings of features of edges, and of different weights, that the network does not read."""
    warnings = []
    found = {} if params.model in READS_EDGES else edge_columns(graph, relations_of(graph), params)
    if found:
        warnings.append(InputWarning(
            f"features of edges are not used: {params.model} has no place for them", graph.dataset.uri, shown(found),
            f"Set train.model to one of {', '.join(READS_EDGES)}, or train.edge_features={NONE}",
        ))  # fmt: skip
    named = {params.weight, params.label, *(name.strip() for name in params.edge_features.split(","))}
    sets = () if WEIGHT in named or params.weight else graph.edge_sets.values()
    for each in sets:
        if not any(feature.name == WEIGHT for feature in each.features):
            continue
        weights = graph.edge_feature(each.name, WEIGHT)
        if len(weights) and (low := weights.min()) < (high := weights.max()):
            warnings.append(InputWarning(
                "weights of edges are not read, so all edges count the same", f"{graph.dataset.uri}, {each.name}",
                f"{low:g} to {high:g}", f"Set train.weight={WEIGHT}, and if weights are far from 1 also "
                "train.model=gcn, which divides by their sums, or train.weighted=draws",
            ))  # fmt: skip
            break
    return warnings


def relations_of(graph: HeteroGraph) -> tuple[Relation, ...]:
    """All edge sets of a graph, as messages flow."""
    return tuple(
        Relation(number, each.name, each.source, each.target) for number, each in enumerate(graph.edge_sets.values())
    )


def _edge_scaling(graph: HeteroGraph, name: str, columns: Columns, params: TrainParams) -> dict[str, Any]:
    """Scaling of the features of an edge set; of a reversed one that of the set that it reverses."""
    values = edge_features_of(graph, graph.edge_sets[name].reversed_of or name, columns, None)
    if not len(values):
        return fit(np.zeros((1, values.shape[1])), NONE, []).document()
    return fit(values, params.edge_scaling, [width for _, width in columns], widens=False).document()
