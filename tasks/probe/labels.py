"""The labels of seeds: a feature of their node set that has one whole number or text for each node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.heterograph import LABEL, NODE_SET, SPLIT, TIME
from superworkflow.tasks.lib.graph.heterograph import STRING, Feature, HeteroGraph
from superworkflow.tasks.lib.graph.label_feature import label_feature, no_such_label
from superworkflow.tasks.lib.graph.missing_labels import missing
from superworkflow.tasks.lib.graph.schema import read_schema
from superworkflow.tasks.lib.importers.dgl_chunked import is_chunked

WHERE = "probe.label"
_KINDS = "biu"
"""NumPy's kinds of whole numbers and truth values."""


def check_named(label: str, graph: Source | None, labels: Source | None) -> None:
    """Refuse a label that no feature of nodes has the name of, before anything is sampled.

    Args:
        label: SET.FEATURE.
        graph: description of a typed graph; one in DGL's format is not read, as its masks become a feature.
        labels: of an edge list's nodes, where there is no description.

    Raises:
        UserError: names the features that there are.
    """
    if graph is None:
        if labels is None:
            raise UserError("the nodes of an edge list have labels from a file of them alone", where=WHERE,
                            value=label, remedy=f"Give --labels FILE and --label {NODE_SET}.{LABEL}")  # fmt: skip
        names = [f"{NODE_SET}.{each}" for each in (LABEL, SPLIT, TIME)]
    elif is_chunked(text := graph.location.read_text()):
        return
    else:
        node_sets = read_schema(text, graph.uri).node_sets.values()
        names = [f"{nodes.name}.{feature.name}" for nodes in node_sets for feature in nodes.features]
    if label not in names:
        raise no_such_label(label, WHERE, names)


def label_of(graph: HeteroGraph, label: str, seed_set: str) -> Feature:
    """The feature of the seeds that SET.FEATURE names.

    Raises:
        UserError: there is no such feature, it is not of the seeds' node set, or is not one label for each node.
    """
    node_set, feature = label_feature(graph, label, WHERE)
    if node_set != seed_set or feature.is_ragged:
        raise UserError("the label must be one whole number or text for each node that is sampled from", where=WHERE,
                        value=label, remedy=f"Give such a feature of {seed_set}")  # fmt: skip
    return feature


def labels_of(
    graph: HeteroGraph, feature: Feature, node_set: str, nodes: NDArray[Any]
) -> tuple[Any, NDArray[np.bool_]]:
    """Labels of some nodes, and which of the nodes have one; see `tasks.lib.graph.missing_labels`."""
    values = graph.node_feature(node_set, feature.name)
    if feature.dtype != STRING:
        labels = np.asarray(values.reshape(-1)[nodes])
        assert labels.dtype.kind in _KINDS
        return labels.astype(np.int64), ~missing(labels)
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    taken = column.take(pa.array(nodes))
    taken = pc.list_element(taken, 0) if feature.shape else taken
    return np.array(taken.to_pylist(), object), ~missing(taken)
