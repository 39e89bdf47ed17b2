"""Ask the owner: the one primitive by which workers that each have a part of a graph read what others have.

Each worker sends numbers of nodes to those who own them, and gets something of these nodes back. All workers do so at a
time. What a worker owns itself goes the same way without leaving it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from superworkflow.tasks._gnn.kernels import read_only

_NONE = np.empty(0, np.float32)


class Exchange:
    """Arrays from each worker to each other.

    Args:
        group: of torch.distributed; one thread at a time may use it.

    `sent` counts the bytes that have left this worker, by what they are, and `waited` the seconds of exchanges.
    """

    def __init__(self, group: Any):
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        self.sent: dict[str, int] = {}
        self.waited = 0.0

    def swap(
        self, outgoing: Sequence[NDArray[Any]], kind: str, coming: Sequence[int] | None = None
    ) -> list[NDArray[Any]]:
        """Send an array [n] or [n, width] to each worker, of one type and width, and get one from each.

        Args:
            outgoing: by rank.
            kind: what they are, for `sent`.
            coming: how long those are that come, by rank; where all workers know it, they need not tell each other.
        """
        began, counts = time.monotonic(), [len(each) for each in outgoing]
        if coming is None:
            found = torch.empty(self.size, dtype=torch.int64)
            self._all_to_all(found, torch.tensor(counts), None, None)
            coming = found.tolist()
        out = torch.from_numpy(np.ascontiguousarray(np.concatenate(outgoing)))
        received = torch.empty((sum(coming), *out.shape[1:]), dtype=out.dtype)
        self._all_to_all(received, out, list(coming), counts)
        self.waited += time.monotonic() - began
        abroad = sum(each.nbytes for rank, each in enumerate(outgoing) if rank != self.rank)
        self.sent[kind] = self.sent.get(kind, 0) + abroad
        return np.split(received.numpy(), np.cumsum(coming)[:-1])

    def everyone(self, values: NDArray[Any], kind: str) -> NDArray[Any]:
        """The arrays of all workers, one after the other by rank."""
        return np.concatenate(self.swap([values] * self.size, kind))

    def _all_to_all(
        self, coming: torch.Tensor, out: torch.Tensor, sizes: list[int] | None, counts: list[int] | None
    ) -> None:
        dist.all_to_all_single(coming, out, sizes, counts, group=self.group)


class Book:
    """Who owns which nodes, by their old numbers.

    Args:
        orders: old number of each new one, by node set.
        bounds: new numbers at which each worker's begin, and the end, by node set.
    """

    def __init__(self, orders: Mapping[str, NDArray[Any]], bounds: Mapping[str, NDArray[np.int64]]):
        self.orders = {name: read_only(order) for name, order in orders.items()}
        self.bounds = dict(bounds)
        self.places = {}
        for name, order in orders.items():
            places = np.empty_like(order)
            places[order] = np.arange(len(order), dtype=order.dtype)
            self.places[name] = places

    def owners(self, node_set: str, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rank of the owner of each node."""
        return np.searchsorted(self.bounds[node_set][1:], self.places[node_set][nodes], "right")

    def own(self, node_set: str, nodes: NDArray[np.int64], rank: int) -> NDArray[np.int64]:
        """Rows of nodes among those of their owner."""
        return self.places[node_set][nodes].astype(np.int64) - int(self.bounds[node_set][rank])


class Route(NamedTuple):
    """How nodes are asked for: places that sort them by owner, and how many each owner has."""

    order: NDArray[np.int64]
    counts: NDArray[np.int64]


class Question(NamedTuple):
    """Nodes whose rows are asked for, and what this worker was asked for in turn.

    Args:
        node_set: of the nodes.
        route: of this worker's.
        asked: by rank, old numbers of nodes that this worker owns.
    """

    node_set: str
    route: Route
    asked: list[NDArray[np.int64]]


class Owners:
    """Asks the owners of nodes.

    Args:
        book: who owns what.
        exchange: with the others.
    """

    def __init__(self, book: Book, exchange: Exchange):
        self.book, self.exchange = book, exchange

    def ask(self, asked: Sequence[tuple[str, NDArray[np.int64]]], kind: str) -> list[Question]:
        """Send nodes to their owners, of as many lists as every worker has."""
        routes = [self._route(*each) for each in asked]
        lists: list[list[NDArray[np.int64]]] = [
            [np.array([route.counts[rank] for route in routes], np.int64)] for rank in range(self.exchange.size)
        ]
        for route, (_, nodes) in zip(routes, asked, strict=True):
            cuts = np.cumsum(route.counts)[:-1]
            for rank, part in enumerate(np.split(nodes[route.order], cuts)):
                lists[rank].append(part)
        coming = self.exchange.swap([np.concatenate(each) for each in lists], kind)
        of_rank = [
            np.split(each[len(asked) :], np.cumsum(each[: len(asked)])[:-1]) if len(asked) else [] for each in coming
        ]
        return [
            Question(name, route, [each[at] for each in of_rank])
            for at, (route, (name, _)) in enumerate(zip(routes, asked, strict=True))
        ]

    def _route(self, node_set: str, nodes: NDArray[np.int64]) -> Route:
        owners = self.book.owners(node_set, nodes)
        return Route(np.argsort(owners, kind="stable"), np.bincount(owners, minlength=self.exchange.size))

    def rows_of(self, asked: Sequence[tuple[str, NDArray[np.int64], NDArray[np.float32]]]) -> list[NDArray[np.float32]]:
        """Rows of nodes, wherever they are.

        Args:
            asked: node set, nodes, and the table of the owned nodes [nodes, width], as every worker has one.
        """
        questions = self.ask([(name, nodes) for name, nodes, _ in asked], "rows asked for")
        return self.answers(questions, [table for _, _, table in asked], "rows")

    def answers(
        self, questions: Sequence[Question], tables: Sequence[NDArray[np.float32]], kind: str
    ) -> list[NDArray[np.float32]]:
        """The rows that questions were about: all workers have asked them together.

        Args:
            questions: see there.
            tables: of the owned nodes [nodes, width], one for each.
            kind: what they are, for `Exchange.sent`.
        """
        size, pairs = self.exchange.size, list(zip(questions, tables, strict=True))
        out = [
            np.concatenate([_NONE, *(table[self._rows(each, rank)].reshape(-1) for each, table in pairs)])
            for rank in range(size)
        ]
        coming = [sum(int(each.route.counts[rank]) * table.shape[1] for each, table in pairs) for rank in range(size)]
        found = self.exchange.swap(out, kind, coming)
        at, rows = [0] * size, []
        for question, table in pairs:
            width, pieces = table.shape[1], []
            for rank, count in enumerate(question.route.counts.tolist()):
                pieces.append(found[rank][at[rank] : at[rank] + count * width])
                at[rank] += count * width
            whole = np.empty((len(question.route.order), width), np.float32)
            whole[question.route.order] = np.concatenate(pieces).reshape(-1, width)
            rows.append(whole)
        return rows

    def give(
        self, questions: Sequence[Question], values: Sequence[NDArray[np.float32]], kind: str
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

    def _rows(self, question: Question, rank: int) -> NDArray[np.int64]:
        """Rows among the owned nodes that a rank has asked for."""
        return self.book.own(question.node_set, question.asked[rank], self.exchange.rank)
