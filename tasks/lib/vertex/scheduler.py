"""Vertices of a step: the active ones, by colour, and ascending in each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()

BLOCK = 64
"""Vertices whose largest signal is known; as `scope` has it."""


class Queue(NamedTuple):
    """Active vertices.

    Args:
        vertices: int32 [active].
        starts: int64 [colours + 1], where each colour begins.
        arcs: sum of their degrees.
        blocks: updates, where these are blocks instead; else one of each.
    """

    vertices: NDArray[np.int32]
    starts: NDArray[np.int64]
    arcs: int
    blocks: int = -1

    @property
    def updates(self) -> int:
        """Updates of the step."""
        return len(self.vertices) if self.blocks < 0 else self.blocks


@nb.njit(nogil=True, cache=True)
def _select(signals: Any, largest: Any, degrees: Any, lowest: int, queue: Any) -> Any:
    """Move vertices whose signal is `lowest` at least into the queue, and take these down; their number and arcs."""
    count, arcs = 0, 0
    for block in range(len(largest)):
        if largest[block] >= lowest:
            rest = 0
            for vertex in range(block * BLOCK, min((block + 1) * BLOCK, len(signals))):
                if signals[vertex] >= lowest:
                    signals[vertex] = 0
                    queue[count] = vertex
                    count += 1
                    arcs += degrees[vertex]
                else:
                    rest = max(rest, signals[vertex])
            largest[block] = rest
    return count, arcs


def signalled(
    bounds: NDArray[np.int64], signals: NDArray[np.int32], largest: NDArray[np.int32], degrees: NDArray[np.int64],
    lowest: int, queue: NDArray[np.int32],
) -> Queue:  # fmt: skip
    """The vertices that were signalled with some priority at least.

    What it costs depends on the blocks that these are in, and on all vertices by a 64th.

    Args:
        bounds: int64 [colours + 1], where each colour begins.
        signals: int32 [vertices], bits of float32 priorities; those of the queue become 0.
        largest: int32 [vertices / 64, rounded up], the largest signal of each block.
        degrees: int64 [vertices].
        lowest: bits of the lowest priority that is taken, 1 for any; see `bucket`.
        queue: int32 [vertices], memory of the result.
    """
    count, arcs = _select(signals, largest, degrees, max(lowest, 1), queue)
    found = queue[:count]
    return Queue(found, np.searchsorted(found, bounds).astype(np.int64), int(arcs))


def bucket(top: int) -> int:
    """Bits of the lowest priority in the bucket of the largest: without its fraction, it is the power of two below."""
    return top & ~0x7FFFFF
