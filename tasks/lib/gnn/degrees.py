"""Degrees of nodes, as GCN divides by them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.graph.heterograph import CsrRows


def degrees_of(rows: CsrRows, weights: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """Degree of each node, or the sum of its edges' weights, float32 [nodes].

    Args:
        rows: rows of the nodes.
        weights: weights of their edges, float32 [edges].
    """
    counts = np.diff(rows.indptr)
    if weights is None:
        return counts.astype(np.float32)
    return np.bincount(np.repeat(np.arange(len(counts)), counts), weights, len(counts)).astype(np.float32)
