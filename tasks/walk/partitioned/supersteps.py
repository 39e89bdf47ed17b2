"""Tasks of a partitioned walk: start, advance and park walkers, and assemble walks.

Each function is the work of one Spark task. Tasks exchange pairs (task, walkers in bytes).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from superworkflow.infra.engines.shared_dataset import SharedDataset
from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.manifest import FileEntry
from superworkflow.tasks.lib.graph.ranges import find_cuts
from superworkflow.tasks.lib.task_outputs import executor_folder
from superworkflow.tasks.walk.partitioned.advance import place_tokens
from superworkflow.tasks.walk.partitioned.vertex_ranges import VertexRanges, VertexRows, kept_rows
from superworkflow.tasks.walk.partitioned.walker_batch import WalkerBatch, WalkRules, advance_walks, begin_walks
from superworkflow.tasks.walk.run import count_tokens, find_vertices, shard_name

Sent = tuple[int, bytes]


@dataclass(frozen=True)
class WalkPlan:
    """Plan that tasks share.

    Args:
        graph: URI of the index dataset.
        output: URI of the dataset that is made.
        parts: folder in it for walkers between jobs.
        rows: folder for rows on the worker's disk: a path, or a name below Spark's own folder.
        ranges: owners of the rows.
        rules: of the walks.
        weighted: steps are in proportion to weights.
        starts: vertices to start from; empty for all.
        n_starts: start vertices.
    """

    graph: str
    output: str
    parts: str
    rows: str
    ranges: VertexRanges
    rules: WalkRules
    weighted: bool
    starts: npt.NDArray[np.int64]
    n_starts: int

    def rows_of(self, task: int) -> VertexRows:
        """The rows of a task, built by the first task of this machine that needs them."""
        folder = executor_folder(self.rows)
        return kept_rows(
            folder, Location.of(self.graph), *self.ranges.of_task(task),
            weighted=self.weighted, second_order=self.rules.second_order,
        )  # fmt: skip

    def file(self, job: int, task: int) -> str:
        """Name of the file in which a task leaves its walkers at the end of a job."""
        return f"{self.parts}/{job:04d}/{task:05d}.walkers"

    def left(self, job: int, task: int) -> WalkerBatch:
        """The walkers that a task has left."""
        with Location.of(self.output).join(self.file(job, task)).open() as stream:
            return WalkerBatch.unpack([stream.read()], self.rules)


def cuts_of_piece(indptr: str, parts: int, piece: tuple[int, int, int]) -> list[tuple[int, int]]:
    """See `find_cuts`; the piece is (its number, first vertex, the one after the last)."""
    return find_cuts(Location.of(indptr), parts, *piece)


def find_starts(graph: str, folder: str | None, labels: Sequence[str]) -> npt.NDArray[np.int64]:
    """See `find_vertices`."""
    return find_vertices(SharedDataset.at(graph, folder), labels)


def begin(shared: Any, first: int, last: int, task: int, nothing: Iterable[Any]) -> Iterator[Sent]:
    """A task's share of the walks first..last - 1 of a batch, sent to their start vertices."""
    _read(nothing)
    plan: WalkPlan = shared.value
    tasks = plan.ranges.tasks
    a, b = (first + (last - first) * i // tasks for i in (task, task + 1))
    batch, to = begin_walks(a, b, first, plan.starts, plan.n_starts, plan.ranges, plan.rules)
    yield from batch.split(to, tasks)


def step(shared: Any, work: Any, task: int, sent: Iterable[Sent]) -> Iterator[Sent]:
    """A superstep: advance the walkers that have arrived at a task."""
    yield from _stepped(shared.value, work, task, WalkerBatch.unpack((blob for _, blob in sent), shared.value.rules))


def resume(shared: Any, work: Any, job: int, task: int, nothing: Iterable[Any]) -> Iterator[Sent]:
    """A superstep of the walkers that a task wrote at the end of the previous job."""
    _read(nothing)
    yield from _stepped(shared.value, work, task, shared.value.left(job, task).underway)


def _read(nothing: Iterable[Any]) -> None:
    """Read Spark's input to its end: Spark kills Python processes that do not."""
    for _ in nothing:
        pass


def _stepped(plan: WalkPlan, work: Any, task: int, batch: WalkerBatch) -> Iterator[Sent]:
    if len(batch.walkers):
        rows = plan.rows_of(task)
        began = time.perf_counter()
        batch, to = advance_walks(batch, rows, task, plan.ranges, plan.rules)
        done = np.zeros((2, plan.ranges.tasks))
        done[:, task] = len(to), time.perf_counter() - began
        work.add(done)
        yield from batch.split(to, plan.ranges.tasks)


def rest(shared: Any, job: int, task: int, sent: Iterable[Sent]) -> Iterator[int]:
    """Write the walkers that have arrived at a task to the store; the number of those still underway."""
    plan: WalkPlan = shared.value
    batch = WalkerBatch.unpack((blob for _, blob in sent), plan.rules)
    with TaskWriter(Location.of(plan.output)).file(plan.file(job, task)) as path:
        path.write_bytes(batch.pack())
    yield len(batch.underway.walkers)


def pieces(shared: Any, jobs: int, shard: int, shards: int, task: int, nothing: Iterable[Any]) -> Iterator[Sent]:
    """Pieces of walks that a task wrote in the jobs of a batch, sent to its shards of ``shard`` walks."""
    _read(nothing)
    plan: WalkPlan = shared.value
    for job in range(jobs):
        batch = plan.left(job, task).visited
        yield from batch.split((batch.walkers["walk"] // shard).astype(np.int32), shards)


def write_shard(
    shared: Any, first: int, spans: Sequence[tuple[int, int]], index: int, sent: Iterable[Sent]
) -> Iterator[tuple[tuple[FileEntry, ...], int, int]]:
    """Put one shard of a batch together and write it: (its file, vertices in it, walks that a sink has ended)."""
    plan: WalkPlan = shared.value
    start, end = spans[index]
    shard = np.full((end - start, plan.rules.length), -1, plan.rules.vertex)
    for _, blob in sent:
        batch = WalkerBatch.unpack([blob], plan.rules)
        walkers = batch.walkers
        positions = walkers["position"] - walkers["tokens"] + 1
        place_tokens(walkers["walk"], positions, walkers["tokens"], batch.tokens, start - spans[0][0], shard)
    if ((shard[:, :1] < 0).any()) or ((shard[:, :-1] < 0) & (shard[:, 1:] >= 0)).any():
        raise RuntimeError(f"walks {start} to {end} came with gaps")
    writer = TaskWriter(Location.of(plan.output))
    writer.array(shard_name(first + index), shard)
    yield writer.entries, *count_tokens(shard)
