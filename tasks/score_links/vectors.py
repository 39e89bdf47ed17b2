"""Vectors of the nodes of both ends, as stage infer wrote them."""

from __future__ import annotations

import numpy as np

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.graph.integrity import damaged
from superworkflow.tasks.lib.metrics.ranks import Vectors


def read_vectors(predictions: Dataset, name: str, nodes: int) -> Vectors:
    """Vectors of all nodes of a set, float32 [nodes, width].

    Raises:
        UserError: the predictions have none.
        DatasetDamaged: they are not of as many nodes, or not finite.
    """
    if name not in predictions:
        raise UserError(f"the predictions have no {name}: they are of no links", where=predictions.uri,
                        remedy="Give the output of stage infer, of a network that predicts links")  # fmt: skip
    column = predictions.table(name, ["vector"])["vector"].combine_chunks()
    if len(column) != nodes:
        raise damaged(predictions, name, f"{nodes} vectors for as many nodes")
    vectors: Vectors = column.flatten().to_numpy().reshape(nodes, -1)
    if vectors.dtype != np.float32 or not np.isfinite(vectors).all():
        raise damaged(predictions, name, "vectors are finite numbers")
    return vectors
