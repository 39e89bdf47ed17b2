"""Requester of a partitioned sample: draws that a shard requests at each level of ops, and those stored for later.

Numbers of subgraphs are those in the shard. A key is (subgraph, node), see `NODE_BITS`; keys are always ascending.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.arrays import distinct
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.sample.order import MOST_PATHS
from superworkflow.tasks.sample.partitioned.plan import NODE_BITS, OpPlan, Routes, SamplePlan
from superworkflow.tasks.sample.program import LATEST_K
from superworkflow.tasks.sample.sampler import SeedRows

_NODE = (1 << NODE_BITS) - 1


class ShardSeeds(NamedTuple):
    """A shard to make: its number among all, the name of its file, and its seeds."""

    number: int
    name: str
    seeds: SeedRows

    def kept(self, what: str, number: int) -> str:
        """Name of a stored table of an op or an edge set."""
        return f"subgraphs/{self.number:06d}/{what}-{number}"


class ShardRequest(NamedTuple):
    """Request of a shard to a task, of one op.

    Args:
        shard: place of the shard among those of the exchange.
        op: number.
        keys: uint64 [g], state of the op in each subgraph.
        times: int64 [g] where the op asks for the latest, else empty.
        links: [g, 2] where edges between seeds are left out, else no rows.
        lengths: nodes of each subgraph, [g].
        nodes: of all, less the first of the range.
        draws: paths to each node, by path.
    """

    shard: int
    op: int
    keys: NDArray[np.uint64]
    times: NDArray[np.int64]
    links: NDArray[Any]
    lengths: NDArray[Any]
    nodes: NDArray[Any]
    draws: NDArray[np.int64]


class ShardResponse(NamedTuple):
    """Draws for a request.

    Args:
        op: number.
        task: that has drawn.
        base: of positions.
        counts: edges of each requested node.
        positions: of all edges, less `base`.
        targets: of all.
        paths: how often each was drawn, by path.
    """

    op: int
    task: int
    base: int
    counts: NDArray[Any]
    positions: NDArray[Any]
    targets: NDArray[Any]
    paths: NDArray[np.int64]


def keys_of(subgraphs: NDArray[Any], nodes: NDArray[Any]) -> NDArray[np.int64]:
    """Keys of (subgraph, node) pairs."""
    return (subgraphs.astype(np.int64) << np.int64(NODE_BITS)) | nodes.astype(np.int64)


def subgraphs_of(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Decode keys."""
    return keys >> np.int64(NODE_BITS)


