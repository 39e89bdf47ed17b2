"""Feature rows and neighbour means of nodes that other workers may own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.model.dropout import NOTHING, RowDropout
from superworkflow.tasks.lib.gnn.model.remote_row_kernels import gather_near, gather_shared_means
from superworkflow.tasks.lib.kernels.arrays import read_only

_NONE = np.empty(0, np.int64)


class RemoteRows(NamedTuple):
    """Rows of some nodes.

    Args:
        table: of the worker's own nodes [n, width].
        values: rows of others' nodes, one behind the other.
        where: of each node [r], its row in `table`, or the complement of where its row begins in `values`.
    """

    table: NDArray[np.float32]
    values: NDArray[np.float32]
    where: NDArray[np.int64]

    def first(self, count: int) -> RemoteRows:
        """Those of the first nodes."""
        return self._replace(where=self.where[:count])

    def rows(self) -> NDArray[np.float32]:
        """Them, [r, width]."""
        out = np.empty((len(self.where), self.table.shape[1]), np.float32)
        RemoteRowsPart(self, self.where, NOTHING).fill(out, 0)
        return out


class RemoteRowsPart(NamedTuple):
    """The same after dropout, which goes by the numbers of these nodes [r]; see `concat.ConstantPart`."""

    near: RemoteRows
    nodes: NDArray[np.int64]
    dropped: RowDropout

    @property
    def width(self) -> int:
        return int(self.near.table.shape[1])

    def fill(self, out: NDArray[np.float32], at: int) -> None:
        table, values, where = self.near
        own = read_only(np.ascontiguousarray(table))
        given = read_only(values), read_only(where), read_only(self.nodes)
        gather_near(own, *given, self.dropped.share, self.dropped.word, out, at)


class RowTable:
    """Rows of some nodes, read by their numbers as an array of all nodes would be.

    Args:
        given: distinct nodes, int64, whose rows come first.
        near: theirs, and those of `others`.
        others: more nodes, distinct.
    """

    def __init__(self, given: NDArray[np.int64], near: RemoteRows, others: NDArray[np.int64] = _NONE):
        self._given, self._near, self._others = given, near, others
        self._sorted: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def __getitem__(self, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        if nodes is self._given:
            return self._near.first(len(nodes)).rows()
        if self._sorted is None:  # which most batches need not pay for
            whole = np.concatenate([self._given, self._others])
            order = np.argsort(whole, kind="stable")
            self._sorted = whole[order], order
        given, order = self._sorted
        return self._near._replace(where=self._near.where[order[np.searchsorted(given, nodes)]]).rows()

    def fixed(self, nodes: NDArray[np.int64], dropped: RowDropout) -> RemoteRowsPart:
        """Rows of the first ones of the given nodes, which are named again."""
        return RemoteRowsPart(self._near.first(len(nodes)), nodes, dropped)


class SharedMeansPart(NamedTuple):
    """Means of drawn neighbours' rows, of which the owners of others' nodes have made sums; see `concat.ConstantPart`.

    Args:
        table: of the worker's own nodes [n, width].
        numbers: by which dropout goes, of each [n].
        own_starts, own: rows of each receiver's own neighbours [r + 1], [edges].
        sums: of others' nodes, one behind the other.
        sum_starts, where: of each receiver's sums [r + 1], and the complement of where each begins in `sums`.
        starts: where the drawn edges of each receiver begin [r + 1].
        dropped: of rows of own nodes; in `sums` it is done.
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

    def fill(self, out: NDArray[np.float32], at: int) -> None:
        own = read_only(self.numbers), read_only(self.own_starts), read_only(self.own)
        others = read_only(self.sums), read_only(self.sum_starts), read_only(self.where)
        given = *own, *others, read_only(self.starts)
        gather_shared_means(read_only(self.table), *given, self.dropped.share, self.dropped.word, out, at)
