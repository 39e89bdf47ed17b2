"""Dropout of rows that kernels read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superworkflow.tasks.lib.gnn import random_streams

_MASKED_IN = 65536


class RowDropout(NamedTuple):
    """Dropout of a table's rows: share in 65536ths, 0 for none, and state of the random stream."""

    share: int
    state: int

    @property
    def word(self) -> np.uint64:
        """The state as kernels take it."""
        return np.uint64(self.state)


NOTHING = RowDropout(0, 0)


def dropout_threshold(dropout: float) -> int:
    """Share of dropped entries in 65536ths, less than 65536."""
    return min(_MASKED_IN - 1, round(dropout * _MASKED_IN))


def of_senders(state: int, share: int, node_set: int) -> RowDropout:
    """Dropout of a layer's senders.

    Args:
        state: state of the layer's masks; see `sampler.block.Block`.
        share: result of `dropout_threshold`.
        node_set: number of the senders' set.
    """
    return RowDropout(share, random_streams.state(state, 0, node_set))
