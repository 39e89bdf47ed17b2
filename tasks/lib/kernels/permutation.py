"""Random numbers without memory: a keyed permutation of [0, size), and vertex pairs by number.

The first k values of the permutation are k distinct random values; the next ones are distinct from these again. So
samples without replacement need no set of what was taken, and any part of them can be made by any thread.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.random import GAMMA, mix

_U = np.uint64
_ROUNDS = 6  # of the Feistel network; four already make a pseudo-random permutation


def key(*seed: int) -> np.uint64:
    """A key of the permutation from non-negative integers."""
    return np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])


@nb.njit(cache=True)
def permuted(value: np.uint64, size: np.uint64, half_bits: np.uint64, key: np.uint64) -> np.uint64:
    """Image of `value` under a keyed permutation of [0, size); `half_bits` is `half_bits_of(size)`.

    A Feistel network permutes the next power of four; values that fall outside go through it again
    (cycle walking; Black and Rogaway, 2002), fewer than four times on average.
    """
    mask = (_U(1) << half_bits) - _U(1)
    while True:
        left, right = value >> half_bits, value & mask
        for turn in range(_ROUNDS):
            left, right = right, left ^ (mix(right + key + _U(turn) * GAMMA) & mask)
        value = (left << half_bits) | right
        if value < size:
            return value


@nb.njit(cache=True)
def half_bits_of(size: np.uint64) -> np.uint64:
    """The least h with 4^h >= size."""
    bits = _U(1)
    while bits < _U(32) and (_U(1) << (bits + bits)) < size:
        bits += _U(1)
    return bits


@nb.njit(cache=True)
def unordered_pair(number: np.int64) -> tuple[np.int64, np.int64]:
    """Pair u > v of this number from 0: (1, 0), (2, 0), (2, 1), (3, 0), …"""
    u = np.int64((1.0 + np.sqrt(1.0 + 8.0 * number)) / 2.0)
    while u * (u - 1) // 2 > number:  # the square root is rounded
        u -= 1
    while (u + 1) * u // 2 <= number:
        u += 1
    return u, number - u * (u - 1) // 2


@nb.njit(cache=True)
def ordered_pair(number: np.int64, nodes: np.int64) -> tuple[np.int64, np.int64]:
    """Pair u != v of this number from 0 to nodes * (nodes - 1) - 1."""
    u, v = number // (nodes - 1), number % (nodes - 1)
    return u, v + (v >= u)
