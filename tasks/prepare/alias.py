"""Alias tables with integer thresholds, so that their probabilities add up to exactly one."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

FULL = 2**32 - 1
"""Threshold of a slot that stands for itself alone; its alias is itself, so the last 2**-32 is not lost."""


def alias_table(weights: NDArray[np.float64]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Table for drawing in constant time (Walker, 1977), built in linear time (Vose, 1991).

    Args:
        weights: positive, [n].

    Returns:
        threshold [n] and alias [n]: draw a slot s and a 32-bit number u; the outcome is s if u < threshold[s], else
        alias[s].
    """
    if not len(weights) or not np.all(np.isfinite(weights)) or weights.min() <= 0:
        raise ValueError("weights must be positive and finite, at least one")
    return _build(weights / weights.sum() * len(weights))


@njit(cache=True)
def _build(share: NDArray[np.float64]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    n = len(share)
    threshold = np.full(n, np.uint32(FULL), np.uint32)
    alias = np.arange(n)
    waiting = np.empty(n, np.int64)  # slots below one from the left, above one from the right
    small, large = 0, n
    for i in range(n):
        if share[i] < 1:
            waiting[small] = i
            small += 1
        else:
            large -= 1
            waiting[large] = i
    while small > 0 and large < n:
        small -= 1
        poor, rich = waiting[small], waiting[large]
        threshold[poor] = np.uint32(min(share[poor] * 4294967296.0, 4294967295.0))
        alias[poor] = rich
        share[rich] -= 1 - share[poor]
        if share[rich] < 1:
            large += 1
            waiting[small] = rich
            small += 1
    return threshold, alias
