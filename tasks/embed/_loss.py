"""The objective of a sample of centres, which the kernel reports."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from superworkflow.tasks.embed.blocks import BlockBounds, Integers
from superworkflow.tasks.embed.tables import EmbeddingTables
from superworkflow.tasks.lib.kernels.borrow import borrow

njit: Any = numba.njit  # untyped: the annotations here are those of the compiled function
_FLAGS = {"contract", "reassoc", "nsz", "arcp"}
_EVERY = 4
"""Centres for each one whose terms are computed: those of a walk are much alike."""
_FULL = 1e200


@njit(inline="always")
def _score(table: Any, row: int, other: Any, other_row: int) -> np.float32:
    total = np.float32(0)
    for k in range(table.shape[1]):
        total += table[row, k] * other[other_row, k]
    return total


@njit(nogil=True, cache=True, fastmath=_FLAGS)
def block_loss(
    tables: EmbeddingTables, rows: Integers, count: int, negatives: Integers, window: int, block: BlockBounds,
    weights: Any,
) -> tuple[float, float]:  # fmt: skip
    """The objective of some centres of a block of a walk of `count` rows, and the weight of their positive pairs.

    -log s(x) is log(1 + exp(-|x|)) + max(-x, 0). Of the negatives, which share a weight, the first terms are the
    logarithm of one product, none of whose factors is above 2.
    """
    centre, context, _, _ = borrow(tables)
    loss = total = 0.0
    for i in range(block.begin, block.end, _EVERY):
        for j in range(max(0, i - window), min(count, i + window + 1)):
            if j != i:
                weight = (window - abs(j - i) + 1) / window
                score = _score(centre, rows[i], context, rows[j])
                loss += weight * (np.log1p(np.exp(-abs(score))) + max(-score, np.float32(0)))
                total += weight
        product, linear, logarithms = 1.0, 0.0, 0.0
        for m in range(block.chosen, block.chosen + block.pool):
            score = _score(centre, rows[i], context, negatives[m])
            product *= 1.0 + np.exp(-abs(score))
            linear += max(score, np.float32(0))
            if product > _FULL:
                logarithms += np.log(product)
                product = 1.0
        loss += weights[i - block.begin] * (linear + logarithms + np.log(product))
    return loss, total
