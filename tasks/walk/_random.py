"""Counter-based random numbers for walks: a pure function of (seed, walk index, draw).

Every walk owns a SplitMix64 stream (Steele, Lea & Flood, "Fast splittable pseudorandom number generators",
OOPSLA 2014): draw ``i`` of a walk is ``mix(state + i * GAMMA)``, and ``state`` is a strong mix of the seed and
the walk's index. No thread, batch or partition enters, so that a walk is the same wherever it is made.

The start vertices of a round are visited in a pseudo-random order: a balanced Feistel network on the smallest
even number of bits that holds them, cycle-walked back into the range (Black & Rogaway, "Ciphers with
arbitrary finite domains", CT-RSA 2002). It needs no table, so any range of walks can be made by itself.
"""

import numba as nb
import numpy as np

GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_WALK_DOMAIN = np.uint64(0xD1B54A32D192ED03)
_ORDER_DOMAIN = np.uint64(0x8CB92BA72F3D8DD7)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)
_FEISTEL_ROUNDS = 6


@nb.njit(inline="always")
def mix(z):  # type: ignore[no-untyped-def]
    """SplitMix64's finaliser, a bijection of the 64-bit words."""
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


@nb.njit(inline="always")
def walk_state(seed, walk):  # type: ignore[no-untyped-def]
    """The first state of the stream of walk number ``walk`` (both uint64)."""
    return mix(mix(seed ^ _WALK_DOMAIN) + mix(walk * GAMMA + GAMMA))


@nb.njit(cache=True, error_model="numpy")
def start_position(seed, walk_round, k, n):  # type: ignore[no-untyped-def]
    """The position, in 0..n-1, of the ``k``-th start of a round: a bijection in ``k`` (all uint64)."""
    one = np.uint64(1)
    half = one
    while (one << (half + half)) < n:
        half += one
    mask = (one << half) - one
    key = mix(mix(seed ^ _ORDER_DOMAIN) + mix(walk_round * GAMMA + GAMMA))
    position = k
    while True:
        left, right = position >> half, position & mask
        for i in range(_FEISTEL_ROUNDS):
            left, right = right, left ^ (mix(key + np.uint64(i) * GAMMA + (right << np.uint64(8))) & mask)
        position = (left << half) | right
        if position < n:
            return position
