"""Plan of a partitioned sample: the spec in numbers, the sets, and the owners of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.graph.dtypes import DTYPES, STRING
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph, feature_stem, index_dtype
from superworkflow.tasks.lib.in_parts.task_outputs import TaskOutputs
from superworkflow.tasks.lib.subgraphs.blocks import SubgraphLayout
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.sampler import (
    TIMESTAMP,
    WEIGHT,
    bad_timestamps,
    no_timestamps,
    no_weights,
    used_sets,
    weights_of,
)
from superworkflow.tasks.sample.spec import STRATEGIES, Op, SamplingSpec

NODE_BITS = 50
"""Bits of the lower half of a key (subgraph, node) or (subgraph, position); the number in a shard is above."""


class OpPlan(NamedTuple):
    """An op in numbers: see `program.Program.ops`; ops of a level need no more than those of levels before it."""

    number: int
    edge_set: int
    size: int
    strategy: int
    inputs: tuple[int, ...]
    from_seeds: bool
    level: int


@dataclass(frozen=True)
class EdgePlan:
    """An edge set in use.

    Args:
        number: in the dataset.
        source, target: places of the node sets among those in use.
        sources, targets, count: nodes of these, and edges.
        weight, timestamp: stems of the files of these features; empty where no op asks for them or there are none.
        ranked: an op takes the edges of the largest weights.
        stored: number of the set that has the features: that which this one reverses, or this.
        reverses: it reverses another one.
        where: the weights, for people.
    """

    number: int
    source: int
    target: int
    sources: int
    targets: int
    count: int
    weight: str
    timestamp: str
    ranked: bool
    stored: int
    reverses: bool
    where: str


@dataclass(frozen=True)
class SamplePlan:
    """Plan that all tasks share.

    Args:
        graph: URI of the heterograph dataset.
        kept: for what tasks leave.
        rows: folder for rows on the executor's disk; see `on_this_disk`.
        ops: in the order of the spec.
        edge_sets: those in use.
        nodes: how many each node set in use has.
        layout: of the subgraphs.
        seed_set: place of the seeds' set.
        by_path, by_node: see `program.Program.options`.
        links: seeds are pairs.
        seed: of all random numbers.
        node_type, position_type: of numbers of nodes and of positions.
        cuts: of each edge set in use, first source of each range, and the number of sources.
    """

    graph: str
    kept: TaskOutputs
    rows: str
    ops: tuple[OpPlan, ...]
    edge_sets: tuple[EdgePlan, ...]
    nodes: tuple[int, ...]
    layout: SubgraphLayout
    seed_set: int
    by_path: bool
    by_node: bool
    links: bool
    seed: int
    node_type: str
    position_type: str
    cuts: tuple[NDArray[np.int64], ...] = ()

    @property
    def levels(self) -> int:
        """Levels of ops."""
        return 1 + max((op.level for op in self.ops), default=-1)

    def of_level(self, level: int) -> list[OpPlan]:
        """The ops of a level."""
        return [op for op in self.ops if op.level == level]

    def apart(self, edges: EdgePlan) -> bool:
        """True if edges between the two nodes of a link seed are left out of this set."""
        return self.links and edges.source == edges.target == self.seed_set

    def range_of(self, edge_set: int, nodes: NDArray[Any]) -> NDArray[np.int64]:
        """The range of each source."""
        return np.searchsorted(self.cuts[edge_set], nodes, "right") - 1


class Routes(NamedTuple):
    """Tasks that draw, in one exchange.

    Args:
        first: of each range of each edge set, its first task; it has those up to the next range's first. Where a range
            is requested more than its share, several tasks have it, and subgraphs are divided among them.
    """

    first: tuple[NDArray[np.int64], ...]

    @property
    def tasks(self) -> int:
        """Number of tasks, at least one."""
        return max(1, int(self.first[-1][-1])) if self.first else 1

    @classmethod
    def shared(cls, requested: list[NDArray[np.int64]], tasks: int) -> Routes:
        """Routes to about `tasks` tasks, shared out by the rows requested of each range of each edge set."""
        share, first, begin = max(1.0, sum(int(each.sum()) for each in requested) / max(tasks, 1)), [], 0
        for each in requested:
            copies = np.maximum(each > 0, np.rint(each / share).astype(np.int64))
            first.append(begin + np.concatenate([[0], np.cumsum(copies)]))
            begin = int(first[-1][-1])
        return cls(tuple(first))

    def to(self, edge_set: int, ranges: NDArray[np.int64], subgraphs: NDArray[Any]) -> NDArray[np.int64]:
        """The task of each request: one for all those of a subgraph to a range."""
        first = self.first[edge_set]
        tasks: NDArray[np.int64] = first[ranges] + subgraphs % np.maximum(first[ranges + 1] - first[ranges], 1)
        return tasks

    def range_of(self, task: int) -> tuple[int, int]:
        """(edge set, range) of a task."""
        for edge_set, first in enumerate(self.first):
            if task < first[-1]:
                return edge_set, int(np.searchsorted(first, task, "right")) - 1
        raise ValueError(f"task {task} is none of {self.tasks}")


def plan_of(graph: HeteroGraph, spec: SamplingSpec, params: SampleParams, kept: TaskOutputs, rows: str) -> SamplePlan:
    """The plan of a spec that was fitted to a graph, before ranges are cut."""
    by_node = params.aggregation == "node"
    node_sets, edge_sets = used_sets(graph, spec, by_node)
    names, ops = [op.name for op in spec.ops], list[OpPlan]()
    for number, op in enumerate(spec.ops):
        inputs = tuple(names.index(each) for each in op.inputs if each != spec.seed_op)
        level = 1 + max((ops[each].level for each in inputs), default=-1)
        strategy = STRATEGIES.index(op.strategy)
        slot = edge_sets.index(op.edge_set)
        ops.append(OpPlan(number, slot, op.size, strategy, inputs, spec.seed_op in op.inputs, level))
    edges = tuple(_edge_plan(graph, spec, name, node_sets) for name in edge_sets)
    most = max((each.count for each in edges), default=0)
    return SamplePlan(
        graph.dataset.uri, kept, rows, tuple(ops), edges, tuple(graph.node_sets[name].count for name in node_sets),
        layout_of(graph, node_sets, edge_sets), node_sets.index(spec.node_set), params.inputs == "path", by_node,
        spec.is_link, params.seed, index_dtype(max(each.count for each in graph.node_sets.values())).str,
        np.dtype(np.int32 if most < 2**31 else np.int64).str,
    )  # fmt: skip


def layout_of(graph: HeteroGraph, node_sets: list[str], edge_sets: list[str]) -> SubgraphLayout:
    """The layout of subgraphs that may hold these sets."""
    return SubgraphLayout(
        len(graph.node_sets), len(graph.edge_sets),
        tuple(map(graph.node_number, node_sets)), tuple(map(graph.edge_number, edge_sets)),
    )  # fmt: skip


def _edge_plan(graph: HeteroGraph, spec: SamplingSpec, name: str, node_sets: list[str]) -> EdgePlan:
    edges = graph.edge_sets[name]
    stored = graph.edge_number(edges.reversed_of or name)
    strategies = {op.strategy for op in spec.ops if op.edge_set == name}

    def stem(feature: str, *needed_by: str) -> str:
        places = (
            place for place, each in enumerate(edges.features) if each.name == feature and strategies & {*needed_by}
        )
        return next((feature_stem("edges", stored, place) for place in places), "")

    return EdgePlan(
        graph.edge_number(name), node_sets.index(edges.source), node_sets.index(edges.target),
        graph.node_sets[edges.source].count, graph.node_sets[edges.target].count, edges.count,
        stem(WEIGHT, "TOP_K", "RANDOM_WEIGHTED"), stem(TIMESTAMP, "LATEST_K"), "TOP_K" in strategies,
        stored, edges.reversed_of is not None, next((weights_of(op) for op in _weighted(spec, name)), ""),
    )  # fmt: skip


def check_values(graph: HeteroGraph, spec: SamplingSpec) -> None:
    """Refuse weights and timestamps that are not one number for each edge, by what the graph says of them.

    Raises:
        UserError: they are not, or there are no timestamps where they are needed.
    """
    for op in spec.ops:
        features = {each.name: each for each in graph.edge_sets[op.edge_set].features}
        if op in _weighted(spec, op.edge_set) and WEIGHT in features:
            feature = features[WEIGHT]
            if feature.dtype in (STRING, "bool") or feature.is_ragged or feature.width != 1:
                raise no_weights(op)
        if op.strategy == "LATEST_K":
            if TIMESTAMP not in features:
                raise no_timestamps(spec, op)
            feature = features[TIMESTAMP]
            if np.dtype(DTYPES.get(feature.dtype, "f4")).kind != "i" or feature.is_ragged or feature.width != 1:
                raise bad_timestamps(spec, op)


def _weighted(spec: SamplingSpec, edge_set: str) -> list[Op]:
    """Ops that draw from a set by weight, the last one first."""
    ops = [op for op in spec.ops if op.edge_set == edge_set and op.strategy in ("TOP_K", "RANDOM_WEIGHTED")]
    return ops[::-1]


def edge_ops(plan: SamplePlan, edge_set: int) -> Iterator[OpPlan]:
    """Ops whose edges are of a set in use."""
    return (op for op in plan.ops if op.edge_set == edge_set)
