"""Mini-batches: which targets belong to a step, and the blocks of sampled neighbours around them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks._gnn import streams
from superworkflow.tasks._gnn.by_weight import ByWeight
from superworkflow.tasks._gnn.kernels import (
    ALL_NEIGHBORS,
    compact,
    count_draws,
    draw_edges,
    enter,
    keys_of,
    leave,
    read_only,
)
from superworkflow.tasks._gnn.shape import LayerSchema, Relation
from superworkflow.tasks._heterograph import CsrRows

_NONE = read_only(np.empty(0, np.int64))
_UNNUMBERED = np.empty(0, np.int32)
_NOBODY = np.empty(0, np.int64)  # kernels are compiled for receivers that are not read-only
S = TypeVar("S")
T = TypeVar("T")


class Hop(NamedTuple):
    """Drawn edges of one edge set.

    Args:
        starts: where those of each receiver begin, int64 [receivers + 1].
        senders: places of the senders among the nodes of their set, int32 [edges].
        positions: of the edges in their set, int64 [edges]; empty where a worker reads means of others' nodes as sums.
        degrees: of the receivers, of which so many were drawn, int64 [receivers].
        weights: of the edges, float32 [edges], where they came with them; None where there are none, or whoever reads
            them has those of the whole set.
    """

    starts: NDArray[np.int64]
    senders: NDArray[np.int32]
    positions: NDArray[np.int64]
    degrees: NDArray[np.int64]
    weights: NDArray[np.float32] | None = None


class Lost(NamedTuple):
    """Edges of one edge set that pass no messages in a step, in the order of the set.

    Args:
        positions: in the set, int64 [edges], ascending.
        receivers, senders: of each, int64 [edges].
        degrees: edges of its receiver that there would be without the loss, int64 [edges].
        weights: of each, float32 [edges]; None as in `Hop`.
    """

    positions: NDArray[np.int64]
    receivers: NDArray[np.int64]
    senders: NDArray[np.int64]
    degrees: NDArray[np.int64]
    weights: NDArray[np.float32] | None = None

    def counts(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many edges each of these receivers has lost."""
        first, end = np.searchsorted(self.receivers, nodes, "left"), np.searchsorted(self.receivers, nodes, "right")
        return np.asarray(end - first, np.int64)

    def sums(self, nodes: NDArray[np.int64], weights: NDArray[np.float32] | None) -> NDArray[Any]:
        """What each of these receivers has lost: weights of edges, or how many they are.

        Args:
            nodes: the receivers.
            weights: of all edges of the set; None where there are none, or those that are lost came with them.
        """
        own = self.weights if weights is None else weights[self.positions]
        if own is None:
            return self.counts(nodes)
        places, edges = self.of(nodes)
        return np.bincount(places, own[edges], len(nodes))

    def of(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The edges that these receivers have lost: place of each one's receiver in `nodes`, and its place here."""
        counts = self.counts(nodes)
        places = np.repeat(np.arange(len(nodes)), counts)
        first = np.searchsorted(self.receivers, nodes, "left")
        return places, np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts) + first[places]


class Block(NamedTuple):
    """What one layer reads and makes.

    Args:
        receivers, senders: nodes of each node set, int64; the receivers come first among the senders.
        hops: by the number of the edge set.
        state: of the random streams of this layer's masks.
        lost: by the number of the edge set; the hops are without these edges.
        direct: `indices` of edge sets, by number, whose senders are read from a table of all nodes by the positions of
            the drawn edges: they are not among `senders`, and their hops number none.
    """

    receivers: Mapping[str, NDArray[np.int64]]
    senders: Mapping[str, NDArray[np.int64]]
    hops: Mapping[int, Hop]
    state: int
    lost: Mapping[int, Lost]
    direct: Mapping[int, NDArray[Any]] = MappingProxyType({})


class MiniBatch(NamedTuple):
    """The targets of a step by node set, ascending, and the blocks of the layers, the first layer's first."""

    targets: Mapping[str, NDArray[np.int64]]
    blocks: tuple[Block, ...]


