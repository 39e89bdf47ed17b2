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
from superworkflow.tasks._gnn.rooms import Likely, Rooms

_NONE = np.empty(0, np.float32)


class Exchange:
    """Arrays from each worker to each other.

    Args:
        group: of torch.distributed; one thread at a time may use it.

    `sent` counts the bytes that have left this worker, by what they are, `count` the exchanges, and `waited` their
    seconds.
    """

    def __init__(self, group: Any):
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        self.sent: dict[str, int] = {}
        self.waited, self.count = 0.0, 0
        self._leaving, self._coming = ([Rooms() for _ in range(self.size)] for _ in range(2))

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
            coming = self._all_to_all(torch.tensor(counts), [1] * self.size, [1] * self.size).tolist()
        out = torch.from_numpy(np.ascontiguousarray(np.concatenate(outgoing)))
        received = self._all_to_all(out, counts, coming).numpy()
        self.waited += time.monotonic() - began
        self._note(kind, sum(each.nbytes for rank, each in enumerate(outgoing) if rank != self.rank))
        return np.split(received, np.cumsum(coming)[:-1])

    def swap_likely(
        self, outgoing: Sequence[NDArray[np.int64]], kind: str, likely: Likely
    ) -> list[NDArray[np.int64]]:  # fmt: skip
        """Send an array of integers to each worker and get one from each, whose lengths come with them.

        There is room for as many as such arrays had before; those who have more for another worker send it the rest.

        Args:
            outgoing: by rank.
            kind: what they are, for `sent`.
            likely: how long they may be.
        """
        began, others = time.monotonic(), [rank for rank in range(self.size) if rank != self.rank]
        leaving, coming = [0] * self.size, [0] * self.size
        for rank in others:  # and the length before each
            leaving[rank] = 1 + self._leaving[rank].room(likely)
            coming[rank] = 1 + self._coming[rank].room(likely)
        out, ends = np.zeros(sum(leaving), np.int64), np.cumsum([0, *leaving])
        for rank in others:
            first = outgoing[rank][: leaving[rank] - 1]
            out[ends[rank]] = len(outgoing[rank])
            out[ends[rank] + 1 : ends[rank] + 1 + len(first)] = first
        received = self._all_to_all(torch.from_numpy(out), leaving, coming).numpy()
        pieces = np.split(received, np.cumsum(coming)[:-1])
        lengths = {rank: int(pieces[rank][0]) for rank in others}
        more = {rank: length + 1 - coming[rank] for rank, length in lengths.items() if length >= coming[rank]}
        rest = {rank: outgoing[rank][leaving[rank] - 1 :] for rank in others if len(outgoing[rank]) >= leaving[rank]}
        added = self._send_rest(rest, more) if rest or more else {}
        found = list(outgoing)
        for rank in others:
            found[rank] = pieces[rank][1 : 1 + lengths[rank]]
            if rank in added:
                found[rank] = np.concatenate([found[rank], added[rank]])
            self._leaving[rank].note(likely, len(outgoing[rank]))
            self._coming[rank].note(likely, lengths[rank])
        self.waited += time.monotonic() - began
        self._note(kind, out.nbytes + sum(each.nbytes for each in rest.values()))
        return found

    def everyone(self, values: NDArray[Any], kind: str, *, alike: bool = False) -> NDArray[Any]:
        """The arrays of all workers, one after the other by rank; `alike` where all have the same length."""
        coming = [len(values)] * self.size if alike else None
        return np.concatenate(self.swap([values] * self.size, kind, coming))

    def _note(self, kind: str, size: int) -> None:
        self.sent[kind] = self.sent.get(kind, 0) + size

    def _all_to_all(self, out: torch.Tensor, leaving: Sequence[int], coming: Sequence[int]) -> torch.Tensor:
        """One exchange: so many values to each rank, and so many from each."""
        received = torch.empty((sum(coming), *out.shape[1:]), dtype=out.dtype)
        dist.all_to_all_single(received, out, list(coming), list(leaving), group=self.group)
        self.count += 1
        return received

    def _send_rest(
        self, leaving: Mapping[int, NDArray[np.int64]], coming: Mapping[int, int]
    ) -> dict[int, NDArray[np.int64]]:
        """Another exchange, of those alone who have something for each other, and know it."""
        found = {rank: torch.empty(length, dtype=torch.int64) for rank, length in coming.items()}
        running = [dist.irecv(each, group=self.group, group_src=rank) for rank, each in found.items()]
        for rank, each in leaving.items():
            out = torch.from_numpy(np.ascontiguousarray(each))
            running.append(dist.isend(out, group=self.group, group_dst=rank))
        for work in running:
            assert work is not None
            work.wait()
        self.count += 1
        return {rank: each.numpy() for rank, each in found.items()}


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

    def ask(
        self, asked: Sequence[tuple[str, NDArray[np.int64]]], kind: str, likely: Likely | None = None
    ) -> list[Question]:
        """Send nodes to their owners, of as many lists as every worker has.

        Args:
            asked: node set and nodes of each list.
            kind: what they are, for `Exchange.sent`.
            likely: how many they may be, where that can be reckoned: it saves an exchange.
        """
        if not asked:
            return []
        routes = [self._route(*each) for each in asked]
        lists: list[list[NDArray[np.int64]]] = [
            [np.array([route.counts[rank] for route in routes], np.int64)] for rank in range(self.exchange.size)
        ]
        for route, (_, nodes) in zip(routes, asked, strict=True):
            cuts = np.cumsum(route.counts)[:-1]
            for rank, part in enumerate(np.split(nodes[route.order], cuts)):
                lists[rank].append(part)
        out = [np.concatenate(each) for each in lists]
        coming = self.exchange.swap_likely(out, kind, likely) if likely else self.exchange.swap(out, kind)
        of_rank = [np.split(each[len(asked) :], np.cumsum(each[: len(asked)])[:-1]) for each in coming]
        return [
            Question(name, route, [each[at] for each in of_rank])
            for at, (route, (name, _)) in enumerate(zip(routes, asked, strict=True))
        ]

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
        self, questions: Sequence[Question], tables: Sequence[NDArray[np.float32]], kind: str
    ) -> list[NDArray[np.float32]]:
        """The rows that questions were about: all workers have asked them together.

        Args:
            questions: see there.
            tables: of the owned nodes [nodes, width], one for each.
            kind: what they are, for `Exchange.sent`.
        """
        size, mine, pairs = self.exchange.size, self.exchange.rank, list(zip(questions, tables, strict=True))
        if not pairs:
            return []
        others = [rank for rank in range(size) if rank != mine]
        out, coming = [_NONE] * size, [0] * size
        for rank in others:
            out[rank] = np.concatenate(
                [table[self._rows(each, rank)].reshape(-1) for each, table in pairs], dtype=np.float32
            )
            coming[rank] = sum(int(each.route.counts[rank]) * table.shape[1] for each, table in pairs)
        found = self.exchange.swap(out, kind, coming)
        at, rows = [0] * size, []
        for question, table in pairs:
            width, order, counts = table.shape[1], question.route.order, question.route.counts
            whole, ends = np.empty((len(order), width), np.float32), np.cumsum([0, *counts])
            whole[order[ends[mine] : ends[mine + 1]]] = table[self._rows(question, mine)]
            for rank in others:
                values = found[rank][at[rank] : at[rank] + counts[rank] * width]
                whole[order[ends[rank] : ends[rank + 1]]] = values.reshape(-1, width)
                at[rank] += len(values)
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
