"""Walks with the whole graph in every member of an engine: each task makes one shard and writes it to the store.

A member runs one task with as many threads as it has cores, so that it holds the graph once. A walk
depends on its number alone; a shard that is made again, after its member was lost, is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.shared_dataset import SharedDataset
from superworkflow.infra.engines.task_session import member_cache, open_tasks
from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.storage.manifest import FileEntry
from superworkflow.tasks.walk.params import WalkParams
from superworkflow.tasks.walk.run import (
    count_tokens,
    find_vertices,
    load_walker,
    shard_name,
    shard_names,
    shard_spans,
    uses_weights,
    walk_output,
)
from superworkflow.tasks.walk.walker import Walker


@dataclass(frozen=True)
class ReplicatedGraph:
    """Location of the graph that a task walks on.

    Args:
        uri: the index dataset.
        folder: where this machine keeps its copy; that of its members when None.
        params: of the walks.
        threads: of a task.
    """

    uri: str
    folder: str | None
    params: WalkParams
    threads: int


@dataclass(frozen=True)
class WalkShard:
    """One task: the walks `first` to `last - 1`, as file number `number` of the dataset at `output`."""

    graph: ReplicatedGraph
    output: str
    number: int
    first: int
    last: int


def run(job: StageRun[WalkParams]) -> Output:
    """Write the walks of `job.inputs["graph"]`; see `tasks.walk.run`."""
    dataset, params = job.inputs["graph"], job.params
    weighted, vertices = uses_weights(dataset, params), int(dataset.stats["vertices"] or 0)
    with open_tasks(job, whole_members=True) as tasks:
        graph = ReplicatedGraph(dataset.uri, tasks.scratch, params, tasks.threads)
        if params.start_vertices is not None:
            tasks.run_tasks(_check_starts, [graph])
        starts = vertices if params.start_vertices is None else len(params.start_vertices)
        spans = shard_spans(params.num_walks * starts, params.walk_length)
        job.output.claim(shard_names(spans))
        shards = [WalkShard(graph, job.output.location.uri, i, *span) for i, span in enumerate(spans)]
        made = tasks.run_tasks(_walk, shards)
    for entries, _, _ in made:
        job.output.adopt(entries)
    return walk_output(
        params, starts, vertices, weighted, sum(tokens for _, tokens, _ in made), sum(ended for _, _, ended in made)
    )


def _walk(shard: WalkShard) -> tuple[tuple[FileEntry, ...], int, int]:
    walks = _walker(shard.graph).walk(shard.first, shard.last, shard.graph.threads)
    writer = TaskWriter(shard.output)
    writer.array(shard_name(shard.number), walks)
    return writer.entries, *count_tokens(walks)


@member_cache
def _walker(graph: ReplicatedGraph) -> Walker:
    return load_walker(SharedDataset.at(graph.uri, graph.folder), graph.params, graph.threads)


def _check_starts(graph: ReplicatedGraph) -> None:
    find_vertices(SharedDataset.at(graph.uri, graph.folder), graph.params.start_vertices or ())
