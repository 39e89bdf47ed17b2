"""Random streams of training: their states follow from their purpose, never from the thread or worker."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.sampler.kernels import keys_of
from superworkflow.tasks.lib.kernels.random import GAMMA

ORDER, DRAW, MASK, ATTENTION, SELF_ATTENTION, SPLIT, EMBEDDING, NEGATIVE, HIDDEN, NON_LINK, DECODER = range(11)
"""Purposes of streams."""
TRAINING, VALIDATION = 0, 1
"""Purposes of batches."""

_WORD = (1 << 64) - 1


def state(*numbers: int) -> int:
    """A 64-bit state that depends on all of these non-negative integers and on their order."""
    z = 0
    for number in numbers:
        z = _mix((z + (number + 1) * int(GAMMA)) & _WORD)
    return z


def words(nodes: NDArray[np.int64], *numbers: int) -> NDArray[np.uint64]:
    """A random word for each node, by its number, of the stream that has the state of `numbers`."""
    found = np.empty(len(nodes), np.uint64)
    keys_of(np.ascontiguousarray(nodes, np.int64), np.uint64(state(*numbers)), found)
    return found


def _mix(z: int) -> int:
    """SplitMix64's finaliser, as `tasks.lib.kernels.random.mix` has it for kernels."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return z ^ (z >> 31)
