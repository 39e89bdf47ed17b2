"""Feature rows and neighbour means of nodes that other workers may own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.distributed.kv_store import RemoteRows
from superworkflow.tasks.lib.gnn.model.dropout import NOTHING, RowDropout
from superworkflow.tasks.lib.gnn.model.remote_row_kernels import gather_remote_rows, gather_shared_means
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.bfloat16 import round_rows

_NONE = np.empty(0, np.int64)


class RemoteRowsPart(NamedTuple):
    """A `concat.ConstantPart` of rows after dropout, whose keys are the numbers of these nodes [r]."""

    near: RemoteRows
    nodes: NDArray[np.int64]
    dropped: RowDropout

    @property
    def width(self) -> int:
        return int(self.near.table.shape[1])

    def fill(self, out: NDArray[Any], column: int) -> None:
        _fill_as_stored(self._fill, self.width, out, column)

    def _fill(self, out: NDArray[np.float32], column: int) -> None:
        table, values, where = self.near
        own = read_only(np.ascontiguousarray(table))
        given = read_only(values), read_only(where), read_only(self.nodes)
        gather_remote_rows(own, *given, self.dropped.share, self.dropped.word, out, column)


class RowTable:
    """Rows of some nodes, indexed by node number like an array of all nodes.

    Args:
        given: distinct nodes, int64, whose rows come first.
        near: rows of `given`, then of `others`.
        others: further nodes, distinct.
    """

    def __init__(self, given: NDArray[np.int64], near: RemoteRows, others: NDArray[np.int64] = _NONE):
        self._given, self._near, self._others = given, near, others
        self._sorted: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def __getitem__(self, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        if nodes is self._given:
            return self._near.first(len(nodes)).rows()
        if self._sorted is None:  # most batches never need it
            whole = np.concatenate([self._given, self._others])
            order = np.argsort(whole, kind="stable")
            self._sorted = whole[order], order
        given, order = self._sorted
        return self._near._replace(where=self._near.where[order[np.searchsorted(given, nodes)]]).rows()

    def fixed(self, nodes: NDArray[np.int64], dropped: RowDropout) -> RemoteRowsPart:
        """Rows of the first ones of the given nodes, which are `nodes`."""
        return RemoteRowsPart(self._near.first(len(nodes)), nodes, dropped)


class SharedMeansPart(NamedTuple):
    """A `concat.ConstantPart` of means of drawn neighbours' rows, from own rows and other workers' partial sums.

    Args:
        table, numbers, own_starts, own, sums, sum_starts, where, starts: see
            `remote_row_kernels.gather_shared_means`.
        dropped: dropout of own rows; `sums` have had theirs.
    """

    table: NDArray[np.float32]
    numbers: NDArray[Any]
    own_starts: NDArray[np.int64]
    own: NDArray[np.int64]
    sums: NDArray[np.float32]
    sum_starts: NDArray[np.int64]
    where: NDArray[np.int64]
    starts: NDArray[np.int64]
    dropped: RowDropout = NOTHING

    @property
    def width(self) -> int:
        return int(self.table.shape[1])

    def fill(self, out: NDArray[Any], column: int) -> None:
        _fill_as_stored(self._fill, self.width, out, column)

    def _fill(self, out: NDArray[np.float32], column: int) -> None:
        own = read_only(self.numbers), read_only(self.own_starts), read_only(self.own)
        others = read_only(self.sums), read_only(self.sum_starts), read_only(self.where)
        given = *own, *others, read_only(self.starts)
        gather_shared_means(read_only(self.table), *given, self.dropped.share, self.dropped.word, out, column)


def _fill_as_stored(
    fill: Callable[[NDArray[np.float32], int], None], width: int, out: NDArray[Any], column: int
) -> None:  # fmt: skip
    """Have `width` columns filled, from `column` on, by a function that knows float32 alone.

    Args:
        fill: fills columns of an array from one on.
        width, out, column: as in `concat.ConstantPart.fill`.
    """
    if out.dtype == np.float32:
        fill(out, column)
        return
    rows = np.empty((len(out), width), np.float32)
    fill(rows, 0)
    round_rows(rows, out, column)
