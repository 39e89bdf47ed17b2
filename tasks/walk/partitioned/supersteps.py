"""Tasks of a partitioned walk: start, advance and park walkers, and assemble walks.

Each function is the work of one task. Tasks exchange pairs (task, walkers in bytes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from superworkflow.infra.engines.shared_dataset import SharedDataset
from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.manifest import FileEntry
from superworkflow.tasks.lib.graph.ranges import find_cuts
from superworkflow.tasks.lib.in_parts.task_outputs import executor_folder
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
        rows: folder for rows on the member's disk: a path, or a name below the member's own folder.
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


def begin(plan: WalkPlan, first: int, last: int, task: int) -> Iterator[Sent]:
    """A task's share of the walks first..last - 1 of a batch, sent to their start vertices."""
    tasks = plan.ranges.tasks
    a, b = (first + (last - first) * i // tasks for i in (task, task + 1))
    batch, to = begin_walks(a, b, first, plan.starts, plan.n_starts, plan.ranges, plan.rules)
    yield from batch.split(to, tasks)


def step(plan: WalkPlan, task: int, sent: Sequence[bytes]) -> Iterator[Sent]:
    """A superstep: advance the walkers that have arrived at a task."""
    yield from _stepped(plan, task, WalkerBatch.unpack(sent, plan.rules))


def resume(plan: WalkPlan, job: int, task: int) -> Iterator[Sent]:
    """A superstep of the walkers that a task wrote at the end of the previous job."""
    yield from _stepped(plan, task, plan.left(job, task).underway)


def _stepped(plan: WalkPlan, task: int, batch: WalkerBatch) -> Iterator[Sent]:
    if len(batch.walkers):
        batch, to = advance_walks(batch, plan.rows_of(task), task, plan.ranges, plan.rules)
        yield from batch.split(to, plan.ranges.tasks)


def rest(plan: WalkPlan, job: int, task: int, sent: Sequence[bytes]) -> int:
    """Write the walkers that have arrived at a task to the store; the number of those still underway."""
    batch = WalkerBatch.unpack(sent, plan.rules)
    with TaskWriter(plan.output).file(plan.file(job, task)) as path:
        path.write_bytes(batch.pack())
    return len(batch.underway.walkers)


def pieces(plan: WalkPlan, jobs: int, shard: int, shards: int, task: int) -> Iterator[Sent]:
    """Pieces of walks that a task wrote in the jobs of a batch, sent to its shards of ``shard`` walks."""
    for job in range(jobs):
        batch = plan.left(job, task).visited
        yield from batch.split((batch.walkers["walk"] // shard).astype(np.int32), shards)


def write_shard(
    plan: WalkPlan, first: int, spans: Sequence[tuple[int, int]], index: int, sent: Sequence[bytes]
) -> tuple[tuple[FileEntry, ...], int, int]:
    """Put one shard of a batch together and write it: (its file, vertices in it, walks that a sink has ended)."""
    start, end = spans[index]
    shard = np.full((end - start, plan.rules.length), -1, plan.rules.vertex)
    for blob in sent:
        batch = WalkerBatch.unpack([blob], plan.rules)
        walkers = batch.walkers
        positions = walkers["position"] - walkers["tokens"] + 1
        place_tokens(walkers["walk"], positions, walkers["tokens"], batch.tokens, start - spans[0][0], shard)
    if ((shard[:, :1] < 0).any()) or ((shard[:, :-1] < 0) & (shard[:, 1:] >= 0)).any():
        raise RuntimeError(f"walks {start} to {end} came with gaps")
    writer = TaskWriter(plan.output)
    writer.array(shard_name(first + index), shard)
    return writer.entries, *count_tokens(shard)