class Draws(NamedTuple):
    """How neighbours are drawn.

    Args:
        levels: of the network, the first layer's first.
        fanouts: of each hop from the targets on; `ALL_NEIGHBORS` for all neighbours.
        labor: draw by one random number for each sender instead of a number of neighbours.
        summed: numbers of edge sets whose neighbours the first layer reads as sums, so that none are drawn.
        seed: of all random numbers.
        direct: numbers of edge sets whose senders the first layer reads from a table of all nodes; see `Block`.
    """

    levels: Sequence[LayerSchema]
    fanouts: Sequence[int]
    labor: bool
    summed: frozenset[int]
    seed: int
    direct: frozenset[int] = frozenset()


class NeighborSampler:
    """Draws blocks. It is used by one thread at a time.

    Args:
        rows: of the edge sets, by number.
        nodes: sizes of the node sets.
        draws: see there.
        weights: by the number of an edge set, float32 [edges], to draw in proportion to; of all others evenly.
    """

    def __init__(
        self, rows: Mapping[int, CsrRows], nodes: Mapping[str, int], draws: Draws,
        weights: Mapping[int, NDArray[np.float32]] = MappingProxyType({}),
    ):  # fmt: skip
        self._rows = {number: CsrRows(*map(read_only, each)) for number, each in rows.items()}
        self._draws = draws
        self._places = {name: np.full(count, -1, np.int32) for name, count in nodes.items()}
        most = max((int(np.diff(each.indptr).max(initial=0)) for each in rows.values()), default=0)
        self._marks = np.zeros((most >> 6) + 1, np.uint64)
        self._by_weight = ByWeight(self._rows, weights, draws.fanouts)

    def batch(
        self, targets: Mapping[str, NDArray[np.int64]], *step: int,
        lost: Mapping[int, NDArray[np.int64]] = MappingProxyType({}),
    ) -> MiniBatch:  # fmt: skip
        """The blocks around targets.

        Args:
            targets: nodes by node set, distinct, int64.
            step: what makes the step another than all others: whose it is, epoch, step.
            lost: by the number of the edge set, positions of edges that pass no messages, ascending, distinct.
        """
        gone = {number: lost_of(self._rows[number], each) for number, each in lost.items() if len(each)}
        receivers = {name: np.sort(nodes) for name, nodes in targets.items()}
        targets = dict(receivers)
        blocks = []
        for hop, level in enumerate(reversed(self._draws.levels)):
            block = self._block(level, receivers, hop, step, gone)
            blocks.append(block)
            receivers = dict(block.senders)
        return MiniBatch(targets, tuple(reversed(blocks)))

    def _block(
        self, level: LayerSchema, receivers: dict[str, NDArray[np.int64]], hop: int, step: tuple[int, ...],
        lost: Mapping[int, Lost],
    ) -> Block:  # fmt: skip
        draws = self._draws
        receivers = {name: receivers.get(name, _NOBODY) for name in level.receivers}
        outermost = hop == len(draws.levels) - 1
        drawn: list[tuple[Relation, NDArray[np.int64], NDArray[np.int64]]] = []
        for relation in level.relations:
            if outermost and relation.number in draws.summed:
                continue
            rows, nodes = self._rows[relation.number], receivers[relation.receivers]
            state = np.uint64(streams.state(draws.seed, streams.DRAW, *step, hop, relation.number))
            starts = np.empty(len(nodes) + 1, np.int64)
            size = draws.fanouts[hop]
            gone = lost[relation.number].positions if relation.number in lost else _NONE
            if self._by_weight.draws(relation.number, size):
                found_at = self._by_weight.positions(relation.number, nodes, nodes, size, state, gone, starts)
                drawn.append((relation, starts, found_at))
                continue
            how = size, draws.labor, state, gone, starts, None
            count_draws(rows.indptr, rows.indices, nodes, *how)
            positions = np.empty(int(starts[-1]), np.int64)
            draw_edges(rows.indptr, rows.indices, nodes, nodes, *how, self._marks, positions)
            drawn.append((relation, starts, positions))
        found = {relation.number: (self._rows[relation.number].indices, positions) for relation, _, positions in drawn}
        direct = {each: found.pop(each)[0] for each in draws.direct if outermost and each in found}
        senders_of, places = numbered(level, receivers, found, self._places)
        hops = {}
        for relation, starts, positions in drawn:
            rows, nodes = self._rows[relation.number], receivers[relation.receivers]
            degrees = rows.indptr[nodes + 1] - rows.indptr[nodes]
            if relation.number in lost:
                degrees -= lost[relation.number].counts(nodes)
            hops[relation.number] = Hop(starts, places.get(relation.number, _UNNUMBERED), positions, degrees)
        masks = streams.state(draws.seed, streams.MASK, *step, len(draws.levels) - 1 - hop)
        return Block(receivers, senders_of, hops, masks, lost, direct)


