"""Dropout of a whole graph: a function of (seed, epoch, layer, vertex, column), and of an arc's ends and head.

It is by vertex, not by position, so that the intervals, and parts, change only the order in which numbers are added.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.model.dropout import RowDropout, dropout_threshold
from superworkflow.tasks.lib.kernels.random import GAMMA, mix


class ArcDropout(NamedTuple):
    """Dropout of the shares of arcs in one layer and epoch: share in 65536ths, 0 for none, and state of the stream."""

    share: int
    state: int

    def states_of(self, vertices: NDArray[np.integer]) -> NDArray[np.uint64]:
        """State of each of these vertices, of which those of its arcs are made."""
        numbers = vertices.astype(np.uint64) + np.uint64(1)
        found: NDArray[np.uint64] = mix.py_func(np.uint64(self.state) + numbers * GAMMA)
        return found


NO_DROPOUT = ArcDropout(0, 0)


class Dropout:
    """Dropout of training.

    Args:
        share: share of entries that are dropped.
        seed: seed of the draws.
    """

    def __init__(self, share: float, seed: int):
        self._share, self._seed = dropout_threshold(share), seed

    def rows(self, epoch: int, layer: int) -> RowDropout:
        """Dropout of the rows that a layer reads."""
        return RowDropout(self._share, self._state(random_streams.MASK, epoch, layer))

    def arcs(self, epoch: int, layer: int) -> ArcDropout:
        """Dropout of shares of arcs."""
        return ArcDropout(self._share, self._state(random_streams.ATTENTION, epoch, layer))

    def _state(self, whose: int, epoch: int, layer: int) -> int:
        return random_streams.state(self._seed, whose, random_streams.TRAINING, epoch, layer)
