"""Walks on members of an engine with the adjacency in parts: rows stay with a task, walkers travel from task to task.

A superstep advances each walker as far as the rows of its task allow (`advance`), then a shuffle sends it to the task
that has the row it needs next. Walkers and what they have visited are fixed-size records in one
blob for each pair of tasks, so a superstep is one step of an exchange with one record for each pair.

`SUPERSTEPS` of them make a job, at whose end every task writes its walkers to the store. The next job begins with
these files: lineage ends there, and the work of a lost member is recomputed from them and from nothing older. A last
shuffle by shard assembles walks from the same files, which are removed then. Walks are made in batches of whole shards,
so no more than a batch is underway at once.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from superworkflow.infra.base.errors import SuperworkflowError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.task_session import Step, TaskSession, open_tasks
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
"""Bytes for a walker: its record and what it carries, on arrival, on departure, and in the engine's buffers."""
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
    with open_tasks(job) as session:
        return run_partitioned(job, session, tasks)


def run_partitioned(job: StageRun[WalkParams], session: TaskSession, tasks: int | None = None) -> Output:
    """`run` in an open session."""
    params = job.params
    plan = plan_walks(job, session, tasks)
    vertices = int(plan.ranges.cuts[-1])
    spans = shard_spans(params.num_walks * plan.n_starts, params.walk_length)
    job.output.claim(shard_names(spans))
    jobs = _Jobs(session, plan, job)
    batch = max(1, plan.ranges.tasks * walkers_per_task(session) // spans[0][1]) if spans else 1
    tokens = ended = 0
    for first in range(0, len(spans), batch):
        for entries, more_tokens, more_ended in jobs.batch(first, spans[first : first + batch]):
            job.output.adopt(entries)
            tokens, ended = tokens + more_tokens, ended + more_ended
    job.progress.log(jobs.summary())
    return walk_output(params, plan.n_starts, vertices, plan.weighted, tokens, ended)


def plan_walks(job: StageRun[WalkParams], session: TaskSession, tasks: int | None = None) -> WalkPlan:
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
    parts = tasks or tasks_for(vertices, edges, vertex.itemsize, weighted, session)
    bounds = np.linspace(0, vertices, max(1, min(session.slots, vertices // _PIECE)) + 1).astype(int).tolist()
    pieces = [(i, a, b) for i, (a, b) in enumerate(pairwise(bounds))]
    found = session.run_tasks(partial(supersteps.cuts_of_piece, indptr.uri, parts), pieces)
    starts: npt.NDArray[np.int64] = np.empty(0, np.int64)
    if params.start_vertices is not None:
        find = partial(supersteps.find_starts, graph.uri, session.scratch)
        [starts] = session.run_tasks(find, [params.start_vertices])
    return WalkPlan(
        graph=graph.uri, output=job.output.location.uri, parts=f"{PARTS_FOLDER}/walkers",
        rows=f"{session.scratch}/rows" if session.scratch else f"rows-{session.name}",
        ranges=VertexRanges.cut([cut for piece in found for cut in piece]), weighted=weighted,
        rules=WalkRules(params.p, params.q, params.walk_length, bool(graph.stats["directed"]), params.seed, vertex.str),
        starts=starts, n_starts=vertices if params.start_vertices is None else len(starts),
    )  # fmt: skip


def tasks_for(vertices: int, edges: int, item: int, weighted: bool, session: TaskSession) -> int:
    """Parts of the adjacency: a few for each core, none larger than a quarter of a task's memory.

    Args:
        vertices, edges: of the graph, its directed edges.
        item: bytes of a vertex.
        weighted: alias tables are needed.
        session: the open tasks.
    """
    size = 16 * vertices + item * edges + (12 * edges + 8 * vertices if weighted else 0)
    return max(TASKS_PER_CORE * session.slots, int(-(-size // (session.task_memory / 4))))


def walkers_per_task(session: TaskSession) -> int:
    """Mean number of a batch's walkers in a task: enough to be worth a superstep, if memory allows."""
    return max(1, min(MOST_WALKERS, session.task_memory // WALKER_BYTES))


class _Jobs:
    """One exchange after another, and what they count."""

    def __init__(self, session: TaskSession, plan: WalkPlan, job: StageRun[WalkParams]):
        self._session, self._plan, self._progress = session, plan, job.progress
        self._parts = job.output.location.join(plan.parts)
        self._left = np.zeros(plan.ranges.tasks, np.int64)

    def batch(self, first: int, spans: list[tuple[int, int]]) -> list[tuple[tuple[FileEntry, ...], int, int]]:
        """Make the shards number `first`, `first + 1`, …: (file, vertices in it, walks that a sink ended) of each."""
        plan, tasks = self._plan, self._plan.ranges.tasks
        begin, end = spans[0][0], spans[-1][1]
        jobs, underway = 0, end - begin
        while underway:
            send = partial(supersteps.resume, plan, jobs - 1) if jobs else partial(supersteps.begin, plan, begin, end)
            steps = [Step(tasks, partial(supersteps.step, plan))] * (SUPERSTEPS - 1)
            steps.append(Step(tasks, partial(supersteps.rest, plan, jobs)))
            left = self._session.exchange(range(tasks), send, *steps)
            underway = sum(left)
            self._left += left
            jobs += 1
            self._progress.log(f"walks {begin} to {end}: {underway} underway after {jobs * SUPERSTEPS} supersteps")
        made = self._session.exchange(
            range(tasks), partial(supersteps.pieces, plan, jobs, spans[0][1] - begin, len(spans)),
            Step(len(spans), partial(supersteps.write_shard, plan, first, spans)),
        )  # fmt: skip
        self._parts.delete(recursive=True)
        return made

    def summary(self) -> str:
        """Balance of the tasks by the walkers underway between exchanges, for people."""
        tasks, walkers = len(self._left), int(self._left.sum())
        largest = self._left.max() / max(1, walkers)
        return f"of {walkers} walkers underway, the largest of {tasks} tasks had {largest:.0%}; even is {1 / tasks:.0%}"
