"""Subgraphs with rows in parts: shards request, level by level of the spec, draws in rows of other tasks.

A task reads its range of sources of an edge set from the dataset. Shards are processed in batches. For each level of
ops, a shard sends (subgraph, op, node) to the tasks that have the nodes' rows; these draw, and send the edges back.
Draws of a shard are stored in the dataset's folder, where lineage ends: a lost member's part of a level is repeated
from there. Before each level the requested rows of each range are counted; a range with more than its share, such as
one with a hub, gets several tasks, between which subgraphs are divided.

Draws come from (seed, seed node, repeat, op, node), so none of this changes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.task_session import Step, TaskSession, open_tasks
from superworkflow.infra.storage.location import Location
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.ranges import find_cuts
from superworkflow.tasks.lib.in_parts.task_outputs import TaskOutputs
from superworkflow.tasks.lib.subgraphs.blocks import DESCRIPTION, SubgraphLayout
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.partitioned.blocks import write_shard
from superworkflow.tasks.sample.partitioned.members import count_joins, edge_requests, store_edges
from superworkflow.tasks.sample.partitioned.plan import EdgePlan, Routes, SamplePlan, check_values, plan_of
from superworkflow.tasks.sample.partitioned.requester import ShardSeeds, count_requests, draw_requests, store_draws
from superworkflow.tasks.sample.partitioned.responder import answer, join
from superworkflow.tasks.sample.partitioned.rows import check_range
from superworkflow.tasks.sample.run import SampleShard, description, sample_output, shards_of, table_of_seeds
from superworkflow.tasks.sample.seeds import find_seeds
from superworkflow.tasks.sample.sizes import Sizes
from superworkflow.tasks.sample.spec import SamplingSpec, read_spec

TASKS_PER_CORE = 2
SHARDS_PER_CORE = 8
"""Subgraphs of a batch, whose draws are kept in the dataset's folder until the end."""
_PIECE = 1 << 20  # nodes whose degrees one task reads, at least
_LEAST_RANGE = 1 << 20  # edges of a set that are cut at all, unless memory asks for it


def run(job: StageRun[SampleParams]) -> Output:
    """Write the subgraphs of `job.inputs["graph"]`, the same files as `tasks.sample.run` does.

    Raises:
        UserError: as there.
        TaskFailed: a task failed as often as it may.
    """
    with open_tasks(job) as session:
        return make(job, session)


class _Sampled(NamedTuple):
    spec: SamplingSpec
    layout: SubgraphLayout


def make(job: StageRun[SampleParams], session: TaskSession, ranges: int | None = None) -> Output:
    """`run`, in a session that is open.

    Args:
        job: the stage's run.
        session: its open tasks.
        ranges: of each edge set, and tasks that draw; None for as many as cores and memory ask for.
    """
    dataset, params = job.inputs["graph"], job.params
    dataset.verify("size")
    graph = HeteroGraph.open(dataset)
    spec = read_spec(job.sources["spec"], job.scratch).sized(params.size_factor, params.sizes)
    spec = spec.fitted(graph.node_sets, graph.edge_sets)
    check_values(graph, spec)
    seeds = find_seeds(graph, spec, params, *table_of_seeds(job.sources, job.scratch))
    shards = shards_of(seeds)
    job.output.claim([DESCRIPTION, *(shard.name for shard in shards)])
    rows = f"{session.scratch}/rows" if session.scratch else f"rows-{session.name}"
    plan = plan_of(graph, spec, params, TaskOutputs(job.output.location.uri), rows)
    plan = replace(plan, cuts=tuple(_cuts(session, plan, edges, ranges) for edges in plan.edge_sets))
    weighted = [
        (place, number)
        for place, (edges, cuts) in enumerate(zip(plan.edge_sets, plan.cuts, strict=True))
        if edges.weight
        for number in range(len(cuts) - 1)
    ]
    session.run_tasks(partial(check_range, plan), weighted)
    work, sizes = _Work(job, session, plan, ranges or TASKS_PER_CORE * session.slots), Sizes(plan.layout)
    size = SHARDS_PER_CORE * session.slots
    for first in range(0, len(shards), size):
        batch = [_with_seeds(number, shards[number], seeds) for number in range(first, min(first + size, len(shards)))]
        sizes.merge(work.batch(batch))
        job.progress.log(f"{sizes.subgraphs} subgraphs, {sizes.edges} edges")
    job.progress.log(work.summary(sizes.edges))
    job.output.json(DESCRIPTION, description(graph, _Sampled(spec, plan.layout), params, seeds))
    return sample_output(job.progress, graph, spec, sizes, seeds)


