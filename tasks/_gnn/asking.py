"""Ask the owner: how workers that each have a part of a graph draw blocks and read rows of all of it.

One primitive serves both. Each worker sends numbers to those who own the nodes, and gets drawn neighbours or rows back;
all workers do so at a time, for a window of batches together, so that there is one exchange for each hop and one for
the rows, however many batches the window has. What a worker owns itself goes the same way without leaving it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from superworkflow.tasks._gnn import streams
from superworkflow.tasks._gnn.batches import Batch, Block, Draws, Hop, numbered
from superworkflow.tasks._gnn.kernels import read_only
from superworkflow.tasks._gnn.network import Known
from superworkflow.tasks._gnn.owned import count_owned, draw_owned
from superworkflow.tasks._gnn.shape import Level, Relation
from superworkflow.tasks._gnn.shards import Piece
from superworkflow.tasks._heterograph import Ragged, index_dtype, take

Targets = Mapping[str, NDArray[np.int64]]
_NONE = np.empty(0, np.int64)


class Exchange:
    """Arrays from each worker to each other.

    Args:
        group: of torch.distributed; one thread at a time may use it.

    `sent` counts the bytes that have left this worker, by what they are.
    """

    def __init__(self, group: Any):
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        self.sent: dict[str, int] = {}

    def swap(self, outgoing: Sequence[NDArray[Any]], kind: str) -> list[NDArray[Any]]:
        """Send an array [n] or [n, width] to each worker, of one type and width, and get one from each.

        Args:
            outgoing: by rank.
            kind: what they are, for `sent`.
        """
        counts = torch.tensor([len(each) for each in outgoing])
        coming = torch.empty_like(counts)
        dist.all_to_all_single(coming, counts, group=self.group)
        out = torch.from_numpy(np.ascontiguousarray(np.concatenate(outgoing)))
        found = torch.empty((int(coming.sum()), *out.shape[1:]), dtype=out.dtype)
        dist.all_to_all_single(found, out, coming.tolist(), counts.tolist(), group=self.group)
        abroad = sum(each.nbytes for rank, each in enumerate(outgoing) if rank != self.rank)
        self.sent[kind] = self.sent.get(kind, 0) + abroad
        return np.split(found.numpy(), np.cumsum(coming.tolist())[:-1])


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


class Route(NamedTuple):
    """How nodes are asked for: places that sort them by owner, and how many each owner has."""

    order: NDArray[np.int64]
    counts: NDArray[np.int64]


class Table:
    """Rows of some nodes, read by their numbers as an array of all nodes would be.

    Args:
        nodes: distinct, int64.
        rows: theirs.
    """

    def __init__(self, nodes: NDArray[np.int64], rows: NDArray[np.float32]):
        self._order = np.argsort(nodes, kind="stable")
        self._nodes, self._given, self._rows = nodes[self._order], nodes, rows

    def __getitem__(self, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        if nodes is self._given:
            return self._rows
        return self._rows[self._order[np.searchsorted(self._nodes, nodes)]]


class Wanted(NamedTuple):
    """A batch that is to be drawn: targets of this worker, and what makes the step another than all others."""

    targets: Targets
    step: tuple[int, ...]


@dataclass
class Store:
    """What a worker has of the graph, and how it asks for the rest.

    Args:
        piece: its parts.
        book: who owns what.
        exchange: with the others.
        draws: how neighbours are drawn.
        sums: by number of the edge set, sums of its nodes' neighbours' features.
        scaled: give degrees of nodes, of the one edge set, with the rows.
        gathered: node sets whose features are read.
    """

    piece: Piece
    book: Book
    exchange: Exchange
    draws: Draws
    sums: Mapping[int, NDArray[np.float32]]
    scaled: bool
    gathered: frozenset[str]

    def __post_init__(self) -> None:
        rows = self.piece.rows.values()
        most = max((int(np.diff(each.indptr).max(initial=0)) for each in rows), default=0)
        self._marks = np.zeros((most >> 6) + 1, np.uint64)
        self._found = {name: np.full(len(order), -1, np.int32) for name, order in self.book.orders.items()}

    def batches(self, window: Sequence[Wanted]) -> list[tuple[Batch, Known]]:
        """The blocks around targets, and what the network reads of their nodes; all workers ask for as many."""
        receivers = [{name: np.sort(nodes) for name, nodes in each.targets.items()} for each in window]
        targets, made = [dict(each) for each in receivers], [list[Block]() for _ in window]
        for hop, level in enumerate(reversed(self.draws.levels)):
            receivers = [{name: each.get(name, _NONE) for name in level.receivers} for each in receivers]
            hops = self._drawn(level, hop, window, receivers)
            for at, (wanted, given, drawn) in enumerate(zip(window, receivers, hops, strict=True)):
                block = self._block(level, hop, wanted.step, given, drawn)
                made[at].append(block)
                receivers[at] = dict(block.senders)
        batches = [Batch(of, tuple(reversed(blocks))) for of, blocks in zip(targets, made, strict=True)]
        return list(zip(batches, self._known(batches), strict=True))

    def _route(self, node_set: str, nodes: NDArray[np.int64]) -> Route:
        owners = self.book.owners(node_set, nodes)
        return Route(np.argsort(owners, kind="stable"), np.bincount(owners, minlength=self.exchange.size))

    def _ask(self, asked: Sequence[tuple[str, NDArray[np.int64]]], kind: str) -> tuple[list[Route], list[list[Any]]]:
        """Send nodes to their owners: the routes, and by rank what this worker is asked for, in the same order."""
        routes = [self._route(*each) for each in asked]
        lists: list[list[NDArray[np.int64]]] = [
            [np.array([route.counts[rank] for route in routes], np.int64)] for rank in range(self.exchange.size)
        ]
        for route, (_, nodes) in zip(routes, asked, strict=True):
            cuts = np.cumsum(route.counts)[:-1]
            for rank, part in enumerate(np.split(nodes[route.order], cuts)):
                lists[rank].append(part)
        coming = self.exchange.swap([np.concatenate(each) for each in lists], kind)
        return routes, [
            np.split(each[len(asked) :], np.cumsum(each[: len(asked)])[:-1]) if len(asked) else [] for each in coming
        ]

    def _own(self, node_set: str, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of owned nodes among this worker's."""
        return self.book.places[node_set][nodes].astype(np.int64) - self.piece.low[node_set]

    def _drawn(
        self, level: Level, hop: int, window: Sequence[Wanted], receivers: Sequence[Targets]
    ) -> list[dict[int, Hop]]:
        """Drawn edges of each batch by edge set; senders by their old numbers."""
        last = hop == len(self.draws.levels) - 1
        relations = [each for each in level.relations if not (last and each.number in self.draws.summed)]
        asked = [(each.receivers, given[each.receivers]) for given in receivers for each in relations]
        routes, coming = self._ask(asked, "neighbours asked for")
        answers = [
            np.concatenate([
                _NONE,
                *(
                    self._answer(relations[at % len(relations)], hop, window[at // len(relations)].step, nodes)
                    for at, nodes in enumerate(of_rank)
                ),
            ])
            for of_rank in coming
        ]  # fmt: skip
        found = self.exchange.swap(answers, "neighbours")
        at = [0] * self.exchange.size
        hops: list[dict[int, Hop]] = [{} for _ in window]
        for number, route in enumerate(routes):
            hops[number // len(relations)][relations[number % len(relations)].number] = _joined(route, found, at)
        return hops

    def _answer(
        self, relation: Relation, hop: int, step: tuple[int, ...], nodes: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Counts and degrees of some receivers, and the senders and positions of their drawn edges."""
        indptr, indices = map(read_only, self.piece.rows[relation.number])
        rows, order = self._own(relation.receivers, nodes), self.book.orders[relation.senders]
        state = np.uint64(streams.state(self.draws.seed, streams.DRAW, *step, hop, relation.number))
        starts, size = np.empty(len(rows) + 1, np.int64), self.draws.fanouts[hop]
        count_owned(indptr, indices, order, rows, size, self.draws.labor, state, starts)
        senders, positions = np.empty(starts[-1], np.int64), np.empty(starts[-1], np.int64)
        begins = read_only(self.piece.first[relation.number])
        draw_owned(
            indptr, indices, order, begins, rows, read_only(nodes), size, self.draws.labor, state, starts,
            self._marks, senders, positions,
        )  # fmt: skip
        return np.concatenate([np.diff(starts), indptr[rows + 1] - indptr[rows], senders, positions])

    def _block(
        self, level: Level, hop: int, step: tuple[int, ...], receivers: Targets, drawn: Mapping[int, Hop]
    ) -> Block:
        given = {}
        for relation in level.relations:
            if relation.number in drawn:
                kind = index_dtype(len(self._found[relation.senders]))
                nodes = read_only(drawn[relation.number].senders.astype(kind))
                given[relation.number] = nodes, np.arange(len(nodes))
        senders_of, places = numbered(level, receivers, given, self._found)
        hops = {number: each._replace(senders=places[number]) for number, each in drawn.items()}
        masks = streams.state(self.draws.seed, streams.MASK, *step, len(self.draws.levels) - 1 - hop)
        return Block(dict(receivers), senders_of, hops, masks, {})

    def _known(self, batches: Sequence[Batch]) -> list[Known]:
        """Features, sums and degrees of the nodes of each batch."""
        asked: list[tuple[str, NDArray[np.int64], str, NDArray[np.float32]]] = []
        summed = [each for each in self.draws.levels[0].relations if each.number in self.draws.summed]
        for batch in batches:
            block = batch.blocks[0]
            for name, nodes in block.senders.items():
                if name in self.gathered:
                    asked.append((name, nodes, f"features {name}", self.piece.features[name]))
                if self.scaled:
                    asked.append((name, nodes, "degrees", self.degrees))
            for relation in summed:
                name = relation.receivers
                asked.append((name, block.receivers[name], f"sums {relation.number}", self.sums[relation.number]))
        rows = self.rows_of([(name, nodes, values) for name, nodes, _, values in asked])
        tables = [Table(nodes, each) for (_, nodes, _, _), each in zip(asked, rows, strict=True)]
        share = len(asked) // max(1, len(batches))
        found = []
        for at in range(len(batches)):
            of = {asked[i][2]: tables[i] for i in range(at * share, (at + 1) * share)}
            features: Any = {name: of[f"features {name}"] for name in self.gathered if f"features {name}" in of}
            sums: Any = {each.number: of[f"sums {each.number}"] for each in summed} or None
            degrees: Any = _Flat(of["degrees"]) if self.scaled else None
            found.append(Known(features, degrees, sums))
        return found

    @property
    def degrees(self) -> NDArray[np.float32]:
        """Of the owned nodes in the one edge set, float32 [nodes, 1]."""
        (rows,) = self.piece.rows.values()
        return np.diff(rows.indptr).astype(np.float32)[:, None]

    def rows_of(self, asked: Sequence[tuple[str, NDArray[np.int64], NDArray[np.float32]]]) -> list[NDArray[np.float32]]:
        """Rows of nodes, wherever they are.

        Args:
            asked: node set, nodes, and the table of the owned nodes [nodes, width], as every worker has one.
        """
        routes, coming = self._ask([(name, nodes) for name, nodes, _ in asked], "rows asked for")
        answers = [
            np.concatenate([
                np.empty(0, np.float32),
                *(
                    table[self._own(name, nodes)].reshape(-1)
                    for (name, _, table), nodes in zip(asked, of_rank, strict=True)
                ),
            ])
            for of_rank in coming
        ]  # fmt: skip
        found = self.exchange.swap(answers, "rows")
        at, rows = [0] * self.exchange.size, []
        for route, (_, nodes, table) in zip(routes, asked, strict=True):
            width, pieces = table.shape[1], []
            for rank, count in enumerate(route.counts.tolist()):
                pieces.append(found[rank][at[rank] : at[rank] + count * width])
                at[rank] += count * width
            whole = np.empty((len(nodes), width), np.float32)
            whole[route.order] = np.concatenate(pieces).reshape(-1, width)
            rows.append(whole)
        return rows


class _Flat:
    """A table of one column, read as an array of one dimension."""

    def __init__(self, table: Table):
        self._table = table

    def __getitem__(self, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._table[nodes][:, 0]


def _joined(route: Route, found: Sequence[NDArray[np.int64]], at: list[int]) -> Hop:
    """The edges of some receivers in their order, from the answers of their owners, which begin at `at`."""
    counts, degrees, senders, positions = [], [], [], []
    for rank, count in enumerate(route.counts.tolist()):
        own, start = found[rank], at[rank]
        counts.append(own[start : start + count])
        degrees.append(own[start + count : start + 2 * count])
        edges, start = int(counts[-1].sum()), start + 2 * count
        senders.append(own[start : start + edges])
        positions.append(own[start + edges : start + 2 * edges])
        at[rank] = start + 2 * edges
    starts = np.zeros(len(route.order) + 1, np.int64)
    np.cumsum(np.concatenate(counts), out=starts[1:])
    back = np.empty_like(route.order)
    back[route.order] = np.arange(len(back))
    drawn = take(Ragged(np.concatenate(senders), starts), back)
    places = take(Ragged(np.concatenate(positions), starts), back)
    return Hop(drawn.starts, drawn.values, places.values, np.concatenate(degrees)[back])
