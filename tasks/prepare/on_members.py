"""Stage `prepare` on the members of an engine: tasks count whole shards of the walks.

Counts are added up by ranges of vertices.

The arrays built from the counts are small compared with the walks (about 40 bytes per vertex, less than training
needs), and one task builds them with the code of the in-process stage, so that sums are rounded in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.task_session import Step, open_tasks
from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.manifest import FileEntry
from superworkflow.tasks.lib.graph.integrity import foreign_vertex
from superworkflow.tasks.prepare import PrepareParams
from superworkflow.tasks.prepare.run import FILES, count_tokens, write_vocabulary

RANGE_VERTICES = 1 << 20
"""Vertices in a range."""

Range = tuple[int, NDArray[np.int64]]


@dataclass(frozen=True)
class PrepareContext:
    """Context of all tasks: walks, output, vertices of the graph and of a range, parameters."""

    walks: str
    output: str
    vertices: int
    range_vertices: int
    params: PrepareParams


def run(job: StageRun[PrepareParams]) -> Output:
    """Write the vocabulary of `job.inputs["walks"]`; see `tasks.prepare.run`."""
    walks, vertices = job.inputs["walks"], int(job.inputs["graph"].stats["vertices"] or 0)
    work = PrepareContext(walks.uri, job.output.location.uri, vertices, RANGE_VERTICES, job.params)
    job.output.claim(FILES)
    names = walks.files("walks-*.npy")
    with open_tasks(job) as session:
        # Each task holds counts of all vertices: no more tasks than run at a time.
        tasks = max(1, min(len(names), session.slots))
        ranges = -(-vertices // work.range_vertices)
        shares = [names[task::tasks] for task in range(tasks)]
        [made] = session.exchange(
            shares, partial(_count, work), Step(max(1, ranges), _add), Step(1, partial(_write, work))
        )  # fmt: skip
    entries: tuple[FileEntry, ...] = made[0]
    output: Output = made[1]
    job.output.adopt(entries)
    return output


def _count(work: PrepareContext, names: Sequence[str]) -> Iterator[Range]:
    """Counts of the shards of one task, by range of vertices.

    Raises:
        UserError: a vertex of the walks is not in the graph.
    """
    walks, counts = Dataset.open(work.walks), np.zeros(work.vertices, np.int64)
    try:
        for name in names:
            shard = np.ascontiguousarray(walks.array(name)).reshape(-1)
            bad = int(count_tokens(shard, counts))
            if bad >= 0:
                raise foreign_vertex(f"{walks.uri}/{name}", bad, work.vertices)
            del shard
            walks.release(name)
    finally:
        walks.close()
    for number, first in enumerate(range(0, work.vertices, work.range_vertices)):
        yield number, counts[first : first + work.range_vertices]


def _add(number: int, counts: list[NDArray[np.int64]]) -> Iterator[tuple[int, Range]]:
    if counts:
        yield 0, (number, np.sum(counts, axis=0))


def _write(work: PrepareContext, _: int, ranges: list[Range]) -> tuple[tuple[FileEntry, ...], Output]:
    counts = np.zeros(work.vertices, np.int64)
    for number, values in ranges:
        first = number * work.range_vertices
        counts[first : first + len(values)] = values
    writer = TaskWriter(work.output)
    output = write_vocabulary(writer, counts, Dataset.open(work.walks), work.params)
    return writer.entries, output
