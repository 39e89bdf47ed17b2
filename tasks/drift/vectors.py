"""Two sets of vectors of the same nodes, of which only relations between nodes mean something."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.drift import QUERIES_AT_ONCE, DriftParams

Vectors = NDArray[np.float32]


def compare_vectors(now: Vectors, before: Vectors, params: DriftParams) -> dict[str, float]:
    """Figures of two sets of vectors; see `tasks.drift`.

    Args:
        now: `[n, d]`, in a random order; zeros for a node that has none.
        before: `[n, e]`, of the same nodes.
        params: how many neighbours, and of how many nodes.

    Returns:
        `neighbours_changed`, and `cosine_distance` where both have as many dimensions; none with fewer than two nodes.
    """
    both = np.any(now != 0, axis=1) & np.any(before != 0, axis=1)
    now, before = _unit(now[both]), _unit(before[both])
    if len(now) < 2:
        return {}
    figures = {"neighbours_changed": neighbours_changed(now, before, params.queries, params.neighbours)}
    if now.shape == before.shape:
        figures["cosine_distance"] = cosine_distance(now, before)
    return figures


def neighbours_changed(now: Vectors, before: Vectors, queries: int, neighbours: int) -> float:
    """Mean share of new nearest neighbours of the first `queries` nodes; vectors have unit length."""
    count, kept, queried = min(neighbours, len(now) - 1), 0, min(queries, len(now))
    for begin in range(0, queried, QUERIES_AT_ONCE):
        end = min(begin + QUERIES_AT_ONCE, queried)
        one, two = (_nearest(each, begin, end, count) for each in (now, before))
        kept += int((one[:, :, None] == two[:, None, :]).sum())
    return 1 - kept / (queried * count)


def _nearest(vectors: Vectors, begin: int, end: int, count: int) -> NDArray[np.int64]:
    """The nodes with the largest cosine to each of some nodes, themselves left out, in any order."""
    cosines = vectors[begin:end] @ vectors.T
    cosines[np.arange(end - begin), np.arange(begin, end)] = -np.inf
    nearest: NDArray[np.int64] = np.argpartition(cosines, -count, axis=1)[:, -count:]
    return nearest


def cosine_distance(now: Vectors, before: Vectors) -> float:
    """1 less the mean cosine after the orthogonal map of the earlier vectors; of unit vectors, in float64."""
    later, earlier = now.astype(np.float64), before.astype(np.float64)
    left, _, right = np.linalg.svd(earlier.T @ later)
    return float(1 - ((earlier @ (left @ right)) * later).sum(axis=1).mean())


def _unit(vectors: Vectors) -> Vectors:
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit
