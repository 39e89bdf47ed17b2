"""Walks on Spark with the adjacency in parts: rows stay with a task, walkers travel from task to task.

A superstep advances each walker as far as the rows of its task allow (`advance`), then a shuffle sends it to the task
that has the row it needs next. Walkers and what they have visited are fixed-size records in one
blob for each pair of tasks, so a superstep is one stage of Spark with one record for each pair.

`SUPERSTEPS` of them make a job, at whose end every task writes its walkers to the store. The next job begins with
these files: lineage ends there, and the work of a lost executor is recomputed from them and from nothing older. A last
shuffle by shard assembles walks from the same files, which are removed then. Walks are made in batches of whole shards,
so no more than a batch is underway at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark import AccumulatorParam

from superworkflow.infra.base.errors import SuperworkflowError
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.spark.session import python_memory, runs_here, spark_session, task_cores
from superworkflow.infra.engines.spark.tasks import collected, run_tasks
from superworkflow.infra.storage.manifest import PARTS_FOLDER, FileEntry
from superworkflow.tasks.lib.graph.npy_slices import array_header
from superworkflow.tasks.walk.params import WalkParams
from superworkflow.tasks.walk.partitioned import supersteps
from superworkflow.tasks.walk.partitioned.advance import MOST_VERTICES
from superworkflow.tasks.walk.partitioned.supersteps import WalkPlan
from superworkflow.tasks.walk.partitioned.vertex_ranges import VertexRanges
from superworkflow.tasks.walk.partitioned.walker_batch import WalkRules
from superworkflow.tasks.walk.run import shard_names, shard_spans, uses_weights, walk_output

SUPERSTEPS = 8
"""Supersteps of a job: with more, walkers carry visited vertices longer; with fewer, they are written more often."""
WALKER_BYTES = 1 << 10
"""Bytes for a walker: its record and what it carries, on arrival, on departure, and in Spark's buffers."""
MOST_WALKERS = 1 << 18
"""Most walkers of a task in a batch: with more, a superstep's fixed costs no longer matter."""
TASKS_PER_CORE = 2
_PIECE = 1 << 20  # vertices whose degrees one task reads, at least


def run(job: StageRun[WalkParams], tasks: int | None = None) -> Output:
    """Write the walks of `job.inputs["graph"]`, the same files as `tasks.walk.run` does.

    Args:
        job: the stage's run.
        tasks: parts of the adjacency; None for a number that suits the cores and their memory.

    Raises:
        UserError: weights are asked for and the graph has none, or a start vertex is not in the graph.
        TaskFailed: a task failed as often as it may.
    """
    uses_weights(job.inputs["graph"], job.params)
    with spark_session(job) as session:
        return run_partitioned(job, session, tasks)


