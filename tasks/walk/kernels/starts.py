"""Start of a walk, and the first state of its random stream: functions of the seed and the walk's number alone.

The start vertices of a round are visited in a pseudo-random order: a balanced Feistel network on the smallest
even number of bits that holds them, cycle-walked back into the range (Black & Rogaway, "Ciphers with
arbitrary finite domains", CT-RSA 2002). It needs no table, so any range of walks can be made by itself.
"""

from typing import NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from superworkflow.tasks.lib.kernels.random import GAMMA, mix

_WALK_DOMAIN = np.uint64(0xD1B54A32D192ED03)
_ORDER_DOMAIN = np.uint64(0x8CB92BA72F3D8DD7)
_FEISTEL_ROUNDS = 6


class WalkRange(NamedTuple):
    """Consecutive walks that one call makes.

    Args:
        starts: int64 [n_starts], vertices that walks start from; empty for every vertex.
        n_starts: uint64, start vertices.
        seed: uint64.
        first: int64, number of the first walk.
    """

    starts: npt.NDArray[np.int64]
    n_starts: np.uint64
    seed: np.uint64
    first: np.int64


@nb.njit(inline="always")
def walk_state(seed, walk):  # type: ignore[no-untyped-def]
    """The first state of the stream of walk number ``walk`` (both uint64)."""
    return mix(mix(seed ^ _WALK_DOMAIN) + mix(walk * GAMMA + GAMMA))


@nb.njit(cache=True, error_model="numpy")
def start_positions(seed, first, n, positions):  # type: ignore[no-untyped-def]
    """Fill int64 ``positions`` with the positions, in 0..n-1, at which the walks first, first + 1, ... start.

    Those of a round, n walks from a multiple of n on, are a permutation. Loops over all walks compile to vectors.
    """
    count = len(positions)
    one = np.uint64(1)
    half = one
    while (one << (half + half)) < n:
        half += one
    mask = (one << half) - one
    domain = mix(seed ^ _ORDER_DOMAIN)
    keys, left, right = np.empty(count, np.uint64), np.empty(count, np.uint64), np.empty(count, np.uint64)
    walk = np.arange(count)
    walk_round, k = first // n, first % n
    key = domain + mix(walk_round * GAMMA + GAMMA)
    for i in range(count):
        keys[i], left[i], right[i] = mix(key), k >> half, k & mask
        k += one
        if k == n:
            k = np.uint64(0)
            walk_round += one
            key = domain + mix(walk_round * GAMMA + GAMMA)
    while count > 0:
        for r in range(_FEISTEL_ROUNDS):
            offset = np.uint64(r) * GAMMA
            for i in range(count):
                low = right[i]
                right[i] = left[i] ^ (mix(keys[i] + offset + (low << np.uint64(8))) & mask)
                left[i] = low
        outside = 0
        for i in range(count):
            position = (left[i] << half) | right[i]
            positions[walk[i]] = np.int64(position)
            walk[outside], keys[outside], left[outside], right[outside] = walk[i], keys[i], left[i], right[i]
            outside += position >= n
        count = outside


@nb.njit(cache=True, error_model="numpy")
def start_vertices(seed, first, n_starts, starts, count):  # type: ignore[no-untyped-def]
    """Start vertices, int64 [count], of the walks first, first + 1, ...: of ``starts``, or of all if that is empty."""
    vertices = np.empty(count, np.int64)
    start_positions(seed, np.uint64(first), n_starts, vertices)
    if len(starts) > 0:
        for k in range(count):
            vertices[k] = starts[vertices[k]]
    return vertices
