"""Vertices of a step: the active ones, by colour, and ascending in each."""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()


class Queue(NamedTuple):
    """Active vertices.

    Args:
        vertices: int32 [active].
        starts: int64 [colours + 1], where each colour begins.
        arcs: sum of their degrees.
    """

    vertices: NDArray[np.int32]
    starts: NDArray[np.int64]
    arcs: int


@nb.njit(cache=True)
def _select(order, bounds, signals, degrees, lowest, queue, starts):  # type: ignore[no-untyped-def]
    """Move vertices whose signal is `lowest` at least into the queue, and take the signals down; returns arcs."""
    place, arcs = 0, 0
    for colour in range(len(bounds) - 1):
        starts[colour] = place
        for number in range(bounds[colour], bounds[colour + 1]):
            vertex = order[number]
            if signals[vertex] >= lowest:
                signals[vertex] = 0
                queue[place] = vertex
                place += 1
                arcs += degrees[vertex]
    starts[len(bounds) - 1] = place
    return arcs


def signalled(
    order: NDArray[np.int32], bounds: NDArray[np.int64], signals: NDArray[np.int32], degrees: NDArray[np.int64],
    by_priority: bool, queue: NDArray[np.int32],
) -> Queue:  # fmt: skip
    """The vertices that were signalled; by priority those in the highest power of two alone.

    Args:
        order: int32 [vertices], by colour.
        bounds: int64 [colours + 1].
        signals: int32 [vertices], bits of float32 priorities; those of the queue become 0.
        degrees: int64 [vertices].
        by_priority: take the highest bucket alone.
        queue: int32 [vertices], memory of the result.
    """
    largest = int(signals.max(initial=0))
    lowest = largest & ~0x7FFFFF if by_priority else 1  # without its fraction: the power of two below it
    starts = np.empty(len(bounds), np.int64)
    arcs = int(_select(order, bounds, signals, degrees, max(lowest, 1), queue, starts))
    return Queue(queue[: starts[-1]], starts, arcs)