def run_partitioned(job: StageRun[WalkParams], session: Any, tasks: int | None = None) -> Output:
    """`run` in an open session."""
    params = job.params
    plan = plan_walks(job, session, tasks)
    vertices = int(plan.ranges.cuts[-1])
    spans = shard_spans(params.num_walks * plan.n_starts, params.walk_length)
    job.output.claim(shard_names(spans))
    jobs = _SparkJobs(session.sparkContext, plan, job)
    batch = max(1, plan.ranges.tasks * walkers_per_task(job) // spans[0][1]) if spans else 1
    tokens = ended = 0
    for first in range(0, len(spans), batch):
        for entries, more_tokens, more_ended in jobs.batch(first, spans[first : first + batch]):
            job.output.adopt(entries)
            tokens, ended = tokens + more_tokens, ended + more_ended
    job.progress.log(jobs.summary())
    return walk_output(params, plan.n_starts, vertices, plan.weighted, tokens, ended)


def plan_walks(job: StageRun[WalkParams], session: Any, tasks: int | None = None) -> WalkPlan:
    """Cut the graph and make the plan for its tasks; only offsets of cuts pass through the driver."""
    graph, params = job.inputs["graph"], job.params
    graph.verify("size")
    indptr = graph.location.join("indptr.npy")
    vertices = array_header(indptr)[0] - 1
    edges, vertex = array_header(graph.location.join("indices.npy"))
    if vertices >= MOST_VERTICES:
        raise SuperworkflowError(
            f"a graph of {vertices} vertices; a walker holds numbers of up to {MOST_VERTICES} vertices"
        )
    weighted = uses_weights(graph, params)
    parts = tasks or tasks_for(vertices, edges, vertex.itemsize, weighted, cores(job), job.resources)
    bounds = np.linspace(0, vertices, max(1, min(cores(job), vertices // _PIECE)) + 1).astype(int).tolist()
    pieces = [(i, a, b) for i, (a, b) in enumerate(pairwise(bounds))]
    found = run_tasks(session, partial(supersteps.cuts_of_piece, indptr.uri, parts), pieces)
    starts: npt.NDArray[np.int64] = np.empty(0, np.int64)
    if params.start_vertices is not None:
        folder = str(job.scratch) if runs_here(job) else None
        [starts] = run_tasks(session, partial(supersteps.find_starts, graph.uri, folder), [params.start_vertices])
    return WalkPlan(
        graph=graph.uri, output=job.output.location.uri, parts=f"{PARTS_FOLDER}/walkers",
        rows=str(job.scratch / "rows") if runs_here(job) else f"rows-{session.sparkContext.applicationId}",
        ranges=VertexRanges.cut([cut for piece in found for cut in piece]), weighted=weighted,
        rules=WalkRules(params.p, params.q, params.walk_length, bool(graph.stats["directed"]), params.seed, vertex.str),
        starts=starts, n_starts=vertices if params.start_vertices is None else len(starts),
    )  # fmt: skip


def cores(job: StageRun[Any]) -> int:
    """Tasks at a time."""
    executors = job.resources.executors
    return task_cores(job) * (1 if executors is None or runs_here(job) else executors.largest)


def tasks_for(vertices: int, edges: int, item: int, weighted: bool, cores: int, resources: Resources) -> int:
    """Parts of the adjacency: a few for each core, none larger than a quarter of a task's memory.

    Args:
        vertices, edges: of the graph, its directed edges.
        item: bytes of a vertex.
        weighted: alias tables are needed.
        cores: tasks at a time.
        resources: of the stage.
    """
    size = 16 * vertices + item * edges + (12 * edges + 8 * vertices if weighted else 0)
    each = resources.executors.cpu if resources.executors else resources.cpu
    share = python_memory(resources) / max(1.0, each) / 4
    return max(TASKS_PER_CORE * cores, int(-(-size // share)))


def walkers_per_task(job: StageRun[Any]) -> int:
    """Mean number of a batch's walkers in a task: enough to be worth a superstep, if memory allows."""
    return max(1, min(MOST_WALKERS, python_memory(job.resources) // task_cores(job) // WALKER_BYTES))


class _SparkJobs:
    """One job of Spark after another, and what they count."""

    def __init__(self, context: Any, plan: WalkPlan, job: StageRun[WalkParams]):
        self._context, self._plan, self._progress = context, plan, job.progress
        self._parts = job.output.location.join(plan.parts)
        self._shared = context.broadcast(plan)
        self._work = context.accumulator(np.zeros((2, plan.ranges.tasks)), _Sum())

    def batch(self, first: int, spans: list[tuple[int, int]]) -> list[tuple[tuple[FileEntry, ...], int, int]]:
        """Make the shards number `first`, `first + 1`, …: (file, vertices in it, walks that a sink ended) of each."""
        shared, work, tasks = self._shared, self._work, self._plan.ranges.tasks
        begin, end = spans[0][0], spans[-1][1]
        jobs, underway = 0, end - begin
        while underway:
            if jobs:
                walkers = self._each(partial(supersteps.resume, shared, work, jobs - 1))
            else:
                walkers = self._each(partial(supersteps.begin, shared, begin, end))
            for _ in range(SUPERSTEPS - 1):
                walkers = self._exchanged(walkers, tasks, partial(supersteps.step, shared, work))
            underway = sum(collected(self._exchanged(walkers, tasks, partial(supersteps.rest, shared, jobs))))
            jobs += 1
            self._progress.log(f"walks {begin} to {end}: {underway} underway after {jobs * SUPERSTEPS} supersteps")
        pieces = self._each(partial(supersteps.pieces, shared, jobs, spans[0][1] - begin, len(spans)))
        made = collected(self._exchanged(pieces, len(spans), partial(supersteps.write_shard, shared, first, spans)))
        self._parts.delete(recursive=True)
        return made

    def summary(self) -> str:
        """Balance of the work, for people."""
        walkers, seconds = self._work.value
        share, largest = 1 / len(walkers), seconds.max() / max(1e-9, seconds.sum())
        return (
            f"{len(walkers)} tasks handled {int(walkers.sum())} walkers; the largest took {largest:.0%} of the "
            f"time for walking, where an even share is {share:.0%}"
        )

    def _each(self, function: Callable[..., Any]) -> Any:
        tasks = self._plan.ranges.tasks
        return self._context.parallelize(range(tasks), tasks).mapPartitionsWithIndex(function)

    def _exchanged(self, sent: Any, tasks: int, function: Callable[..., Any]) -> Any:
        return sent.partitionBy(tasks, _itself).mapPartitionsWithIndex(function)


def _itself(task: int) -> int:
    return task


class _Sum(AccumulatorParam[npt.NDArray[np.float64]]):
    """Arrays added up."""

    def zero(self, value: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.zeros_like(value)

    def addInPlace(self, value1: npt.NDArray[np.float64], value2: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:  # noqa: N802
        value1 += value2
        return value1
