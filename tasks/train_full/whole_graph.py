"""The arcs of a whole graph, both ways round, by position of its vertices; or the part of one of several servers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.edge_weights import degrees_of
from superworkflow.tasks.lib.gnn.model.mean_kernels import transpose
from superworkflow.tasks.lib.graph.heterograph import CsrRows
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.train_full.ghosts import GhostLists, ghost_lists, no_ghosts, place_arcs
from superworkflow.tasks.train_full.interval_kernels import rows_by_position
from superworkflow.tasks.train_full.vertex_order import Interval, VertexOrder

Places = NDArray[np.int32]


@dataclass(frozen=True)
class WholeGraph:
    """A graph whose vertices are in intervals, or a server's part of it: a range of the intervals.

    A place is a vertex's row in tables: that of its own vertices is their position less `first`; ghosts follow them.

    Args:
        arcs: places of senders by receiver, of its own vertices.
        back: places of receivers by sender; the same arrays where the graph is symmetric.
        scales: 1 / sqrt(degree + 1) of each own vertex, float32 [own vertices].
        order: positions of all vertices, and all intervals, also those of other servers.
        own: numbers of its intervals.
        reads: which of its intervals have senders of which: bool [intervals, intervals], receivers first; rows of other
            servers' intervals are those of the identity.
        reads_back: the same for `back`.
        ghosts, back_ghosts: vertices of other servers that send to its own, and that receive of its own.
    """

    arcs: CsrRows
    back: CsrRows
    scales: NDArray[np.float32]
    order: VertexOrder
    own: range
    reads: NDArray[np.bool_]
    reads_back: NDArray[np.bool_]
    ghosts: GhostLists = field(default_factory=no_ghosts)
    back_ghosts: GhostLists = field(default_factory=no_ghosts)

    @property
    def count(self) -> int:
        """Number of its own vertices."""
        return len(self.scales)

    @property
    def intervals(self) -> tuple[Interval, ...]:
        """All intervals, also those of other servers."""
        return self.order.intervals

    @property
    def first(self) -> int:
        """Position of its first vertex."""
        return self.intervals[self.own.start].first

    def rows_of(self, interval: Interval) -> slice:
        """Places of one of its intervals."""
        return slice(interval.first - self.first, interval.last - self.first)

    def places_of(self, interval: Interval) -> Places:
        """Places of one of its intervals, one by one."""
        own = self.rows_of(interval)
        return read_only(np.arange(own.start, own.stop, dtype=np.int32))

    def all_places(self) -> dict[int, Places]:
        """Places of each of its intervals, by number."""
        return {number: self.places_of(self.intervals[number]) for number in self.own}

    def numbers(self) -> NDArray[np.uint64]:
        """Vertex of each place that `arcs` name; empty if each is its own place."""
        if not self.first and not len(self.ghosts.numbers) and not len(self.order.vertices):
            return read_only(np.empty(0, np.uint64))
        own = np.arange(self.first, self.first + self.count)
        return read_only(self.order.vertices_of(np.concatenate([own, self.ghosts.numbers])).astype(np.uint64))

    @classmethod
    def of_rows(cls, rows: CsrRows, order: VertexOrder, servers: int = 1, server: int = 0) -> WholeGraph:
        """A graph, or the part of one of `servers`; its rows are by vertex."""
        bounds = order.bounds
        cuts = [(len(bounds) - 1) * each // servers for each in range(servers + 1)]
        own, limits = range(cuts[server], cuts[server + 1]), bounds[cuts]
        first, last = int(limits[server]), int(limits[server + 1])
        arcs = _rows_between(rows, order, first, last)
        back = _transposed(arcs) if servers == 1 else _transposed_between(rows, order, first, last)
        if np.array_equal(arcs.indptr, back.indptr) and np.array_equal(arcs.indices, back.indices):
            back = arcs
        scales = (1 / np.sqrt(degrees_of(arcs, None) + 1)).astype(np.float32)
        reads = _reads(arcs, bounds, own)
        reads_back = reads if back is arcs else _reads(back, bounds, own)
        ghosts, back_ghosts = no_ghosts(), no_ghosts()
        if servers > 1:
            ghosts = ghost_lists(arcs, back, limits, server, bounds, own)
            back_ghosts = ghost_lists(back, arcs, limits, server, bounds, own)
            both = (arcs, ghosts), (back, back_ghosts)
            arcs, back = (place_arcs(each, limits, server, lists.numbers) for each, lists in both)
        return cls(
            _read_only(arcs), _read_only(back), scales, order, own, reads, reads_back, ghosts, back_ghosts
        )  # fmt: skip


def _read_only(rows: CsrRows) -> CsrRows:
    return CsrRows(read_only(rows.indptr), read_only(rows.indices))


def _transposed(rows: CsrRows) -> CsrRows:
    begins, receivers = np.zeros(len(rows.indptr) + 1, np.int64), np.empty(len(rows.indices), np.int32)
    transpose(read_only(rows.indptr), read_only(rows.indices), begins, receivers)
    return CsrRows(begins[:-1], receivers)


_PIECE = 1 << 22
"""Arcs that are read at a time."""


def _rows_between(rows: CsrRows, order: VertexOrder, first: int, last: int) -> CsrRows:
    """Rows of some positions; they are the given ones, which may be mapped, if these are all vertices as they are."""
    vertices = order.between(first, last)
    if not len(order.vertices):
        begin, end = int(rows.indptr[first]), int(rows.indptr[last])
        if end - begin == len(rows.indices):
            return rows
        return CsrRows(np.asarray(rows.indptr[first : last + 1]) - begin, np.array(rows.indices[begin:end], np.int32))
    begins = np.concatenate([[0], np.cumsum(np.diff(rows.indptr)[vertices])]).astype(np.int64)
    given, ends = _read_only(rows), np.empty(begins[-1], np.int32)
    rows_by_position(given.indptr, given.indices, vertices, read_only(order.positions), begins, ends)
    return CsrRows(begins, ends)


def _transposed_between(rows: CsrRows, order: VertexOrder, first: int, last: int) -> CsrRows:
    """Rows of some positions of the transposed graph; of all arcs only theirs are in memory at once."""
    senders, receivers = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    for begin in range(0, len(rows.indices), _PIECE):
        piece = order.positions_of(rows.indices[begin : begin + _PIECE])
        chosen = np.flatnonzero((piece >= first) & (piece < last))
        senders.append((piece[chosen] - first).astype(np.int32))
        found = np.searchsorted(rows.indptr, begin + chosen, "right") - 1
        receivers.append(order.positions_of(found).astype(np.int32))
    ends, others = np.concatenate(senders), np.concatenate(receivers)
    begins = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=last - first))]).astype(np.int64)
    return CsrRows(begins, others[np.lexsort((others, ends))])


def _reads(arcs: CsrRows, bounds: NDArray[Any], own: range) -> NDArray[np.bool_]:
    """See `WholeGraph`, by arcs whose ends are vertices."""
    count, first = len(bounds) - 1, bounds[own.start]
    found = np.eye(count, dtype=np.bool_)
    for i in own:
        senders = arcs.indices[arcs.indptr[bounds[i] - first] : arcs.indptr[bounds[i + 1] - first]]
        found[i] |= np.bincount(np.searchsorted(bounds, senders, "right") - 1, minlength=count) > 0
    return found
