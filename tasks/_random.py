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
