"""Ids of the nodes of a set: numbered as they come, then ranked by their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.tasks.heterograph.refusals import UNKNOWN
from superworkflow.tasks.lib.edge_list.encode import Encoder
from superworkflow.tasks.lib.edge_list.vertex_order import label_array, order_by_degree


class Ids:
    """The ids of a set.

    Args:
        threads: workers.
    """

    def __init__(self, threads: int):
        self._encoder = Encoder(threads, weighted=False)
        self._rank: NDArray[np.int32] | None = None

    @property
    def count(self) -> int:
        """Distinct ids, of which those that came after `ranked` are none of the set's."""
        return self._encoder.labels if self._rank is None else len(self._rank)

    def add(self, ids: pa.Array) -> NDArray[np.int32]:
        """Numbers of ids, in an order that means nothing; new ones get the next.

        Args:
            ids: Arrow strings, none empty.
        """
        return self._encoder.numbers(ids)

    def ranked(self) -> tuple[NDArray[np.int32], pa.Array]:
        """Rank by bytes of each number, and the ids by rank; from now on the set is what it is."""
        keys, arena = self._encoder.keys()
        order = order_by_degree(np.zeros(len(keys), np.int64), keys, arena)
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        self._rank = rank
        return rank, label_array(order, keys, arena)

    @property
    def rank(self) -> NDArray[np.int32]:
        """Rank of each number, once `ranked` was called."""
        assert self._rank is not None
        return self._rank

    def ranks_of(self, ids: pa.Array) -> NDArray[np.int32]:
        """Node numbers of ids, `UNKNOWN` where the set has no such node. `ranked` comes first."""
        rank, numbers = self.rank, self._encoder.numbers(ids)
        has_rank = numbers < len(rank)
        if has_rank.all():
            return rank[numbers]
        ranks = np.full(len(numbers), UNKNOWN, np.int32)
        ranks[has_rank] = rank[numbers[has_rank]]
        return ranks


def first_repeated(numbers: NDArray[Any]) -> int:
    """Row of the first number that an earlier row has; there is one."""
    first = np.unique(numbers, return_index=True)[1]
    repeated = np.ones(len(numbers), bool)
    repeated[first] = False
    return int(np.flatnonzero(repeated)[0])
