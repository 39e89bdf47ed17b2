"""Partial sums of rows, which the owner of the rows computes for other workers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.distributed.kv_store import check_owned
from superworkflow.tasks.lib.gnn.distributed.kernels import sum_requested
from superworkflow.tasks.lib.gnn.model.dropout import RowDropout
from superworkflow.tasks.lib.kernels.arrays import read_only


class PartialSumSource(NamedTuple):
    """A `RowSource` of sums over the owned nodes' rows, requested as `kernels.split_senders` encodes them.

    Args:
        table: rows of this worker's nodes [nodes, width].
        low: new number of the first of them.
        numbers: key of each node's dropout [nodes].
        dropped: dropout of the rows, before they are summed.
    """

    table: NDArray[np.float32]
    low: int
    numbers: NDArray[Any]
    dropped: RowDropout

    @property
    def width(self) -> int:
        return int(self.table.shape[1])

    def count(self, received: NDArray[np.int64]) -> int:
        return int(np.count_nonzero(received < 0))

    def write(self, received: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        check_owned(np.where(received < 0, ~received, received) - self.low, len(self.table))
        if received[0] >= 0:
            raise IndexError("rows were requested that belong to no sum")
        table, numbers = read_only(self.table), read_only(self.numbers)
        sum_requested(table, received, self.low, numbers, self.dropped.share, self.dropped.word, out)
