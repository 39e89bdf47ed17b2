"""Dropout of a whole graph: a function of (seed, epoch, layer, vertex, column), and of an arc's ends and head."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.model.dropout import dropout_threshold
from superworkflow.tasks.lib.gnn.whole_graph.gather_kernels import drop_rows
from superworkflow.tasks.lib.gnn.whole_graph.sparse_kernels import drop_entries
from superworkflow.tasks.lib.kernels.float16 import as_read
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.train_full.sparse_inputs import Inputs, SparseRows
from superworkflow.tasks.train_full.whole_graph import Interval


class ArcDropout(NamedTuple):
    """Dropout of the shares of arcs in one layer and epoch: share in 65536ths, 0 for none, and state of the stream."""

    share: int
    state: int

    def states(self, interval: Interval) -> NDArray[np.uint64]:
        """State of each vertex of an interval, of which those of its arcs are made."""
        numbers = np.arange(interval.first + 1, interval.last + 1, dtype=np.uint64)
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

    def inputs(self, values: Inputs, interval: Interval, epoch: int, layer: int) -> Inputs:
        """Rows that a layer reads of an interval."""
        if not isinstance(values, SparseRows):
            return self.rows(values, interval, epoch, layer)
        if not self._share:
            return values
        out, state = np.empty(len(values.values), np.float32), self._word(epoch, layer)
        drop_entries(values.starts, values.columns, values.values, interval.first, self._share, state, out)
        return values._replace(values=out)

    def rows(self, values: NDArray[Any], interval: Interval, epoch: int, layer: int) -> NDArray[np.float32]:
        """Dense rows that a layer reads of an interval, or their gradients; a copy."""
        if not self._share:
            return np.asarray(values, np.float32)
        out, words = np.empty(values.shape, np.float32), np.empty((values.shape[1] + 3) >> 2, np.uint64)
        state = self._word(epoch, layer)
        drop_rows(as_read(values), interval.first, self._share, state, words, out)
        return out

    def arcs(self, epoch: int, layer: int) -> ArcDropout:
        """Dropout of shares of arcs."""
        return ArcDropout(self._share, self._state(random_streams.ATTENTION, epoch, layer))

    def _word(self, epoch: int, layer: int) -> np.uint64:
        return np.uint64(self._state(random_streams.MASK, epoch, layer))

    def _state(self, whose: int, epoch: int, layer: int) -> int:
        return random_streams.state(self._seed, whose, random_streams.TRAINING, epoch, layer)
