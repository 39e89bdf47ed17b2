"""Datasets of stage aggregate: means of neighbours' features, made once for all epochs and trials."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.integrity import damaged


def sums_of(dataset: Dataset, graph: HeteroGraph, edge_set: int, shape: tuple[int, int]) -> NDArray[np.float32]:
    """Means of an edge set, float32 [nodes of its source set, values].

    Raises:
        UserError: the means are of another graph.
        DatasetDamaged: they have another shape.
    """
    made_of = dataset.manifest.inputs.get("graph")
    if made_of is not None and made_of.digest != graph.dataset.digest:
        raise UserError("these are means of another graph's features", where=dataset.uri, value=made_of.digest,
                        remedy="Give the graph that they were made of")  # fmt: skip
    name = sums_file(edge_set)
    values: NDArray[np.float32] = dataset.array(name) if name in dataset else np.empty((0, 0), np.float32)
    if values.dtype != np.float32 or values.shape != shape:
        raise damaged(dataset, name, "means have another shape than the graph's sets", list(values.shape))
    return values


def sums_file(edge_set: int) -> str:
    """Name of the file of an edge set's means."""
    return f"means-{edge_set}.npy"
