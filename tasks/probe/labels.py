"""The labels of seeds: a feature of their node set that has one whole number or text for each node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.graph.dtypes import FLOATS
from superworkflow.tasks.lib.graph.heterograph import STRING, Feature, HeteroGraph
from superworkflow.tasks.lib.graph.missing_labels import missing

WHERE = "probe.label"
_KINDS = "biu"
"""NumPy's kinds of whole numbers and truth values."""


def label_of(graph: HeteroGraph, text: str, seed_set: str) -> Feature:
    """The feature that SET.FEATURE names; names may hold dots themselves.

    Raises:
        UserError: there is no such feature, it is not of the seeds' node set, or is no label.
    """
    fits = [name for name in graph.node_sets if text.startswith(f"{name}.")]
    found = [
        (name, feature) for name in fits for feature in graph.node_sets[name].features
        if text == f"{name}.{feature.name}"
    ]  # fmt: skip
    if not found:
        valid = ", ".join(f"{seed_set}.{feature.name}" for feature in graph.node_sets[seed_set].features)
        raise UserError("the graph has no such feature of nodes", where=WHERE, value=text,
                        remedy=f"Features of the seeds: {valid or 'none'}")  # fmt: skip
    node_set, feature = found[0]
    if node_set != seed_set:
        raise UserError("a label is a feature of the node set that is sampled from", where=WHERE, value=text,
                        remedy=f"Give a feature of {seed_set}")  # fmt: skip
    if feature.is_ragged or feature.width != 1 or feature.dtype in FLOATS:
        kind = f"{text}: {feature.dtype}{list(feature.shape)}"
        raise UserError("a label is one whole number or text for each node", where=WHERE, value=kind,
                        remedy="Give another feature")  # fmt: skip
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
