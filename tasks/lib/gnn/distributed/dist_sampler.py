"""Distributed sampler: each worker has parts of the graph, draws blocks and pulls rows from the nodes' owners.

Sampling is collective, for a window of batches at a time. A window takes two exchanges for each hop and two for the
rows, whatever its length: nodes to their owners, and the responses back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.distributed.buffer_sizes import SizeKey
from superworkflow.tasks.lib.distributed.kv_store import KVRequest, KVStore, RemoteRows, RowSource, TableSource
from superworkflow.tasks.lib.distributed.partition_book import Route, RoutedNodes
from superworkflow.tasks.lib.distributed.shards import LocalPartition
from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.distributed.edge_split import EdgeSplit, NewArray, divided
from superworkflow.tasks.lib.gnn.distributed.feature_window import WindowRows
from superworkflow.tasks.lib.gnn.distributed.kernels import place_edges, place_in_rows, rename
from superworkflow.tasks.lib.gnn.distributed.partial_sums import PartialSumSource
from superworkflow.tasks.lib.gnn.edge_weights import degrees_of
from superworkflow.tasks.lib.gnn.model.dropout import dropout_threshold, of_senders
from superworkflow.tasks.lib.gnn.model.network import NetworkInputs
from superworkflow.tasks.lib.gnn.model.remote_rows import RowTable, SharedMeansPart
from superworkflow.tasks.lib.gnn.pipeline_timer import PipelineTimer
from superworkflow.tasks.lib.gnn.relations import LayerSchema, Relation
from superworkflow.tasks.lib.gnn.sampler.block import Block, Hop, Lost, MiniBatch
from superworkflow.tasks.lib.gnn.sampler.kernels import Renumbered, count_draws, draw_edges
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws, numbered
from superworkflow.tasks.lib.gnn.sampler.time_copies import TimeCopies
from superworkflow.tasks.lib.gnn.sampler.time_draws import NO_LIMIT, ByTime, Receivers
from superworkflow.tasks.lib.gnn.sampler.weighted_draws import ByWeight
from superworkflow.tasks.lib.graph.heterograph import index_dtype
from superworkflow.tasks.lib.kernels.arrays import read_only

Targets = Mapping[str, NDArray[np.int64]]
_NONE = np.empty(0, np.int64)
_COLUMNS = (np.int64, np.int64, np.float32)
"""Types of the columns returned per edge: senders, positions, weights."""
_NOTHING_LOST = read_only(_NONE)


class BatchRequest(NamedTuple):
    """A batch to draw.

    Args:
        targets: this worker's targets.
        step: key of the step.
        lost: by number of the edge set, edges that pass no messages in this step, of all workers.
        items: number of the step's items, of all workers.
        dropout: share of entries of senders' rows that are dropped.
        limits: by node set, a time for each target, which are then ascending with them; see `NeighborSampler.batch`.
        times: times of the step's items, of all workers; None where they have none.
    """

    targets: Targets
    step: tuple[int, ...]
    lost: Mapping[int, Lost] = MappingProxyType({})
    items: int = 0
    dropout: float = 0.0
    limits: Mapping[str, NDArray[np.int64]] | None = None
    times: NDArray[np.int64] | None = None


@dataclass
class BatchInputs(NetworkInputs):
    """Inputs of one batch: all but learned rows, which are pulled in the batch's own step."""

    learned_rows: list[KVRequest] = field(default_factory=list)


