"""Choice of the features of nodes that a network reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from superworkflow.tasks.heterograph.column_doubts import SAMPLE, ColumnDoubt, chosen_columns, doubt_of
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.graph.dtypes import STRING
from superworkflow.tasks.lib.graph.heterograph import Feature, HeteroGraph

NO_FEATURES = frozenset({"split", "train_mask", "val_mask", "test_mask"})


@dataclass(frozen=True)
class ChosenColumns:
    """Features of each node set that its matrix is made of, by name, and warnings about others."""

    features: Mapping[str, tuple[Feature, ...]]
    warnings: tuple[InputWarning, ...]


def learned_columns(graph: HeteroGraph, network: NetworkConfig) -> ChosenColumns:
    """The columns of a network, as far as the graph has them."""
    names = {name: {column for column, _ in network.columns.get(name, ())} for name in graph.node_sets}
    return ChosenColumns({
        name: tuple(each for each in _candidates(graph, name) if each.name in names[name]) for name in graph.node_sets
    }, ())  # fmt: skip


def features_among_columns(graph: HeteroGraph, label: str, take: str, leave_out: str) -> ChosenColumns:
    """The columns that are features.

    Args:
        graph: the graph of a schema.
        label: SET.FEATURE of the label; empty for none.
        take: names of columns that are taken whatever they look like, as SET.FEATURE, with commas between them.
        leave_out: names of columns that are no features, in the same way.

    Raises:
        UserError: there is no column that a parameter names.
    """
    names = [f"{name}.{each.name}" for name in graph.node_sets for each in _candidates(graph, name)]
    taken = chosen_columns(take, names, "heterograph.take")
    left = chosen_columns(leave_out, names, "heterograph.leave_out") | {label}
    found: dict[str, tuple[Feature, ...]] = {}
    warnings: list[InputWarning] = []
    for node_set in graph.node_sets:
        kept = []
        for feature in _candidates(graph, node_set):
            name = f"{node_set}.{feature.name}"
            if name in left or (feature.name in NO_FEATURES and name not in taken):
                continue
            doubt = None if name in taken else _doubt(graph, node_set, feature)
            if doubt is not None:
                warnings.append(doubt.warning(name, "schema"))
            if doubt is None or doubt.is_read:
                kept.append(feature)
        found[node_set] = tuple(kept)
    return ChosenColumns(found, tuple(warnings))


def _candidates(graph: HeteroGraph, node_set: str) -> Iterator[Feature]:
    features = graph.node_sets[node_set].features
    return (each for each in features if each.dtype != STRING and not each.is_ragged and each.width)


def _doubt(graph: HeteroGraph, node_set: str, feature: Feature) -> ColumnDoubt | None:
    """The doubt about a single value: by a sample, and by all values where these decide."""
    if feature.width > 1 or feature.dtype == "bool":
        return None
    values = np.array(graph.node_feature(node_set, feature.name)).reshape(-1)
    doubt = doubt_of(feature.name, values[:: -(-len(values) // SAMPLE) or 1])
    return doubt_of(feature.name, values) if doubt is not None and doubt.by_difference else doubt
