"""Blocks of a run, and which of them are active in a step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.vertex.blocks import signalled_blocks
from superworkflow.tasks.lib.vertex.scheduler import Queue


class Splash:
    """Blocks of a graph, by place.

    Args:
        starts: int64 [blocks + 1], where each begins.
        bounds: int64 [colours + 1], where each colour begins.
        degrees: int64 [vertices].

    Attributes:
        path: int32 [vertices], memory of the order in which blocks are updated.
        seen: int64 [vertices], memory of what that order has reached.
    """

    def __init__(self, starts: NDArray[np.int64], bounds: NDArray[np.int64], degrees: NDArray[np.int64]):
        self.starts, self._degrees = starts, degrees
        self.path, self.seen = np.empty(len(degrees), np.int32), np.zeros(len(degrees), np.int64)
        self._bounds = np.searchsorted(starts[:-1], bounds)
        self._queue = np.empty(len(starts) - 1, np.int32)

    def queue(self, signals: NDArray[np.int32], lowest: int) -> Queue:
        """Active blocks: those with a vertex that was signalled.

        Args:
            signals: int32 [vertices], bits of float32 priorities.
            lowest: bits of the lowest priority that is taken, 0 for all blocks; see `scheduler.bucket`.
        """
        if not lowest:
            signals[:] = np.maximum(signals, 1)
        count, updates, arcs = signalled_blocks(signals, self._degrees, self.starts, max(1, lowest), self._queue)
        found = self._queue[:count]
        return Queue(found, np.searchsorted(found, self._bounds).astype(np.int64), int(arcs), int(updates))
