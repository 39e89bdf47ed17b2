"""Counter-based random numbers for the kernels of all stages: SplitMix64.

Draw ``i`` of a stream is ``mix(state + i * GAMMA)`` (Steele, Lea & Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014). A stream's first state comes from the seed and the item it is for (a walk, an edge, a
sentence), never from a thread or a partition, so results do not depend on how the work is divided.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

GAMMA = np.uint64(0x9E3779B97F4A7C15)
"""Odd increment of the state between two draws: 2**64 divided by the golden ratio."""


@nb.njit(inline="always")
def mix(z: Any) -> Any:
    """SplitMix64's finaliser, a bijection of 64-bit words; ``mix.py_func`` takes uint64 arrays."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@nb.njit(nogil=True)
def fill_words(words: Any, state: Any, node: Any) -> None:
    """Fill uint64 words with draws of a node's own stream, of which a random stream has one for each node."""
    own = mix(state + np.uint64(np.int64(node) + 1) * GAMMA)
    for i in range(len(words)):
        words[i] = mix(own + np.uint64(i + 1) * GAMMA)


@nb.njit(inline="always")
def uniform(state: Any) -> Any:
    """The draw of this state as a number in [0, 1)."""
    return np.float64(mix(state) >> np.uint64(11)) * 2.0**-53


@nb.njit(inline="always")
def rank_by_weight(share: Any, low: float, high: float, power: float, offset: float, most: int) -> Any:
    """The rank below `most` at this share, in [0, 1), of the cumulative weight (rank + offset)^power, which runs from
    `low` to `high`: ranks drawn at uniform shares follow a power law."""
    rank = np.int64((low + share * (high - low)) ** (1.0 / power) - offset)
    return min(max(rank, np.int64(0)), np.int64(most - 1))


@nb.njit(nogil=True)
def fill_around(row: Any, centroid: Any, state: Any, signal: Any, unit: Any) -> None:
    """Fill a row [d] of float32 with a centroid, ±`signal` by a random word, and noise around it with a standard
    deviation of 37,836 (four uniform numbers below 2¹⁶); sums of integers, times `unit`, a float32."""
    for d in range(len(row)):
        state += GAMMA
        bits = mix(state)
        total = np.int64(0)
        for _ in range(4):
            total += np.int64(bits & np.uint64(0xFFFF)) - 32768
            bits >>= np.uint64(16)
        side = np.int64(mix(centroid + np.uint64(d) * GAMMA) & np.uint64(1))
        row[d] = np.float32(total + (2 * side - 1) * signal) * unit
