"""The nodes of a shard's subgraphs in their final order, and with aggregation by node the edges between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.arrays import distinct
from superworkflow.tasks.sample.partitioned.plan import Routes, SamplePlan
from superworkflow.tasks.sample.partitioned.requester import (
    ShardSeeds,
    compact,
    grouped,
    keys_of,
    nodes_of,
    routed,
    seed_keys,
    subgraphs_of,
)
from superworkflow.tasks.sample.sampler import SeedRows


class ShardNodes(NamedTuple):
    """The nodes of one set in all subgraphs of a shard.

    Args:
        starts: int64 [b + 1], where those of each subgraph begin in `nodes`.
        nodes: seeds first, all others ascending.
        others: keys of those that are no seeds.
        seeds: [b, n] of the seeds' set, [b, 0] of others.
    """

    starts: NDArray[np.int64]
    nodes: NDArray[Any]
    others: NDArray[np.int64]
    seeds: NDArray[Any]

    def places(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places of nodes in their subgraphs."""
        subgraphs, nodes = subgraphs_of(keys), nodes_of(keys)
        firsts = _firsts(self.seeds)
        begins = np.searchsorted(self.others, keys_of(np.arange(len(self.seeds)), np.zeros(len(self.seeds))))
        places = np.searchsorted(self.others, keys) - begins[subgraphs] + firsts[subgraphs]
        for column in range(self.seeds.shape[1] - 1, -1, -1):
            places[self.seeds[subgraphs, column] == nodes] = column
        return places


def members_of(plan: SamplePlan, shard: ShardSeeds) -> list[ShardNodes]:
    """The nodes of each set in use."""
    fronts: list[list[NDArray[np.int64]]] = [[] for _ in plan.nodes]
    for op in plan.ops:
        key = plan.kept.table(shard.kept("front", op.number))["key"].to_numpy()
        fronts[plan.edge_sets[op.edge_set].target].append(key)
    none = np.zeros((len(shard.seeds.nodes), 0), np.int64)
    return [
        _members(plan, keys, shard.seeds.nodes if place == plan.seed_set else none, shard.seeds)
        for place, keys in enumerate(fronts)
    ]


def _members(plan: SamplePlan, fronts: list[NDArray[np.int64]], own: NDArray[Any], seeds: SeedRows) -> ShardNodes:
    others = distinct(np.concatenate([np.zeros(0, np.int64), *fronts]))
    if own.shape[1]:
        others = np.setdiff1d(others, seed_keys(seeds), assume_unique=True)
    firsts = _firsts(own)
    sizes = firsts + np.bincount(subgraphs_of(others), minlength=len(own))
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    nodes = np.empty(int(starts[-1]), plan.node_type)
    is_seed = np.zeros(len(nodes), bool)
    for column in range(own.shape[1] - 1, -1, -1):
        there = firsts > column
        index = starts[:-1][there] + column
        nodes[index], is_seed[index] = own[there, column], True
    nodes[~is_seed] = nodes_of(others)
    return ShardNodes(starts, nodes, others, own)


def _firsts(seeds: NDArray[Any]) -> NDArray[np.int64]:
    """Number of different seeds of each subgraph."""
    count, columns = seeds.shape
    if columns < 2:
        return np.full(count, columns, np.int64)
    firsts: NDArray[np.int64] = 1 + (seeds[:, 0] != seeds[:, 1]).astype(np.int64)
    return firsts


class EdgeRequest(NamedTuple):
    """Request of a shard for all edges of one set between nodes of the same subgraph, in the rows of a task.

    Args:
        shard: place of the shard among those of the exchange.
        links: see `ShardRequest`.
        lengths, nodes: sources of each subgraph, less the first of the range, and how many.
        target_lengths, targets: nodes that edges may lead to, of each subgraph, ascending, and how many.
    """

    shard: int
    links: NDArray[Any]
    lengths: NDArray[Any]
    nodes: NDArray[Any]
    target_lengths: NDArray[Any]
    targets: NDArray[Any]


class EdgeResponse(NamedTuple):
    """Response to `EdgeRequest`: counts of each source; positions less `base`; places among the targets."""

    edge_set: int
    task: int
    base: int
    counts: NDArray[Any]
    positions: NDArray[Any]
    places: NDArray[Any]


def _all_keys(members: ShardNodes) -> NDArray[np.int64]:
    subgraphs = np.repeat(np.arange(len(members.seeds)), np.diff(members.starts))
    return np.sort(keys_of(subgraphs, members.nodes))


def count_joins(plan: SamplePlan, shard: ShardSeeds) -> list[NDArray[np.int64]]:
    """Number of rows of each range of each edge set that have edges between nodes to find."""
    members = members_of(plan, shard)
    return [
        np.bincount(plan.range_of(place, nodes_of(_all_keys(members[edges.source]))), minlength=len(cuts) - 1)
        for place, (edges, cuts) in enumerate(zip(plan.edge_sets, plan.cuts, strict=True))
    ]


def edge_requests(plan: SamplePlan, routes: Routes, item: tuple[int, ShardSeeds]) -> Iterator[tuple[int, EdgeRequest]]:
    """Requests of a shard."""
    place, shard = item
    members = members_of(plan, shard)
    for number, edges in enumerate(plan.edge_sets):
        keys, targets = _all_keys(members[edges.source]), _all_keys(members[edges.target])
        begins = np.searchsorted(targets, keys_of(np.arange(len(shard.seeds.nodes) + 1), np.zeros(1)))
        for task, range_, chosen in routed(plan, routes, number, keys):
            groups, lengths = grouped(keys[chosen])
            target_lengths = begins[groups + 1] - begins[groups]
            parts = [targets[begins[group] : begins[group + 1]] for group in groups]
            links = shard.seeds.nodes[groups] if plan.apart(edges) else np.zeros((0, 2), np.int64)
            low = int(plan.cuts[number][range_])
            yield task, EdgeRequest(
                place, links, compact(lengths), compact(nodes_of(keys[chosen]) - low), compact(target_lengths),
                compact(nodes_of(np.concatenate(parts))),
            )  # fmt: skip


def store_edges(
    plan: SamplePlan, routes: Routes, shards: Sequence[ShardSeeds], place: int, found: list[EdgeResponse]
) -> int:
    """Store the edges found for a shard: keys of sources and targets, and positions; returns how many there are."""
    shard, total = shards[place], 0
    members = members_of(plan, shard)
    for number, edges in enumerate(plan.edge_sets):
        keys, targets = _all_keys(members[edges.source]), _all_keys(members[edges.target])
        begins = np.searchsorted(targets, keys_of(np.arange(len(shard.seeds.nodes) + 1), np.zeros(1)))
        answers = {each.task: each for each in found if each.edge_set == number}
        sources, ends, positions = ([np.zeros(0, np.int64)] for _ in range(3))
        for task, _, chosen in routed(plan, routes, number, keys):
            answer = answers[task]
            sources.append(np.repeat(keys[chosen], answer.counts))
            ends.append(targets[begins[subgraphs_of(sources[-1])] + answer.places.astype(np.int64)])
            positions.append(answer.positions.astype(np.int64) + answer.base)
        columns = {"source": sources, "target": ends, "position": positions}
        table = pa.table({name: np.concatenate(parts) for name, parts in columns.items()})
        plan.kept.write(shard.kept("joined", number), table)
        total += table.num_rows
    return total