def _with_seeds(number: int, shard: SampleShard, seeds: Any) -> ShardSeeds:
    return ShardSeeds(number, shard.name, seeds.rows(shard.split, shard.first, shard.last))


def _cuts(session: TaskSession, plan: SamplePlan, edges: EdgePlan, ranges: int | None) -> NDArray[np.int64]:
    """First source of each range of an edge set, and the number of sources; only offsets of cuts pass through here."""
    if not edges.sources:
        return np.array([0, 1])
    item = np.dtype(plan.node_type).itemsize + 4 * bool(edges.weight) + 8 * (bool(edges.timestamp) + edges.ranked)
    share = session.task_memory / 4
    wanted = -(-(8 * edges.sources + item * edges.count) // int(max(share, 1)))
    wanted = ranges or max(wanted, min(session.slots, edges.count // _LEAST_RANGE), 1)
    indptr = Location.of(plan.graph).join(f"edges-{edges.number}-indptr.npy")
    pieces = max(1, min(session.slots, edges.sources // _PIECE))
    bounds = np.linspace(0, edges.sources, pieces + 1).astype(int).tolist()
    given = [(number, a, b) for number, (a, b) in enumerate(pairwise(bounds))]
    found = session.run_tasks(partial(_cuts_of_piece, indptr.uri, int(wanted)), given)
    return np.unique([0, edges.sources, *(cut for piece in found for cut, _ in piece)]).astype(np.int64)


def _cuts_of_piece(indptr: str, parts: int, piece: tuple[int, int, int]) -> list[tuple[int, int]]:
    return find_cuts(Location.of(indptr), parts, *piece)


class _Work:
    """One batch of shards after the other."""

    def __init__(self, job: StageRun[SampleParams], session: TaskSession, plan: SamplePlan, tasks: int):
        self._job, self._session, self._plan, self._tasks = job, session, plan, tasks
        self._before = session.shuffled_bytes()

    def batch(self, shards: list[ShardSeeds]) -> Sizes:
        """Make these shards; how large their subgraphs are."""
        plan, session, items = self._plan, self._session, list(enumerate(shards))
        counts = [count_requests(plan, shard, 0) for shard in shards]
        for level in range(plan.levels):
            routes = self._routes(counts)
            steps = (
                Step(routes.tasks, partial(answer, plan, routes)),
                Step(len(shards), partial(store_draws, plan, routes, level, shards)),
            )
            kept = session.exchange(items, partial(draw_requests, plan, routes, level), *steps)
            counts = [each for _, each in kept]
        if plan.by_node:
            routes = self._routes(session.run_tasks(partial(count_joins, plan), shards))
            session.exchange(
                items, partial(edge_requests, plan, routes), Step(routes.tasks, partial(join, plan, routes)),
                Step(len(shards), partial(store_edges, plan, routes, shards)),
            )  # fmt: skip
        sizes = Sizes(plan.layout)
        for entries, more in session.run_tasks(partial(write_shard, plan), shards):
            self._job.output.adopt(entries)
            sizes.merge(more)
        plan.kept.remove("subgraphs")
        return sizes

    def summary(self, edges: int) -> str:
        """Summary of the exchanged bytes, for people."""
        shuffled = self._session.shuffled_bytes() - self._before
        return f"{shuffled} bytes were shuffled, {shuffled / max(edges, 1):.1f} for each of {edges} edges"

    def _routes(self, counts: Sequence[list[NDArray[np.int64]]]) -> Routes:
        return Routes.shared([np.sum(each, axis=0) for each in zip(*counts, strict=True)], self._tasks)
