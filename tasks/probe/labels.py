"""The labels of seeds: a feature of their node set that has one whole number or text for each node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.graph.heterograph import STRING, Feature, HeteroGraph
from superworkflow.tasks.lib.graph.label_feature import label_feature
from superworkflow.tasks.lib.graph.missing_labels import missing

WHERE = "probe.label"
_KINDS = "biu"
"""NumPy's kinds of whole numbers and truth values."""


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
