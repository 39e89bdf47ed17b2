"""Ask the owner: the one primitive by which workers that each have a part of a graph read what others have.

Each worker sends numbers of nodes to those who own them, and gets something of these nodes back. All workers do so at a
time. What a worker owns itself goes the same way without leaving it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.distributed.buffer_sizes import SizeKey
from superworkflow.tasks.lib.distributed.exchange import Exchange
from superworkflow.tasks.lib.distributed.partition_book import PartitionBook, Route, RoutedNodes
from superworkflow.tasks.lib.gnn.distributed.kv_server import RowSource, TableSource
from superworkflow.tasks.lib.gnn.model.remote_rows import RemoteRows
from superworkflow.tasks.lib.kernels.arrays import read_only

_NONE = np.empty(0, np.float32)


class KVRequest(NamedTuple):
    """Request to the owners of nodes, and the requests that this worker received in turn.

    Args:
        node_set: of the nodes.
        route: of the rows that this worker is to get.
        asked: by rank, what this worker is to answer: old numbers of nodes that it owns, or what else was sent.
    """

    node_set: str
    route: Route
    asked: list[NDArray[np.int64]]


class KVResponse(NamedTuple):
    """Rows that came from their owners.

    Args:
        values: one behind the other.
        where: of each question, for each of its rows, the complement of where it begins in `values`; of an owned node,
            which is not among them, its row.
    """

    values: NDArray[np.float32]
    where: list[NDArray[np.int64]]


class KVStore:
    """Asks the owners of nodes.

    Args:
        book: who owns what.
        exchange: with the others.
    """

    def __init__(self, book: PartitionBook, exchange: Exchange):
        self.book, self.exchange = book, exchange

    def ask(
        self, asked: Sequence[tuple[str, NDArray[np.int64]]], kind: str, likely: SizeKey | None = None
    ) -> list[KVRequest]:
        """Send nodes to their owners, of as many lists as every worker has.

        Args:
            asked: node set and nodes of each list.
            kind: what they are, for `Exchange.sent`.
            likely: how many they may be, where that can be reckoned: it saves an exchange.
        """
        return self.send([self.parted(*each) for each in asked], kind, likely)

    def send(self, asked: Sequence[RoutedNodes], kind: str, likely: SizeKey | None = None) -> list[KVRequest]:
        """The same of what is divided by owners already."""
        if not asked:
            return []
        out = []
        for rank in range(self.exchange.size):
            parts = [each.parts[rank] for each in asked]
            out.append(np.concatenate([np.array([len(each) for each in parts], np.int64), *parts]))
        coming = self.exchange.swap_likely(out, kind, likely) if likely else self.exchange.swap(out, kind)
        of_rank = [np.split(each[len(asked) :], np.cumsum(each[: len(asked)])[:-1]) for each in coming]
        return [KVRequest(each.node_set, each.route, [of[at] for of in of_rank]) for at, each in enumerate(asked)]

    def parted(self, node_set: str, nodes: NDArray[np.int64]) -> RoutedNodes:
        """Nodes by who owns them."""
        route = self._route(node_set, nodes)
        return RoutedNodes(node_set, route, np.split(nodes[route.order], np.cumsum(route.counts)[:-1]))

    def _route(self, node_set: str, nodes: NDArray[np.int64]) -> Route:
        owners = self.book.owners(node_set, nodes)
        # Stable sorts of so short integers take one pass.
        return Route(
            np.argsort(owners.astype(np.uint16), kind="stable"), np.bincount(owners, minlength=self.exchange.size)
        )

    def rows_of(self, asked: Sequence[tuple[str, NDArray[np.int64], NDArray[np.float32]]]) -> list[NDArray[np.float32]]:
        """Rows of nodes, wherever they are.

        Args:
            asked: node set, nodes, and the table of the owned nodes [nodes, width], as every worker has one.
        """
        questions = self.ask([(name, nodes) for name, nodes, _ in asked], "rows asked for")
        return self.answers(questions, [table for _, _, table in asked], "rows")

    def answers(
        self, questions: Sequence[KVRequest], tables: Sequence[NDArray[np.float32]], kind: str
    ) -> list[NDArray[np.float32]]:
        """The rows that questions were about: all workers have asked them together.

        Args:
            questions: of `ask`.
            tables: of the owned nodes [nodes, width], one for each.
            kind: what they are, for `Exchange.sent`.
        """
        own = [
            TableSource(self.book, each.node_set, self.exchange.rank, table)
            for each, table in zip(questions, tables, strict=True)
        ]
        found = self.answered(questions, own, kind)
        return [RemoteRows(table, found.values, where).rows() for table, where in zip(tables, found.where, strict=True)]

    def answered(self, questions: Sequence[KVRequest], sources: Sequence[RowSource], kind: str) -> KVResponse:
        """The same where they came to, of `sources` of any kind."""
        size, mine, pairs = self.exchange.size, self.exchange.rank, list(zip(questions, sources, strict=True))
        lengths = [
            [0 if rank == mine else source.count(asked) * source.width for rank, asked in enumerate(question.asked)]
            for question, source in pairs
        ]
        leaving = [sum(of) for of in zip(*lengths, strict=True)] or [0] * size
        coming = [
            0 if rank == mine else sum(int(each.route.counts[rank]) * source.width for each, source in pairs)
            for rank in range(size)
        ]
        out, at = self.exchange.leaving(sum(leaving), np.float32), 0
        for rank in range(size):
            for (question, source), of in zip(pairs, lengths, strict=True):
                if of[rank]:
                    source.write(read_only(question.asked[rank]), out[at : at + of[rank]])
                at += of[rank]
        values = self.exchange.cross(out, leaving, coming, kind) if pairs else out
        begins = np.cumsum([0, *coming])
        return KVResponse(values, [self._where(question, source.width, begins) for question, source in pairs])

    def _where(self, question: KVRequest, width: int, begins: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `KVResponse`; `begins` says where the next rows of each rank are, and is moved on."""
        order, counts = question.route
        where, ends = np.empty(len(order), np.int64), np.cumsum([0, *counts])
        for rank, count in enumerate(counts.tolist()):
            places = order[ends[rank] : ends[rank + 1]]
            if rank == self.exchange.rank:
                where[places] = self._rows(question, rank)
                continue
            where[places] = ~(begins[rank] + width * np.arange(count))
            begins[rank] += width * count
        return where

    def give(
        self, questions: Sequence[KVRequest], values: Sequence[NDArray[np.float32]], kind: str
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """The other way: values [nodes, width] for the nodes of questions go to their owners.

        Returns:
            For each question rows among the owned nodes, and values for them, by the rank of who has sent them; a row
            may be among them once for each worker.
        """
        size, pairs = self.exchange.size, list(zip(questions, values, strict=True))
        parts = [np.split(given[each.route.order], np.cumsum(each.route.counts)[:-1]) for each, given in pairs]
        out = [np.concatenate([_NONE, *(each[rank].reshape(-1) for each in parts)]) for rank in range(size)]
        coming = [sum(len(each.asked[rank]) * given.shape[1] for each, given in pairs) for rank in range(size)]
        found, at, taken = self.exchange.swap(out, kind, coming), [0] * size, []
        for question, given in pairs:
            width, pieces = given.shape[1], []
            for rank, nodes in enumerate(question.asked):
                pieces.append(found[rank][at[rank] : at[rank] + len(nodes) * width])
                at[rank] += len(nodes) * width
            rows = [self._rows(question, rank) for rank in range(size)]
            taken.append((np.concatenate(rows), np.concatenate(pieces).reshape(-1, width)))
        return taken

    def _rows(self, question: KVRequest, rank: int) -> NDArray[np.int64]:
        """Rows among the owned nodes that a rank has asked for."""
        return self.book.own(question.node_set, question.asked[rank], self.exchange.rank)
