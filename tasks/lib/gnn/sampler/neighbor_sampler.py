"""Mini-batches: order of the targets, and blocks of sampled neighbours around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.relations import LayerSchema, Relation
from superworkflow.tasks.lib.gnn.sampler.block import Block, Hop, Lost, MiniBatch, lost_of
from superworkflow.tasks.lib.gnn.sampler.kernels import (
    ALL_NEIGHBORS,
    compact,
    count_draws,
    draw_edges,
    enter,
    leave,
)
from superworkflow.tasks.lib.gnn.sampler.time_copies import TimeCopies
from superworkflow.tasks.lib.gnn.sampler.time_draws import NO_LIMIT, ByTime, Receivers
from superworkflow.tasks.lib.gnn.sampler.weighted_draws import ByWeight
from superworkflow.tasks.lib.graph.heterograph import CsrRows
from superworkflow.tasks.lib.kernels.arrays import read_only

_NONE = read_only(np.empty(0, np.int64))
_UNNUMBERED = np.empty(0, np.int32)
_NOBODY = np.empty(0, np.int64)  # kernels are compiled for receivers that are not read-only


class Draws(NamedTuple):
    """Rules by which neighbours are drawn.

    Args:
        levels: layers of the network, first layer first.
        fanouts: fan-out of each hop from the targets outwards; `ALL_NEIGHBORS` for all neighbours.
        labor: draw by one random number for each sender instead of a fixed number of neighbours.
        summed: numbers of edge sets whose neighbours the first layer reads as sums; none are drawn.
        seed: seed of all random numbers.
        direct: numbers of edge sets whose senders the first layer reads from a table of all nodes; see `Block`.
        latest: of edge sets with times draw each node's latest edges.
    """

    levels: Sequence[LayerSchema]
    fanouts: Sequence[int]
    labor: bool
    summed: frozenset[int]
    seed: int
    direct: frozenset[int] = frozenset()
    latest: bool = False


class NeighborSampler:
    """Draws blocks. Not thread-safe.

    Args:
        rows: rows of the edge sets, by number.
        nodes: sizes of the node sets.
        draws: rules of the draws.
        weights: by number of an edge set, weights in proportion to which its edges are drawn, float32 [edges]; the
            other sets' edges are drawn uniformly.
        times: by number of an edge set, times of its edges, int64 [edges].
    """

    def __init__(
        self, rows: Mapping[int, CsrRows], nodes: Mapping[str, int], draws: Draws,
        weights: Mapping[int, NDArray[np.float32]] = MappingProxyType({}),
        times: Mapping[int, NDArray[np.int64]] = MappingProxyType({}),
    ):  # fmt: skip
        self._rows = {number: CsrRows(*map(read_only, each)) for number, each in rows.items()}
        self._draws = draws
        self._counts = nodes
        self._places = {name: np.full(count, -1, np.int32) for name, count in nodes.items()}
        most = max((int(np.diff(each.indptr).max(initial=0)) for each in rows.values()), default=0)
        self._marks = np.zeros((most >> 6) + 1, np.uint64)
        self._by_weight = ByWeight(self._rows, weights, draws.fanouts)
        self._by_time = ByTime(self._rows, times, draws.fanouts, draws.latest)

    def batch(
        self, targets: Mapping[str, NDArray[np.int64]], *step: int,
        lost: Mapping[int, NDArray[np.int64]] = MappingProxyType({}),
        limits: Mapping[str, NDArray[np.int64]] | None = None,
    ) -> MiniBatch:  # fmt: skip
        """Blocks around targets.

        Args:
            targets: nodes by node set, distinct, int64; with limits ascending, and distinct with their limits.
            step: key of the step: purpose, epoch, step.
            lost: by number of the edge set, positions of edges that pass no messages, ascending, distinct.
            limits: by node set, a time for each target: edges that are later pass no messages towards it. The blocks
                then have a copy of a node for each limit of the targets that it is sampled for.
        """
        gone = {number: lost_of(self._rows[number], each) for number, each in lost.items() if len(each)}
        copies = None
        receivers = {name: np.sort(nodes) for name, nodes in targets.items()}
        given = dict(receivers)
        if limits is not None:
            given = dict(targets)
            copies = TimeCopies(np.unique(np.concatenate([_NOBODY, *limits.values()])), self._counts)
            receivers = {name: copies.of(name, nodes, limits[name]) for name, nodes in targets.items()}
        blocks = []
        for hop, level in enumerate(reversed(self._draws.levels)):
            block = self._block(level, receivers, hop, step, gone, copies)
            receivers = dict(block.senders)
            blocks.append(block if copies is None else copies.named(block))
        return MiniBatch(given, tuple(reversed(blocks)))

    def _block(
        self, level: LayerSchema, receivers: dict[str, NDArray[np.int64]], hop: int, step: tuple[int, ...],
        lost: Mapping[int, Lost], copies: TimeCopies | None,
    ) -> Block:  # fmt: skip
        """One block; with copies, receivers and senders are numbers of copies."""
        draws = self._draws
        receivers = {name: receivers.get(name, _NOBODY) for name in level.receivers}
        outermost = hop == len(draws.levels) - 1
        drawn: list[tuple[Relation, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
        for relation in level.relations:
            if outermost and relation.number in draws.summed:
                continue
            rows, number = self._rows[relation.number], relation.number
            nodes, limits = receivers[relation.receivers], None
            if copies is not None:
                nodes, limits = copies.nodes(relation.receivers, nodes), copies.limits(relation.receivers, nodes)
            state = np.uint64(random_streams.state(draws.seed, random_streams.DRAW, *step, hop, number))
            starts = np.empty(len(nodes) + 1, np.int64)
            size = draws.fanouts[hop]
            gone = lost[number].positions if number in lost else _NONE
            degrees = np.empty(len(nodes), np.int64)
            if self._by_time.draws(number, size, limits is not None):
                limits = np.full(len(nodes), NO_LIMIT) if limits is None else limits
                given = Receivers(nodes, nodes, limits)
                positions = self._by_time.positions(number, given, size, state, gone, starts, degrees)
            else:
                degrees = rows.indptr[nodes + 1] - rows.indptr[nodes]
                if number in lost:
                    degrees -= lost[number].counts(nodes)
                if self._by_weight.draws(number, size):
                    positions = self._by_weight.positions(number, nodes, nodes, size, state, gone, starts)
                else:
                    how = size, draws.labor, state, gone, starts, None
                    count_draws(rows.indptr, rows.indices, nodes, *how)
                    positions = np.empty(int(starts[-1]), np.int64)
                    draw_edges(rows.indptr, rows.indices, nodes, nodes, *how, self._marks, positions)
            drawn.append((relation, starts, positions, degrees))
        found = {each.number: (self._rows[each.number].indices, positions) for each, _, positions, _ in drawn}
        direct = {each: found.pop(each)[0] for each in draws.direct if outermost and each in found}
        if copies is None:
            senders_of, places = numbered(level, receivers, found, self._places)
        else:
            senders_of, places = copies.numbered(level, receivers, found, {r.number: s for r, s, *_ in drawn})
        hops = {
            relation.number: Hop(starts, places.get(relation.number, _UNNUMBERED), positions, degrees)
            for relation, starts, positions, degrees in drawn
        }
        masks = random_streams.state(draws.seed, random_streams.MASK, *step, len(draws.levels) - 1 - hop)
        return Block(receivers, senders_of, hops, masks, lost, direct)


def numbered(
    level: LayerSchema, receivers: Mapping[str, NDArray[np.int64]],
    drawn: Mapping[int, tuple[NDArray[Any], NDArray[np.int64]]], places: Mapping[str, NDArray[np.int32]],
) -> tuple[dict[str, NDArray[np.int64]], dict[int, NDArray[np.int32]]]:  # fmt: skip
    """Number the senders of drawn edges in the order of their first occurrence, after the receivers.

    Args:
        level: the layer.
        receivers: nodes by node set.
        drawn: by number of the edge set, an array of nodes, and the positions in it of the drawn edges' senders.
        places: scratch by node set: -1 for each node, before and after.

    Returns:
        Senders by node set, and by number of the edge set the index of each edge's sender among them.
    """
    frontiers, counts, found = {}, {}, {}
    for name in level.senders:
        given = receivers.get(name, _NOBODY)
        numbers = [each.number for each in level.relations if each.senders == name and each.number in drawn]
        frontiers[name] = np.empty(len(given) + sum(len(drawn[number][1]) for number in numbers), np.int64)
        frontiers[name][: len(given)] = given
        counts[name] = len(given)
        enter(given, places[name])
    for relation in level.relations:
        if relation.number in drawn:
            nodes, positions = drawn[relation.number]
            name, senders = relation.senders, np.empty(len(positions), np.int32)
            counts[name] = compact(nodes, positions, places[name], frontiers[name], counts[name], senders)
            found[relation.number] = senders
    senders_of = {name: frontier[: counts[name]].copy() for name, frontier in frontiers.items()}
    for name, nodes in senders_of.items():
        leave(nodes, places[name])
    return senders_of, found


def order_of(nodes: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.int64]:
    """Targets in the order of an epoch."""
    keys = random_streams.words(nodes, seed, random_streams.ORDER, epoch)
    return nodes[np.argsort(keys)]  # keys are distinct, so the vectorized sort need not be stable


def is_constant(fanouts: Sequence[int]) -> bool:
    """True if the blocks around given targets are equal in every step."""
    return all(size == ALL_NEIGHBORS for size in fanouts)
