"""Ask the owner: the one primitive by which workers that each have a part of a graph read what others have.

Each worker sends numbers of nodes to those who own them, and gets something of these nodes back. All workers do so at a
time. What a worker owns itself goes the same way without leaving it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from superworkflow.tasks._gnn.book import PartitionBook, Route, RoutedNodes
from superworkflow.tasks._gnn.kernels import read_only
from superworkflow.tasks._gnn.near import RemoteRows
from superworkflow.tasks._gnn.rooms import BufferSizes, SizeKey
from superworkflow.tasks._gnn.shared_buffers import SharedBuffers
from superworkflow.tasks._gnn.sources import RowSource, TableSource
from superworkflow.tasks._memory import Memory

_NONE = np.empty(0, np.float32)


class Exchange:
    """Arrays from each worker to each other.

    Args:
        group: of torch.distributed; one thread at a time may use it.
        memory: where arrays that cross are, for who exchanges arrays of the same sizes again and again. What a thread
            beside the first one frees goes back to the system otherwise, which gives it out again as huge pages full of
            zeros; and what crosses once would stay.
        shared: buffers of the group; without them arrays cross by TCP.

    `sent` counts the bytes that have left this worker, by what they are, `count` the exchanges, and `waited` their
    seconds.
    """

    def __init__(self, group: Any, memory: Memory | None = None, shared: SharedBuffers | None = None):
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        self.sent: dict[str, int] = {}
        self.waited, self.count = 0.0, 0
        self._memory, self._shared = memory, shared
        self._leaving, self._coming = ([BufferSizes() for _ in range(self.size)] for _ in range(2))

    def swap(
        self, outgoing: Sequence[NDArray[Any]], kind: str, coming: Sequence[int] | None = None
    ) -> list[NDArray[Any]]:
        """Send an array [n] or [n, width] to each worker, of one type and width, and get one from each.

        Args:
            outgoing: by rank.
            kind: what they are, for `sent`.
            coming: how long those are that come, by rank; where all workers know it, they need not tell each other.
        """
        counts = [len(each) for each in outgoing]
        if coming is None:
            began = time.monotonic()
            coming = self._all_to_all(torch.tensor(counts), [1] * self.size, [1] * self.size).tolist()
            self.waited += time.monotonic() - began
        return np.split(self.cross(np.concatenate(outgoing), counts, coming, kind), np.cumsum(coming)[:-1])

    def cross(self, out: NDArray[Any], leaving: Sequence[int], coming: Sequence[int], kind: str) -> NDArray[Any]:
        """`swap` of arrays that stand one behind the other by rank, as those do that come.

        Args:
            out: them, [n] or [n, width].
            leaving, coming: lengths, by rank.
            kind: what they are, for `sent`.
        """
        began = time.monotonic()
        received = self._all_to_all(torch.from_numpy(np.ascontiguousarray(out)), leaving, coming).numpy()
        self.waited += time.monotonic() - began
        self._note(kind, (len(out) - leaving[self.rank]) * (out.nbytes // max(1, len(out))))
        return received

    def swap_likely(
        self, outgoing: Sequence[NDArray[np.int64]], kind: str, likely: SizeKey
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
        out, ends = self.leaving(sum(leaving), np.int64), np.cumsum([0, *leaving])
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

    def array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array for what crosses, or is made of it; not filled."""
        return np.empty(shape, dtype) if self._memory is None else self._memory.array(shape, dtype)

    def leaving(self, length: int, dtype: Any) -> NDArray[Any]:
        """An array for what leaves in the next exchange, for which it need not be copied then; not filled."""
        if self._shared is None:
            return self.array((length,), dtype)
        return self._shared.room(length * np.dtype(dtype).itemsize).view(dtype)

    def everyone(self, values: NDArray[Any], kind: str, *, alike: bool = False) -> NDArray[Any]:
        """The arrays of all workers, one after the other by rank; `alike` where all have the same length."""
        coming = [len(values)] * self.size if alike else None
        return np.concatenate(self.swap([values] * self.size, kind, coming))

    def add_up(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of all workers' values [n], float32, the same bits on each of them.

        Args:
            values: of this worker, in what `leaving` has made; not to be read any more.
        """
        self._note("gradients", values.nbytes * (self.size > 1))
        if self._shared is None:
            dist.all_reduce(values, group=self.group)
            return values
        first, *others = (each.view(np.float32) for each in self._shared.everyone(_bytes_of(values)))
        total = first.copy()
        for each in others:
            total += each
        return torch.from_numpy(total)

    def _note(self, kind: str, size: int) -> None:
        self.sent[kind] = self.sent.get(kind, 0) + size

    def _all_to_all(self, out: torch.Tensor, leaving: Sequence[int], coming: Sequence[int]) -> torch.Tensor:
        """One exchange: so many values to each rank, and so many from each."""
        received = torch.from_numpy(self.array((sum(coming), *out.shape[1:]), out.numpy().dtype))
        if self._shared is None:
            dist.all_to_all_single(received, out, list(coming), list(leaving), group=self.group)
        else:
            size = out.element_size() * math.prod(out.shape[1:])
            there, here = ([size * count for count in of] for of in (leaving, coming))
            self._shared.exchange(_bytes_of(out), there, _bytes_of(received), here)
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


def _bytes_of(values: torch.Tensor) -> NDArray[np.uint8]:
    found: NDArray[np.uint8] = values.numpy().reshape(-1).view(np.uint8)
    return found


class KVRequest(NamedTuple):
    """What was asked of the owners of nodes, and what this worker was asked in turn.

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