def nodes_of(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Decode keys."""
    return keys & np.int64(_NODE)


def seed_keys(seeds: SeedRows) -> NDArray[np.int64]:
    """Keys of the seeds, each once."""
    subgraphs = np.repeat(np.arange(len(seeds.nodes)), seeds.nodes.shape[1])
    return distinct(keys_of(subgraphs, np.ascontiguousarray(seeds.nodes).reshape(-1)))


def streams(plan: SamplePlan, seeds: SeedRows, op: OpPlan) -> NDArray[np.uint64]:
    """State of an op in each subgraph; see `kernel.sample`."""

    def step(state: NDArray[np.uint64], number: NDArray[Any]) -> NDArray[np.uint64]:
        mixed: NDArray[np.uint64] = mix.py_func(state + (number.astype(np.int64) + 1).astype(np.uint64) * GAMMA)
        return mixed

    state = mix.py_func(np.full(len(seeds.nodes), plan.seed, np.uint64) + GAMMA)
    for column in range(seeds.nodes.shape[1]):
        state = step(state, seeds.nodes[:, column])
    return step(step(state, seeds.repeats), np.full(len(state), op.number))


def op_inputs(plan: SamplePlan, shard: ShardSeeds, op: OpPlan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Keys of the nodes that an op starts from, and paths to each."""
    parts = [seed_keys(shard.seeds)] if op.from_seeds else []
    paths = [np.ones(len(each), np.int64) for each in parts]
    for given in op.inputs:
        front = plan.kept.table(shard.kept("front", given))
        parts.append(front["key"].to_numpy())
        paths.append(front["paths"].to_numpy())
    if len(parts) == 1:
        return parts[0], paths[0]
    return summed(np.concatenate(parts), np.concatenate(paths))


def summed(keys: NDArray[np.int64], paths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Different keys, and their paths added up."""
    order = np.argsort(keys, kind="stable")
    keys, paths = keys[order], paths[order]
    begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.zeros(0, np.int64)
    sums = np.add.reduceat(paths, begins) if len(begins) else paths
    return keys[begins], np.minimum(sums, MOST_PATHS)


def count_requests(plan: SamplePlan, shard: ShardSeeds, level: int) -> list[NDArray[np.int64]]:
    """Number of rows of each range of each edge set that a level requests."""
    counts = [np.zeros(len(cuts) - 1, np.int64) for cuts in plan.cuts]
    for op in plan.of_level(level):
        nodes = nodes_of(op_inputs(plan, shard, op)[0])
        counts[op.edge_set] += np.bincount(plan.range_of(op.edge_set, nodes), minlength=len(counts[op.edge_set]))
    return counts


def routed(
    plan: SamplePlan, routes: Routes, edge_set: int, keys: NDArray[np.int64]
) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """(task, range, places in `keys`) of the keys of one edge set that are sent to a task, tasks ascending."""
    ranges = plan.range_of(edge_set, nodes_of(keys))
    tasks = routes.to(edge_set, ranges, subgraphs_of(keys))
    order = np.argsort(tasks, kind="stable")
    if not len(order):  # of a set, or an op, that nothing leads to in this shard
        return
    begins = np.flatnonzero(np.concatenate([[True], np.diff(tasks[order]) != 0]))
    for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
        yield int(tasks[order[begin]]), int(ranges[order[begin]]), order[begin:end]


def grouped(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(different subgraphs, keys of each)."""
    return np.unique(subgraphs_of(keys), return_counts=True)


def compact(values: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, none negative, in the smallest type that holds them, to be sent."""
    most = int(values.max(initial=0))
    kind = next(kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64) if most <= np.iinfo(kind).max)
    return values.astype(kind)


def draw_requests(
    plan: SamplePlan, routes: Routes, level: int, item: tuple[int, ShardSeeds]
) -> Iterator[tuple[int, ShardRequest]]:
    """Requests of a shard in a level of ops."""
    place, shard = item
    none = np.zeros(0, np.int64)
    for op in plan.of_level(level):
        keys, paths = op_inputs(plan, shard, op)
        states, edges = streams(plan, shard.seeds, op), plan.edge_sets[op.edge_set]
        for task, range_, chosen in routed(plan, routes, op.edge_set, keys):
            groups, lengths = grouped(keys[chosen])
            low = int(plan.cuts[op.edge_set][range_])
            yield task, ShardRequest(
                place, op.number, states[groups],
                shard.seeds.times[groups] if op.strategy == LATEST_K else none,
                shard.seeds.nodes[groups] if plan.apart(edges) else np.zeros((0, 2), np.int64),
                compact(lengths), compact(nodes_of(keys[chosen]) - low), paths[chosen] if plan.by_path else none,
            )  # fmt: skip


def store_draws(
    plan: SamplePlan, routes: Routes, level: int, shards: Sequence[ShardSeeds], place: int, replies: list[ShardResponse]
) -> tuple[int, list[NDArray[np.int64]]]:
    """Store the draws of a level for a shard.

    For each op a table of rows (key of the node, edges) and one of edges (position, target), in the order of the keys,
    and the front: keys of different targets and paths to them.

    Returns:
        How many edges there are, and `count_requests` of the next level.
    """
    shard, total = shards[place], 0
    for op in plan.of_level(level):
        keys, _ = op_inputs(plan, shard, op)
        order = np.concatenate(
            [np.zeros(0, np.int64), *(chosen for _, _, chosen in routed(plan, routes, op.edge_set, keys))]
        )
        given = sorted((each for each in replies if each.op == op.number), key=lambda each: each.task)
        counts = _joined([each.counts for each in given], np.int64)
        places = _in_order(counts, order)
        positions = _joined([each.positions.astype(np.int64) + each.base for each in given], np.int64)[places]
        targets = _joined([each.targets for each in given], np.int64)[places]
        in_order = np.empty(len(keys), np.int64)
        in_order[order] = counts
        subgraphs = np.repeat(subgraphs_of(keys), in_order)
        paths = _joined([each.paths for each in given], np.int64)[places] if plan.by_path else np.ones_like(targets)
        front, sums = summed(keys_of(subgraphs, targets), paths)
        if not plan.by_path:
            sums = np.ones_like(sums)
        plan.kept.write(shard.kept("rows", op.number), pa.table({"key": keys, "edges": in_order}))
        edges = {"position": positions.astype(plan.position_type), "target": targets.astype(plan.node_type)}
        plan.kept.write(shard.kept("edges", op.number), pa.table(edges))
        plan.kept.write(shard.kept("front", op.number), pa.table({"key": front, "paths": sums}))
        total += len(positions)
    return total, count_requests(plan, shard, level + 1)


def _in_order(counts: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of edges, which are those of rows ``order[0]``, ``order[1]``, …, in the order of the rows."""
    begins = np.cumsum(counts) - counts
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    lengths = counts[back]
    shift = begins[back] - (np.cumsum(lengths) - lengths)
    places: NDArray[np.int64] = np.arange(int(counts.sum())) + np.repeat(shift, lengths)
    return places


def _joined(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *(each.astype(dtype, copy=False) for each in parts)])
