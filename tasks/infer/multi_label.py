"""Predictions of several labels for each node."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.gnn.objective.label_lists import label_lists
from superworkflow.tasks.lib.gnn.objective.labels import has_label
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.metrics.f1 import top_k

_PIECE = 1 << 14


def multi_label_columns(
    graph: HeteroGraph, shape: NetworkConfig, scores: NDArray[np.float32]
) -> dict[str, pa.ChunkedArray]:
    """Lists of labels, by name of the column.

    Args:
        graph: graph of the nodes.
        shape: configuration of the network.
        scores: scores of each node and label, float32 [nodes, labels].

    Returns:
        `predicted`, labels with a probability of at least 0.5, or else the most probable one; `probability`, theirs;
        `ranked`, for a node with k labels the k most probable; `label`, the node's own.
    """
    names, own = pa.array(shape.head.classes, pa.string()), [list[str]()] * len(scores)
    if has_label(graph, shape.head.label):
        own = label_lists(graph, shape.head.label)
    parts = list(_parts(names, scores, np.array([len(each) for each in own], np.int64)))
    found = {name: pa.chunked_array([part[name] for part in parts]) for name in parts[0]}
    return {**found, "label": pa.chunked_array([pa.array(own, pa.list_(pa.string()))])}


def _parts(names: pa.Array, scores: NDArray[np.float32], counts: NDArray[np.int64]) -> Iterator[dict[str, pa.Array]]:
    for first in range(0, max(1, len(scores)), _PIECE):
        piece = scores[first : first + _PIECE]
        likely = torch.sigmoid(torch.from_numpy(piece)).numpy()
        predicted = likely >= 0.5
        predicted[np.arange(len(piece)), piece.argmax(1)] = True
        values = column(likely[predicted])
        ranked = top_k(piece.astype(np.float64), counts[first : first + _PIECE])
        yield {
            "predicted": _lists(predicted, names.take(column(np.nonzero(predicted)[1]))),
            "probability": _lists(predicted, values),
            "ranked": _lists(ranked, names.take(column(np.nonzero(ranked)[1]))),
        }


def _lists(marked: NDArray[np.bool_], values: pa.Array) -> pa.Array:
    """Lists of values by row, as long as the number of marks in the row."""
    starts = np.zeros(len(marked) + 1, np.int32)
    np.cumsum(marked.sum(1), out=starts[1:])
    return pa.ListArray.from_arrays(column(starts), values)