@dataclass
class DistNeighborSampler:
    """Sampler of a worker that has parts of the graph and pulls the rest.

    Args:
        piece: the worker's parts.
        store: access to the rows of all nodes.
        draws: rules by which neighbours are drawn.
        sums: by number of the edge set, sums of the owned nodes' neighbours' features.
        scaled: also pull degrees of nodes, of the one edge set.
        gathered: node sets whose features are read.
        learned: node sets whose rows are learned.
        numbers: numbers of the node sets in random streams.
        weights: by number of the edge set, float32 weights of the owned edges that multiply messages; they are sent
            with drawn edges.
        edge_features: likewise, features that layers read, float32 [edges, values], which are sent with drawn edges.
        drawn_by: likewise, weights in proportion to which edges are drawn; they are not sent.
        times: likewise, int64 times of edges.
        spent: seconds by stage of the pipeline.
    """

    piece: LocalPartition
    store: KVStore
    draws: Draws
    sums: Mapping[int, NDArray[np.float32]]
    scaled: bool
    gathered: frozenset[str]
    learned: tuple[str, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    edge_features: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    drawn_by: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    times: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)
    spent: PipelineTimer = field(default_factory=PipelineTimer)

    def __post_init__(self) -> None:
        rows = self.piece.rows.values()
        most = max((int(np.diff(each.indptr).max(initial=0)) for each in rows), default=0)
        self._marks = np.zeros((most >> 6) + 1, np.uint64)
        self._found = {name: np.full(len(order), -1, np.int32) for name, order in self.store.book.orders.items()}
        self._by_weight = ByWeight(self.piece.rows, self.drawn_by, self.draws.fanouts)
        self._by_time = ByTime(self.piece.rows, self.times, self.draws.fanouts, self.draws.latest)

    def batches(self, window: Sequence[BatchRequest]) -> list[tuple[MiniBatch, BatchInputs]]:
        """Blocks around targets, and the network's inputs. Collective: all workers' windows have equal lengths."""
        counts = {name: len(order) for name, order in self.store.book.orders.items()}
        copies = [None if each.times is None else TimeCopies(np.unique(each.times), counts) for each in window]
        targets = [
            {name: nodes if each.limits else np.sort(nodes) for name, nodes in each.targets.items()} for each in window
        ]
        receivers: list[Targets] = [
            {name: each.of(name, nodes, batch.limits[name]) for name, nodes in given.items()}
            if each is not None and batch.limits is not None else given
            for each, given, batch in zip(copies, targets, window, strict=True)
        ]  # fmt: skip
        made = [list[Block]() for _ in window]
        for hop, level in enumerate(reversed(self.draws.levels)):
            receivers = [{name: each.get(name, _NONE) for name in level.receivers} for each in receivers]
            with self.spent.on("sample"):
                hops = self._drawn(level, hop, window, receivers, copies)
            with self.spent.on("compact"):
                for i, (request, given, drawn) in enumerate(zip(window, receivers, hops, strict=True)):
                    block = self._block(level, hop, request, given, drawn, copies[i])
                    receivers[i] = dict(block.senders)
                    made[i].append(block if (named := copies[i]) is None else named.named(block))
        batches = [MiniBatch(nodes, tuple(reversed(blocks))) for nodes, blocks in zip(targets, made, strict=True)]
        with self.spent.on("gather"):
            return list(zip(batches, self._inputs(batches, window), strict=True))

    def _drawn(
        self, level: LayerSchema, hop: int, window: Sequence[BatchRequest], receivers: Sequence[Targets],
        copies: Sequence[TimeCopies | None],
    ) -> list[dict[int, Hop]]:  # fmt: skip
        """Drawn edges of each batch by edge set; senders by their old numbers, but of direct edge sets by new ones."""
        last = hop == len(self.draws.levels) - 1
        relations = [each for each in level.relations if not (last and each.number in self.draws.summed)]
        if not relations:
            return [{} for _ in window]
        routed = [
            self._routed(each.receivers, given[each.receivers], of_batch)
            for given, of_batch in zip(receivers, copies, strict=True) for each in relations
        ]  # fmt: skip
        items = sum(each.items for each in window)
        requests = self.store.send(routed, "neighbours asked for", SizeKey(f"receivers, hop {hop}", items))
        exchange, responses = self.store.exchange, []
        for rank in range(exchange.size):
            parts = [_NONE]
            for number, each in enumerate(requests):
                relation, place = relations[number % len(relations)], number // len(relations)
                parts += self._response(relation, hop, window[place], each.received[rank], copies[place])
            out = exchange.array((sum(map(len, parts)),), np.int64)
            responses.append(np.concatenate(parts, out=out))
        found = exchange.swap_likely(responses, "neighbours", SizeKey(f"senders, hop {hop}", items))
        begins = [0] * exchange.size
        hops: list[dict[int, Hop]] = [{} for _ in window]
        for number, each in enumerate(requests):
            edge_set = relations[number % len(relations)].number
            kinds, width = _COLUMNS[: 2 + (edge_set in self.weights)], 0
            if self._is_direct(hop, edge_set):
                kinds = _COLUMNS[:1]
            elif edge_set in self.edge_features:
                width = self.edge_features[edge_set].shape[1]
            hops[number // len(relations)][edge_set] = _joined(each.route, found, begins, kinds, width, exchange.array)
        return hops

    def _routed(self, name: str, receivers: NDArray[np.int64], copies: TimeCopies | None) -> RoutedNodes:
        """Receivers by the owners of their nodes."""
        if copies is None:
            return self.store.route(name, receivers)
        found = self.store.route(name, copies.nodes(name, receivers))
        parts = np.split(receivers[found.route.order], np.cumsum(found.route.counts)[:-1])
        return found._replace(parts=parts)

    def _response(
        self, relation: Relation, hop: int, batch: BatchRequest, nodes: NDArray[np.int64], copies: TimeCopies | None
    ) -> list[NDArray[np.int64]]:
        """Counts and degrees of some receivers, senders of their drawn edges and, unless the edge set is direct,
        positions and any weights and features."""
        indptr, indices = map(read_only, self.piece.rows[relation.number])
        book, exchange = self.store.book, self.store.exchange
        limits = np.full(len(nodes), NO_LIMIT)
        if copies is not None:
            limits, nodes = copies.limits(relation.receivers, nodes), copies.nodes(relation.receivers, nodes)
        rows = book.own(relation.receivers, nodes, exchange.rank)
        degrees = indptr[rows + 1] - indptr[rows]
        state = np.uint64(random_streams.state(self.draws.seed, random_streams.DRAW, *batch.step, hop, relation.number))
        starts = np.empty(len(rows) + 1, np.int64)
        whole = Renumbered(book.orders[relation.senders], read_only(self.piece.first[relation.number]))
        lost = batch.lost[relation.number].positions if relation.number in batch.lost else _NOTHING_LOST
        size = self.draws.fanouts[hop]
        if self._by_time.draws(relation.number, size, copies is not None):
            receivers = Receivers(rows, nodes, limits)
            positions = self._by_time.positions(relation.number, receivers, size, state, lost, starts, degrees, whole)
        elif self._by_weight.draws(relation.number, size):
            positions = self._by_weight.positions(
                relation.number, rows, read_only(nodes), size, state, lost, starts, whole
            )
        else:
            how = size, self.draws.labor, state, lost, starts, whole
            count_draws(indptr, indices, rows, *how)
            positions = exchange.array((int(starts[-1]),), np.int64)
            draw_edges(indptr, indices, rows, read_only(nodes), *how, self._marks, positions)
        senders = exchange.array((len(positions),), np.int64)
        place_in_rows(indptr, rows, whole.begins, starts, positions, senders)
        of_edges = [
            _packed(table[relation.number][senders].reshape(-1))
            for table in (self.weights, self.edge_features) if relation.number in table
        ]  # fmt: skip
        rename(indices, senders)
        columns = [np.diff(starts), degrees, senders]
        if self._is_direct(hop, relation.number):
            return columns
        rename(whole.order, senders)
        return [*columns, positions, *of_edges]

    def _is_direct(self, hop: int, number: int) -> bool:
        """True if the first layer reads means of an edge set's neighbours, which the owners sum."""
        return hop == len(self.draws.levels) - 1 and number in self.draws.direct

    def _block(
        self, level: LayerSchema, hop: int, batch: BatchRequest, receivers: Targets, drawn: Mapping[int, Hop],
        copies: TimeCopies | None,
    ) -> Block:  # fmt: skip
        given = {}
        for relation in level.relations:
            if relation.number in drawn and not self._is_direct(hop, relation.number):
                kind = index_dtype(len(self._found[relation.senders]))
                nodes = read_only(drawn[relation.number].senders.astype(kind))
                given[relation.number] = nodes, np.arange(len(nodes))
        if copies is None:
            senders_of, places = numbered(level, receivers, given, self._found)
        else:
            senders_of, places = copies.numbered(level, receivers, given, {j: drawn[j].starts for j in given})
        hops = {}
        for relation in level.relations:
            if relation.number in drawn:
                hop_of = drawn[relation.number]
                size, number = self.draws.fanouts[hop], relation.number
                lost = None if self._by_time.draws(number, size, copies is not None) else batch.lost.get(number)
                nodes = receivers[relation.receivers]
                nodes = nodes if copies is None else copies.nodes(relation.receivers, nodes)
                gone = 0 if lost is None else lost.counts(nodes)
                degrees = hop_of.degrees - gone
                senders = places.get(relation.number, hop_of.senders)
                hops[relation.number] = hop_of._replace(senders=senders, degrees=degrees)
        masks = random_streams.state(
            self.draws.seed, random_streams.MASK, *batch.step, len(self.draws.levels) - 1 - hop
        )
        return Block(dict(receivers), senders_of, hops, masks, batch.lost)

    def _inputs(self, batches: Sequence[MiniBatch], window: Sequence[BatchRequest]) -> list[BatchInputs]:
        """Network inputs of each batch, and requests for learned rows."""
        store, first = self.store, self.draws.levels[0].relations
        summed = [each for each in first if each.number in self.draws.summed]
        direct = [each for each in first if each.number in self.draws.direct]
        wanted = [list(self._wanted(batch.blocks[0], summed)) for batch in batches]
        kinds = [(by_batch[0].node_set, by_batch[0].table, by_batch) for by_batch in zip(*wanted, strict=True)]
        windows = [self._window_of(name, by_batch) for name, _, by_batch in kinds]
        edges = [self._divided(each, batch.blocks[0]) for batch in batches for each in direct]
        sources: list[RowSource] = [
            TableSource(store.book, name, store.exchange.rank, table) for name, table, _ in kinds
        ]
        for request, batch in zip(window, batches, strict=True):
            sources += [self._own_sums(each, batch.blocks[0], request.dropout) for each in direct]
        routed = [store.route(name, each.remote) for (name, *_), each in zip(kinds, windows, strict=True)]
        routed += [each.remote for each in edges]
        routed += [store.route(name, batch.blocks[0].senders[name]) for batch in batches for name in self.learned]
        requests = store.send(routed, "rows asked for", SizeKey("rows", sum(each.items for each in window)))
        values, where = store.respond(requests[: len(sources)], sources, "rows")
        places = [each.of_batches(found) for each, found in zip(windows, where[: len(kinds)], strict=True)]
        learned, means = iter(requests[len(sources) :]), iter(zip(edges, where[len(kinds) :], strict=True))
        found = []
        for i, rows in enumerate(wanted):
            tables: Any = {
                each.what: RowTable(each.nodes, RemoteRows(each.table, values, by_batch[i]), each.others)
                for each, by_batch in zip(rows, places, strict=True)
            }
            found.append(BatchInputs(
                {name: tables[f"features {name}"] for name in self.gathered if f"features {name}" in tables},
                _Flat(tables["degrees"]) if self.scaled else None,  # type: ignore[arg-type]
                {each.number: tables[f"sums {each.number}"] for each in summed} or None,
                learned_rows=[next(learned) for _ in self.learned],
                means={each.number: self._means(each, *next(means), values) for each in direct},
            ))  # fmt: skip
        return found

    def _divided(self, relation: Relation, block: Block) -> EdgeSplit:
        """Edges of a direct edge set, split by the owners of their senders."""
        hop, name, exchange = block.hops[relation.number], relation.senders, self.store.exchange
        senders = hop.senders.astype(np.int64, copy=False)
        return divided(name, hop.starts, senders, self.store.book.bounds[name], exchange.rank, exchange.array)

    def _own_sums(self, relation: Relation, block: Block, dropout: float) -> PartialSumSource:
        """Source of this worker's partial sums over a direct edge set, for one batch."""
        name = relation.senders
        dropped = of_senders(block.state, dropout_threshold(dropout), self.numbers[name])
        return PartialSumSource(self.piece.features[name], self.piece.low[name], self.piece.numbers[name], dropped)

    def _means(
        self, relation: Relation, edges: EdgeSplit, where: NDArray[np.int64], sums: NDArray[np.float32]
    ) -> SharedMeansPart:
        name = relation.senders
        return SharedMeansPart(self.piece.features[name], self.piece.numbers[name], edges.own_starts, edges.own,
                           sums, edges.sum_starts, where, edges.starts)  # fmt: skip

    def _window_of(self, name: str, by_batch: Sequence[_Rows]) -> WindowRows:
        """Nodes of one set whose rows each batch reads."""
        lists = [np.concatenate([each.nodes, each.others]) if len(each.others) else each.nodes for each in by_batch]
        return WindowRows(self.store.book, self.store.exchange.rank, name, lists, self._found[name])

    def _wanted(self, block: Block, summed: Sequence[Relation]) -> Iterator[_Rows]:
        for name, nodes in block.senders.items():
            if name in self.gathered:
                # Sums are corrected by the rows of lost edges' senders.
                gone = [
                    block.lost[each.number].senders[block.lost[each.number].of(block.receivers[each.receivers])[1]]
                    for each in summed if each.senders == name and each.number in block.lost
                ]  # fmt: skip
                others = np.setdiff1d(np.concatenate(gone), nodes) if gone else _NONE
                yield _Rows(f"features {name}", name, nodes, others, self.piece.features[name])
            if self.scaled:
                yield _Rows("degrees", name, nodes, _NONE, self.degrees)
        for each in summed:
            nodes = block.receivers[each.receivers]
            yield _Rows(f"sums {each.number}", each.receivers, nodes, _NONE, self.sums[each.number])

    @cached_property
    def degrees(self) -> NDArray[np.float32]:
        """Degrees of the owned nodes in the one edge set, float32 [nodes, 1]; weighted where edges have weights."""
        ((number, rows),) = self.piece.rows.items()
        return degrees_of(rows, self.weights.get(number))[:, None]


class _Rows(NamedTuple):
    """Rows that a batch reads: their kind, nodes, and the table of the owned nodes."""

    what: str
    node_set: str
    nodes: NDArray[np.int64]
    others: NDArray[np.int64]
    table: NDArray[np.float32]


class _Flat:
    """A table of one column, read as an array of one dimension."""

    def __init__(self, table: RowTable):
        self._table = table

    def __getitem__(self, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._table[nodes][:, 0]


def _packed(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Two numbers in each integer."""
    words = np.zeros(len(values) + len(values) % 2, np.float32)
    words[: len(values)] = values
    return words.view(np.int64)


def _joined(
    route: Route, found: Sequence[NDArray[np.int64]], begins: list[int], kinds: Sequence[Any], width: int,
    array: NewArray,
) -> Hop:  # fmt: skip
    """Edges of some receivers in their order, from the responses of their owners.

    Args:
        route: route of the request for the receivers.
        found: responses by rank.
        begins: offset of the edges of these receivers in each response; advanced to their end.
        kinds: the first of `_COLUMNS` that the responses have.
        width: values of an edge's features, which come after these.
        array: makes the arrays of edges.
    """
    starts, degrees = np.zeros(len(route.order) + 1, np.int64), np.empty(len(route.order), np.int64)
    receivers, given, features = np.split(route.order, np.cumsum(route.counts)[:-1]), [], []
    for rank, places in enumerate(receivers):
        begin = begins[rank] + 2 * len(places)
        counts, degrees[places] = found[rank][begins[rank] : begin].reshape(2, -1)
        edges, starts[places + 1] = int(counts.sum()), counts
        columns = []
        for kind in kinds:
            end = begin + -(-edges * np.dtype(kind).itemsize // 8)
            columns.append(np.ascontiguousarray(found[rank][begin:end]).view(kind)[:edges])
            begin = end
        given.append(columns)
        end = begin + -(-edges * width // 2)
        features.append(np.ascontiguousarray(found[rank][begin:end]).view(np.float32)[: edges * width])
        begins[rank] = end
    np.cumsum(starts, out=starts)
    made = [array((int(starts[-1]),), kind) for kind in kinds]
    for places, columns in zip(receivers, given, strict=True):
        for values, out in zip(columns, made, strict=True):
            place_edges(places, starts, read_only(values), out)
    positions, weights = made[1] if len(made) > 1 else _NONE, made[2] if len(made) > 2 else None
    rows = _in_order(receivers, starts, features, width) if width else None
    return Hop(starts, made[0], positions, degrees, weights, rows)


def _in_order(
    receivers: Sequence[NDArray[np.int64]], starts: NDArray[np.int64], features: Sequence[NDArray[np.float32]],
    width: int,
) -> NDArray[np.float32]:  # fmt: skip
    """Features of edges in the order of their receivers, from those of each rank."""
    order, before = np.empty(int(starts[-1]), np.int64), 0
    for places, values in zip(receivers, features, strict=True):
        after = before + len(values) // width
        place_edges(places, starts, read_only(np.arange(before, after)), order)
        before = after
    return np.asarray(np.concatenate(features).reshape(-1, width)[order])
