"""Predictions of several labels for each node."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.label_columns import PIECE, label_columns
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.gnn.objective.label_lists import label_lists
from superworkflow.tasks.lib.gnn.objective.labels import has_label
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph


def multi_label_columns(
    graph: HeteroGraph, shape: NetworkConfig, scores: NDArray[np.float32]
) -> dict[str, pa.ChunkedArray]:
    """Lists of labels, by name of the column: those of `label_columns`, and `label`, the node's own.

    Args:
        graph: graph of the nodes.
        shape: configuration of the network.
        scores: scores of each node and label, float32 [nodes, labels].
    """
    own = [list[str]()] * len(scores)
    if has_label(graph, shape.head.label):
        own = label_lists(graph, shape.head.label)
    pieces = (scores[first : first + PIECE] for first in range(0, max(1, len(scores)), PIECE))
    likely = ((torch.sigmoid(torch.from_numpy(piece)).numpy(), piece) for piece in pieces)
    found = label_columns(shape.head.classes, likely, np.array([len(each) for each in own], np.int64))
    return {**found, "label": pa.chunked_array([pa.array(own, pa.list_(pa.string()))])}
