"""Graph, features and precomputed sums that training and inference read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.gnn.edge_features import edge_features_of
from superworkflow.tasks.lib.gnn.edge_weights import degrees_of, weights_of
from superworkflow.tasks.lib.gnn.features import features_of
from superworkflow.tasks.lib.gnn.learned_features import learned_features
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.gnn.model.network import NetworkInputs
from superworkflow.tasks.lib.gnn.precomputed_means import sums_of
from superworkflow.tasks.lib.gnn.sampler.kernels import sum_edges
from superworkflow.tasks.lib.gnn.sampler.weighted_kernels import sum_weighted
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.lib.kernels.arrays import read_only


@dataclass(frozen=True)
class Data:
    """Inputs of a network from a whole graph: rows by number of the edge set, and `NetworkInputs`."""

    rows: Mapping[int, CsrRows]
    inputs: NetworkInputs


def data_of(graph: HeteroGraph, shape: NetworkConfig, sums: Dataset | None, sums_outermost: bool) -> Data:
    """Inputs of a network.

    Args:
        graph: the graph.
        shape: configuration of the network.
        sums: dataset of stage aggregate, if the first layer reads it.
        sums_outermost: compute the sums that GCN's first layer reads.

    Raises:
        UserError: a feature is not a finite number, or the sums are of another graph.
    """
    levels = shape.levels()
    rows = {each.number: graph.rows(each.name) for each in levels[0].relations}
    features = {}
    for name in levels[0].senders:
        values = features_of(graph, name)
        if values is not None:
            features[name] = learned_features(graph, name, shape, values)
    weights = weights_of(graph, levels[0].relations, shape.weight) if shape.weight else {}
    degrees = None
    precomputed: dict[int, NDArray[np.float32]] = {}
    if shape.model == "gcn":
        (number,) = rows
        degrees = degrees_of(rows[number], weights.get(number))
        if sums_outermost and features:
            scaled = features[shape.head.node_sets[0]] / np.sqrt(degrees + 1)[:, None]
            precomputed[number] = np.empty_like(scaled)
            starts, indices = map(read_only, rows[number])
            if weights:
                sum_weighted(read_only(scaled), starts, indices, read_only(weights[number]), precomputed[number])
            else:
                sum_edges(read_only(scaled), starts, indices, precomputed[number])
    if sums is not None:
        for each in levels[0].relations:
            if each.senders in features:
                size = shape.nodes[each.receivers], shape.widths[each.senders]
                precomputed[each.number] = sums_of(sums, graph, each.number, size)
    of_edges = {
        each.number: edge_features_of(graph, each.name, columns, shape.edge_scaling.get(each.name))
        for each in levels[0].relations if (columns := shape.edge_columns.get(each.name))
    }  # fmt: skip
    return Data(rows, NetworkInputs(features, degrees, precomputed or None, weights, edge_features=of_edges))
