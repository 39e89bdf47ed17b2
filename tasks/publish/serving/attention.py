"""Sums over the edges of each receiver in NumPy, plain and weighted by a softmax."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
_SLOPE = 0.2


def reduced(operation: np.ufunc, values: Floats, starts: NDArray[np.int64], empty: float = 0.0) -> Floats:
    """Values [edges, width] reduced over the edges of each receiver, [receivers, width]; `empty` where it has none."""
    out = np.full((len(starts) - 1, values.shape[1]), empty, np.float32)
    has = np.diff(starts) > 0
    if has.any():
        out[has] = operation.reduceat(values, starts[:-1][has], axis=0)
    return out


def attended(
    values: Floats, scores: Floats, starts: NDArray[np.int64], own: tuple[Floats, Floats] | None = None
) -> Floats:
    """Sums of the edges' values weighted by a softmax of their scores, [receivers, heads x width].

    Args:
        values, scores: of the edges, [edges, heads, width] and [edges, heads].
        starts: offsets of the receivers' edges, int64 [receivers + 1].
        own: values and scores of the receivers themselves, as of one more edge of each.
    """
    counts, (_, heads, width) = np.diff(starts), values.shape
    largest = reduced(np.maximum, scores, starts, -np.inf)
    if own is not None:
        largest = np.maximum(largest, own[1])
    shares = np.exp(scores - np.repeat(largest, counts, axis=0))
    total = reduced(np.add, shares, starts)
    summed = reduced(np.add, (values * shares[:, :, None]).reshape(-1, heads * width), starts)
    summed = summed.reshape(-1, heads, width)
    if own is not None:
        share: Floats = np.exp(own[1] - largest)
        total += share
        summed += own[0] * share[:, :, None]
    found = np.asarray(summed / np.maximum(total, np.float32(1e-30))[:, :, None], np.float32)
    return found.reshape(-1, heads * width)


def by_head(rows: Floats, like: Floats) -> Floats:
    """Rows [nodes, heads x width] as [nodes, heads, width], where `like` is [heads, width]."""
    return rows.reshape(-1, *like.shape)


def leaky(values: Floats) -> Floats:
    """ReLU whose slope below 0 is 0.2."""
    return np.where(values > 0, values, np.float32(_SLOPE) * values)
