"""Blocks of features of one scale, and in no more dimensions than there are rows to train on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

Singles = NDArray[np.float32]

DIRECTIONS = 16
"""Values from which on a feature is taken for a vector whose direction matters, as those of words do."""
WIDE, WIDE_COUNTS = 0.0, -1.0
"""In place of a scale: wide blocks, and those of which no value is negative, such as means of counts of words."""
_NEGLIGIBLE = 1e-5


def scales_of(blocks: Sequence[Singles]) -> list[float]:
    """Divisors of narrow blocks: the root of the mean squared length of their rows. See `WIDE` for others."""
    return [
        (WIDE if (block < 0).any() else WIDE_COUNTS) if block.shape[1] >= DIRECTIONS
        else float(np.sqrt(max(np.square(block, dtype=np.float64).sum() / max(len(block), 1), 1e-30)))
        for block in blocks
    ]  # fmt: skip


def scaled(blocks: Sequence[Singles], scales: Sequence[float]) -> Singles:
    """Blocks joined by columns; rows of wide ones have length 1, or 0 where all is 0.

    Of counts and shares the square roots are taken before, so that products of rows are Bhattacharyya's: few frequent
    values do not outweigh all others.
    """
    parts = []
    for given, scale in zip(blocks, scales, strict=True):
        block = np.sign(given) * np.sqrt(np.abs(given)) if scale == WIDE_COUNTS else given
        lengths = np.sqrt(np.square(block, dtype=np.float64).sum(axis=1, keepdims=True))
        by = np.where(lengths > 0, lengths, 1.0) if scale in (WIDE, WIDE_COUNTS) else np.float64(scale)
        parts.append((block / by).astype(np.float32))
    return np.concatenate(parts, axis=1)


def in_row_space(train: Singles, others: Sequence[Singles]) -> list[Singles]:
    """Rows in an orthonormal basis of the rows to train on, where these are fewer than the features.

    A penalised linear classifier has its weights in that space, so that nothing changes but the time it takes.
    """
    if len(train) >= train.shape[1]:
        return [train, *others]
    basis = np.empty((len(train), train.shape[1]))
    kept = basis[: orthonormal(train.astype(np.float64), basis)]
    return [coordinates(rows.astype(np.float64), kept) for rows in (train, *others)]


@nb.njit(cache=True)
def orthonormal(rows: NDArray[np.float64], basis: NDArray[np.float64]) -> Any:
    """Gram and Schmidt's, each row twice: fills `basis` [n, d] from `rows` [n, d]; returns how many vectors it has."""
    kept = 0
    for i in range(len(rows)):
        vector = rows[i].copy()
        before = 0.0
        for d in range(len(vector)):
            before += vector[d] * vector[d]
        for _ in range(2):
            for k in range(kept):
                along = 0.0
                for d in range(len(vector)):
                    along += basis[k, d] * vector[d]
                for d in range(len(vector)):
                    vector[d] -= along * basis[k, d]
        after = 0.0
        for d in range(len(vector)):
            after += vector[d] * vector[d]
        if after > _NEGLIGIBLE * _NEGLIGIBLE * before:
            scale = 1.0 / np.sqrt(after)
            for d in range(len(vector)):
                basis[kept, d] = vector[d] * scale
            kept += 1
    return kept


@nb.njit(cache=True)
def coordinates(rows: NDArray[np.float64], basis: NDArray[np.float64]) -> NDArray[np.float32]:
    """Products [n, k] of rows [n, d] with the vectors of a basis [k, d]."""
    out = np.empty((len(rows), len(basis)), np.float32)
    for i in range(len(rows)):
        for k in range(len(basis)):
            total = 0.0
            for d in range(rows.shape[1]):
                total += rows[i, d] * basis[k, d]
            out[i, k] = np.float32(total)
    return out
