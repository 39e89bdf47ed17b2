"""Configuration of the network that the parameters of training describe."""

from __future__ import annotations

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.gnn.features import columns_of, scaling_of, width_of
from superworkflow.tasks.lib.gnn.model.config import ONE_KIND, Head, NetworkConfig, SeedTimes
from superworkflow.tasks.lib.gnn.relations import Relation
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.train import TrainParams


def shape_of(graph: HeteroGraph, head: Head, params: TrainParams) -> NetworkConfig:
    """Configuration of a network on this graph.

    Raises:
        UserError: no edge set starts at the targets, or the model cannot read the graph.
    """
    relations = tuple(
        Relation(number, each.name, each.source, each.target) for number, each in enumerate(graph.edge_sets.values())
    )
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
    return NetworkConfig(
        params.model, params.aggregator, params.layers, params.hidden, params.heads, params.bases, head,
        {name: each.count for name, each in graph.node_sets.items()},
        {name: width_of(graph, name) for name in graph.node_sets}, relations,
        params.weight if params.sums_weights else "", {name: columns_of(graph, name) for name in graph.node_sets},
        {name: found for name in graph.node_sets if (found := scaling_of(graph, name)) is not None},
        params.norm, params.residual, params.jumping_knowledge, params.code,
        SeedTimes(params.seed_time, params.time, params.sampler == "latest", params.sizes, params.seed)
        if params.seed_time else None,
    )  # fmt: skip
