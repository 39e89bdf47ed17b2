"""Datasets of stage aggregate: means of neighbours' features, or GCN's sums, made once for all epochs and trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.graph.integrity import damaged

if TYPE_CHECKING:  # plans and runs read this module, and would import Arrow for it: a sixth of their start
    from superworkflow.tasks.lib.graph.heterograph import HeteroGraph

MEAN, GCN = "mean", "gcn"
"""Forms: means of neighbours, and sums of these and the node itself, divided by the roots of both ends' degrees."""


def sums_of(
    dataset: Dataset, graph: HeteroGraph, edge_set: int, shape: tuple[int, int], form: str = MEAN
) -> NDArray[np.float32]:
    """Means of an edge set, or GCN's sums, float32 [nodes of its source set, values].

    Raises:
        UserError: they are of another graph, or of another form.
        DatasetDamaged: they have another shape.
    """
    made_of = dataset.manifest.inputs.get("graph")
    if made_of is not None and made_of.digest != graph.dataset.digest:
        raise UserError("these are means of another graph's features", where=dataset.uri, value=made_of.digest,
                        remedy="Give the graph that they were made of")  # fmt: skip
    name = sums_file(edge_set, form)
    made = dataset.manifest.params.get("form", MEAN)
    if name not in dataset and made != form:
        raise UserError("neighbours' features are aggregated in another form", where=dataset.uri, value=made,
                        remedy=f"Set aggregate.form={form}")  # fmt: skip
    values: NDArray[np.float32] = dataset.array(name) if name in dataset else np.empty((0, 0), np.float32)
    if values.dtype != np.float32 or values.shape != shape:
        raise damaged(dataset, name, "means have another shape than the graph's sets", list(values.shape))
    return values


def sums_file(edge_set: int, form: str = MEAN) -> str:
    """Name of the file of an edge set's means or sums."""
    return f"{'means' if form == MEAN else form}-{edge_set}.npy"
