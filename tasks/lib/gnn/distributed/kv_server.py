"""Tables from which a worker serves requests."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.distributed.partition_book import PartitionBook
from superworkflow.tasks.lib.gnn.distributed.kernels import copy_rows, sum_asked
from superworkflow.tasks.lib.gnn.model.dropout import RowDropout
from superworkflow.tasks.lib.kernels.arrays import read_only


class RowSource(Protocol):
    """Source from which an owner serves requests."""

    @property
    def width(self) -> int:
        """Width of a row."""

    def count(self, asked: NDArray[np.int64]) -> int:
        """Number of rows in the response."""

    def write(self, asked: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        """The answer, one row behind the other, [rows * width]."""


class TableSource:
    """Rows of the owned nodes, asked for by their old numbers.

    Args:
        book: who owns what.
        node_set: of the nodes.
        rank: of this worker.
        table: of its nodes [nodes, width].
    """

    def __init__(self, book: PartitionBook, node_set: str, rank: int, table: NDArray[np.float32]):
        self._book, self._node_set, self._rank = book, node_set, rank
        self._table = read_only(np.ascontiguousarray(table))

    @property
    def width(self) -> int:
        return int(self._table.shape[1])

    def count(self, asked: NDArray[np.int64]) -> int:
        return len(asked)

    def write(self, asked: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        rows = self._book.own(self._node_set, asked, self._rank)
        _check_owned(rows, len(self._table))
        copy_rows(self._table, rows, out)


class PartialSumSource(NamedTuple):
    """Sums of rows of the owned nodes, asked for as `kernels.split_senders` says it.

    Args:
        table: of this worker's nodes [nodes, width].
        low: new number of the first of them.
        numbers: by which dropout goes, of each [nodes].
        dropped: of the rows, before they are summed.
    """

    table: NDArray[np.float32]
    low: int
    numbers: NDArray[Any]
    dropped: RowDropout

    @property
    def width(self) -> int:
        return int(self.table.shape[1])

    def count(self, asked: NDArray[np.int64]) -> int:
        return int(np.count_nonzero(asked < 0))

    def write(self, asked: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        _check_owned(np.where(asked < 0, ~asked, asked) - self.low, len(self.table))
        if asked[0] >= 0:
            raise IndexError("rows were asked for that belong to no sum")
        table, numbers = read_only(self.table), read_only(self.numbers)
        sum_asked(table, asked, self.low, numbers, self.dropped.share, self.dropped.word, out)


def _check_owned(rows: NDArray[np.int64], count: int) -> None:
    """Kernels read rows that another worker has asked for without a look at each.

    Raises:
        IndexError: one of them is not of the `count` nodes that this worker owns.
    """
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < count:
        raise IndexError(f"rows {rows.min()} to {rows.max()} were asked for, of {count}")