def numbered(
    level: LayerSchema, receivers: Mapping[str, NDArray[np.int64]],
    drawn: Mapping[int, tuple[NDArray[Any], NDArray[np.int64]]], places: Mapping[str, NDArray[np.int32]],
) -> tuple[dict[str, NDArray[np.int64]], dict[int, NDArray[np.int32]]]:  # fmt: skip
    """Number the senders of drawn edges in the order in which they are met, behind the receivers.

    Args:
        level: whose edges they are.
        receivers: by node set.
        drawn: by the number of the edge set, an array of nodes, and where in it the senders of the drawn edges are.
        places: -1 for each node, by node set; left so.

    Returns:
        Senders by node set, and by the number of the edge set the place of each edge's sender among them.
    """
    frontiers, known, found = {}, {}, {}
    for name in level.senders:
        given = receivers.get(name, _NOBODY)
        of = [each.number for each in level.relations if each.senders == name and each.number in drawn]
        frontiers[name] = np.empty(len(given) + sum(len(drawn[number][1]) for number in of), np.int64)
        frontiers[name][: len(given)] = given
        known[name] = len(given)
        enter(given, places[name])
    for relation in level.relations:
        if relation.number in drawn:
            nodes, positions = drawn[relation.number]
            name, senders = relation.senders, np.empty(len(positions), np.int32)
            known[name] = compact(nodes, positions, places[name], frontiers[name], known[name], senders)
            found[relation.number] = senders
    senders_of = {name: frontier[: known[name]].copy() for name, frontier in frontiers.items()}
    for name, nodes in senders_of.items():
        leave(nodes, places[name])
    return senders_of, found


def lost_of(rows: CsrRows, positions: NDArray[np.int64], weights: NDArray[Any] | None = None) -> Lost:
    """The edges at some positions of their set, ascending and distinct, and their weights if those of all are given."""
    indptr, indices = rows
    receivers = np.searchsorted(indptr, positions, "right") - 1
    degrees = indptr[receivers + 1] - indptr[receivers]
    own = None if weights is None else weights[positions].astype(np.float32).reshape(-1)
    return Lost(read_only(positions), receivers, indices[positions].astype(np.int64), degrees, own)


def order_of(nodes: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.int64]:
    """The order in which an epoch goes through its targets."""
    keys = np.empty(len(nodes), np.uint64)
    keys_of(nodes, np.uint64(streams.state(seed, streams.ORDER, epoch)), keys)
    return nodes[np.argsort(keys)]  # no two nodes have the same key, and this sort is vectorized


def is_constant(fanouts: Sequence[int]) -> bool:
    """Whether the blocks around the same targets are the same in every step."""
    return all(size == ALL_NEIGHBORS for size in fanouts)


class LookAhead:
    """Prepares batches in threads, some steps ahead of those that are asked for; their order is that of the steps.

    Args:
        make: a sampler for a thread of its own.
        threads: how many prepare; with 1 this is beside the thread that trains.
        window: batches that are ready or being prepared, at most.
    """

    def __init__(self, make: Callable[[], NeighborSampler], threads: int, window: int):
        self._window = window
        self._samplers: SimpleQueue[NeighborSampler] = SimpleQueue()
        for _ in range(threads if window else 1):
            self._samplers.put(make())
        self._pool = ThreadPoolExecutor(threads) if window else None

    def each(self, prepare: Callable[[NeighborSampler, S], T], steps: Iterable[S]) -> Iterator[T]:
        """What `prepare` makes of each step with a sampler that no other thread has meanwhile."""
        if self._pool is None:
            yield from (self._prepare(prepare, step) for step in steps)
            return
        running: deque[Future[T]] = deque()
        try:
            for step in steps:
                running.append(self._pool.submit(self._prepare, prepare, step))
                if len(running) > self._window:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for each in running:
                each.cancel()

    def _prepare(self, prepare: Callable[[NeighborSampler, S], T], step: S) -> T:
        sampler = self._samplers.get()
        try:
            return prepare(sampler, step)
        finally:
            self._samplers.put(sampler)

    def close(self) -> None:
        """End its threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
