"""Distributed key-value store: workers read and update rows of nodes that other workers own.

Every operation is collective: all workers send node numbers to the owners, which respond with rows of these nodes.
Nodes that a worker owns itself take the same path without leaving it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.distributed.buffer_sizes import SizeKey
from superworkflow.tasks.lib.distributed.kernels import copy_rows, gather_remote
from superworkflow.tasks.lib.distributed.partition_book import PartitionBook, Route, RoutedNodes
from superworkflow.tasks.lib.kernels.arrays import read_only

if TYPE_CHECKING:  # it needs torch, which images compile kernels without
    from superworkflow.tasks.lib.distributed.exchange import Exchange

_NONE = np.empty(0, np.float32)
_GATHERED_BYTES = 16 << 20


class KVRequest(NamedTuple):
    """Request to the owners of nodes, and the requests that this worker received in turn.

    Args:
        node_set: set of the nodes.
        route: route of the rows that this worker is to get.
        received: by rank, old numbers of owned nodes that the rank requests, or other data that it sent.
    """

    node_set: str
    route: Route
    received: list[NDArray[np.int64]]


class KVResponse(NamedTuple):
    """Rows received from their owners.

    Args:
        values: the rows, concatenated.
        where: for each request, `RemoteRows.where` of its rows.
    """

    values: NDArray[np.float32]
    where: list[NDArray[np.int64]]


class RemoteRows(NamedTuple):
    """Rows of nodes that this worker or others own.

    Args:
        table: rows of the owned nodes [n, width].
        values: rows received from other workers, concatenated.
        where: row of each node in `table` [r], or the complement of its row's offset in `values`.
    """

    table: NDArray[np.float32]
    values: NDArray[np.float32]
    where: NDArray[np.int64]

    def first(self, count: int) -> RemoteRows:
        """Rows of the first nodes."""
        return self._replace(where=self.where[:count])

    def rows(self) -> NDArray[np.float32]:
        """One array [r, width]."""
        out = np.empty((len(self.where), self.table.shape[1]), np.float32)
        table = read_only(np.ascontiguousarray(self.table))
        gather_remote(table, read_only(self.values), read_only(self.where), out)
        return out


class RowSource(Protocol):
    """Source from which an owner serves requests."""

    @property
    def width(self) -> int:
        """Width of a row."""

    def count(self, received: NDArray[np.int64]) -> int:
        """Number of rows in the response."""

    def write(self, received: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        """Write the rows, concatenated, [rows * width]."""


class TableSource:
    """Rows of the owned nodes, requested by their old numbers.

    Args:
        book: owners of the nodes.
        node_set: set of the nodes.
        rank: this worker's.
        table: rows of its nodes [nodes, width].
    """

    def __init__(self, book: PartitionBook, node_set: str, rank: int, table: NDArray[np.float32]):
        self._book, self._node_set, self._rank = book, node_set, rank
        self._table = read_only(np.ascontiguousarray(table))

    @property
    def width(self) -> int:
        return int(self._table.shape[1])

    def count(self, received: NDArray[np.int64]) -> int:
        return len(received)

    def write(self, received: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        rows = self._book.own(self._node_set, received, self._rank)
        check_owned(rows, len(self._table))
        copy_rows(self._table, rows, out)


def check_owned(rows: NDArray[np.int64], count: int) -> None:
    """Check rows requested by another worker, which kernels then read unchecked.

    Raises:
        IndexError: a row is not of the `count` nodes that this worker owns.
    """
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < count:
        raise IndexError(f"rows {rows.min()} to {rows.max()} were requested, of {count}")


class KVStore:
    """Client and server of this worker.

    Args:
        book: owners of the nodes.
        exchange: exchange with the other workers.
    """

    def __init__(self, book: PartitionBook, exchange: Exchange):
        self.book, self.exchange = book, exchange

    def route(self, node_set: str, nodes: NDArray[np.int64]) -> RoutedNodes:
        """Nodes grouped by owner."""
        owners = self.book.owners(node_set, nodes)
        order = np.argsort(owners.astype(np.uint16), kind="stable")  # one pass, for integers as short as these
        counts = np.bincount(owners, minlength=self.exchange.size)
        return RoutedNodes(node_set, Route(order, counts), np.split(nodes[order], np.cumsum(counts)[:-1]))

    def send(self, requests: Sequence[RoutedNodes], kind: str, likely: SizeKey | None = None) -> list[KVRequest]:
        """Send requests to the owners; every worker sends equally many.

        Args:
            requests: nodes grouped by owner.
            kind: key in `Exchange.sent`.
            likely: key of the predicted length, which saves an exchange.
        """
        if not requests:
            return []
        out = []
        for rank in range(self.exchange.size):
            parts = [each.parts[rank] for each in requests]
            out.append(np.concatenate([np.array([len(each) for each in parts], np.int64), *parts]))
        coming = self.exchange.swap_likely(out, kind, likely) if likely else self.exchange.swap(out, kind)
        count = len(requests)
        by_rank = [np.split(each[count:], np.cumsum(each[:count])[:-1]) for each in coming]
        received = zip(*by_rank, strict=True)
        return [KVRequest(each.node_set, each.route, [*own]) for each, own in zip(requests, received, strict=True)]

    def respond(self, requests: Sequence[KVRequest], sources: Sequence[RowSource], kind: str) -> KVResponse:
        """Serve the received requests from `sources`, one for each, and receive the rows of the own requests.

        Args:
            requests: results of `send`.
            sources: one for each request.
            kind: key in `Exchange.sent`.
        """
        size, own_rank, pairs = self.exchange.size, self.exchange.rank, list(zip(requests, sources, strict=True))
        lengths = [
            [
                0 if rank == own_rank else source.count(nodes) * source.width
                for rank, nodes in enumerate(request.received)
            ]
            for request, source in pairs
        ]
        leaving = [sum(by_request) for by_request in zip(*lengths, strict=True)] or [0] * size
        coming = [
            0 if rank == own_rank else sum(int(each.route.counts[rank]) * source.width for each, source in pairs)
            for rank in range(size)
        ]
        out, begin = self.exchange.leaving(sum(leaving), np.float32), 0
        for rank in range(size):
            for (request, source), by_rank in zip(pairs, lengths, strict=True):
                end = begin + by_rank[rank]
                if end > begin:
                    source.write(read_only(request.received[rank]), out[begin:end])
                begin = end
        values = self.exchange.cross(out, leaving, coming, kind) if pairs else out
        begins = np.cumsum([0, *coming])
        return KVResponse(values, [self._where(request, source.width, begins) for request, source in pairs])

    def rows(
        self, requests: Sequence[KVRequest], tables: Sequence[NDArray[np.float32]], kind: str
    ) -> list[NDArray[np.float32]]:
        """`respond` from tables of the owned nodes [nodes, width]; the rows as arrays."""
        sources = [
            TableSource(self.book, each.node_set, self.exchange.rank, table)
            for each, table in zip(requests, tables, strict=True)
        ]
        values, where = self.respond(requests, sources, kind)
        return [RemoteRows(table, values, each).rows() for table, each in zip(tables, where, strict=True)]

    def pull(self, node_set: str, nodes: NDArray[np.int64], table: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rows of nodes, [nodes, width].

        Args:
            node_set, nodes: what to read.
            table: rows of the owned nodes [nodes, width].
        """
        (rows,) = self.rows(self.send([self.route(node_set, nodes)], "rows asked for"), [table], "rows")
        return rows

    def gather(self, node_set: str, count: int, table: NDArray[np.float32], folder: Path) -> NDArray[np.float32]:
        """Rows of all nodes of a set on the first rank, by old numbers, mapped: no worker needs memory for them.

        Args:
            node_set, count: the set, and the number of its nodes.
            table: rows of the owned nodes [nodes, width].
            folder: of the first rank, for the file that is mapped.

        Returns:
            [count, width] on the first rank, none on others.
        """
        width = table.shape[1]
        out = np.empty((0, width), np.float32)
        if self.exchange.rank == 0 and count and width:
            with tempfile.TemporaryFile(dir=folder) as file:
                out = np.memmap(file, np.float32, "w+", shape=(count, width))
        at_once = max(1, _GATHERED_BYTES // (4 * max(1, width)))
        for first in range(0, count, at_once):
            nodes = np.arange(first, min(count, first + at_once) if self.exchange.rank == 0 else first)
            out[first : first + len(nodes)] = self.pull(node_set, nodes, table)
        return out

    def push(
        self, requests: Sequence[KVRequest], values: Sequence[NDArray[np.float32]], kind: str
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Send values [nodes, width] for the requested nodes to their owners.

        Returns:
            For each request, rows among the owned nodes and their values, by sender; a row occurs once for each worker
            that sent it.
        """
        size, pairs = self.exchange.size, list(zip(requests, values, strict=True))
        parts = [np.split(given[each.route.order], np.cumsum(each.route.counts)[:-1]) for each, given in pairs]
        out = [np.concatenate([_NONE, *(each[rank].reshape(-1) for each in parts)]) for rank in range(size)]
        coming = [sum(len(each.received[rank]) * given.shape[1] for each, given in pairs) for rank in range(size)]
        found, begins, taken = self.exchange.swap(out, kind, coming), [0] * size, []
        for request, given in pairs:
            width, pieces = given.shape[1], []
            for rank, nodes in enumerate(request.received):
                pieces.append(found[rank][begins[rank] : begins[rank] + len(nodes) * width])
                begins[rank] += len(nodes) * width
            rows = [self._own_rows(request, rank) for rank in range(size)]
            taken.append((np.concatenate(rows), np.concatenate(pieces).reshape(-1, width)))
        return taken

    def _where(self, request: KVRequest, width: int, begins: NDArray[np.int64]) -> NDArray[np.int64]:
        """`RemoteRows.where` of a request's rows; `begins` has the offset of each rank's next row, and is advanced."""
        order, counts = request.route
        where, ends = np.empty(len(order), np.int64), np.cumsum([0, *counts])
        for rank, count in enumerate(counts.tolist()):
            places = order[ends[rank] : ends[rank + 1]]
            if rank == self.exchange.rank:
                where[places] = self._own_rows(request, rank)
                continue
            where[places] = ~(begins[rank] + width * np.arange(count))
            begins[rank] += width * count
        return where

    def _own_rows(self, request: KVRequest, rank: int) -> NDArray[np.int64]:
        """Rows among the owned nodes that a rank requests."""
        return self.book.own(request.node_set, request.received[rank], self.exchange.rank)
