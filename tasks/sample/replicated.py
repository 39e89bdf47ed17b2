"""Subgraphs with the rows of the whole graph, without its features, in every member of an engine.

A member runs one task with as many threads as it has cores, so that it holds the rows once. A task makes a
shard on each thread and writes it to the store; one that is made again, after its member was lost, is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.shared_dataset import SharedDataset
from superworkflow.infra.engines.task_session import member_cache, open_tasks
from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.storage.manifest import FileEntry
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.subgraphs.blocks import DESCRIPTION
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.run import (
    SampleShard,
    description,
    sample_output,
    shards_of,
    table_of_seeds,
    write_shard,
)
from superworkflow.tasks.sample.sampler import SeedRows, SpecSampler
from superworkflow.tasks.sample.seeds import SeedTable, find_seeds
from superworkflow.tasks.sample.sizes import Sizes
from superworkflow.tasks.sample.spec import SamplingSpec, read_spec


@dataclass(frozen=True)
class SampleContext:
    """Context of sampling in a task.

    Args:
        uri: the heterograph dataset.
        folder: where this machine keeps its copy; that of its members when None.
        spec: as it was read.
        params: of the stage, as JSON.
    """

    uri: str
    folder: str | None
    spec: SamplingSpec
    params: str


@dataclass(frozen=True)
class ShardTask:
    """Shards to make at the same time, each with its seeds; these are None where all nodes of a set are seeds."""

    work: SampleContext
    output: str
    shards: tuple[tuple[SampleShard, SeedRows | None], ...]


def run(job: StageRun[SampleParams]) -> Output:
    """Write the subgraphs of `job.inputs["graph"]`; see `tasks.sample.run`."""
    dataset, params = job.inputs["graph"], job.params
    graph, spec = HeteroGraph.open(dataset), read_spec(job.sources["spec"], job.scratch)
    sampler = SpecSampler(graph, spec, params)
    table, name = table_of_seeds(job.sources, job.scratch)
    seeds = find_seeds(graph, sampler.spec, params, table, name)
    shards = shards_of(seeds)
    job.output.claim([DESCRIPTION, *(shard.name for shard in shards)])

    def with_seeds() -> Iterator[tuple[SampleShard, SeedRows | None]]:
        for shard in shards:
            yield shard, None if table is None else seeds.rows(shard.split, shard.first, shard.last)

    given = list(with_seeds())
    with open_tasks(job, whole_members=True) as session:
        work = SampleContext(dataset.uri, session.scratch, spec, params.model_dump_json())
        groups = (tuple(given[first : first + session.threads]) for first in range(0, len(given), session.threads))
        made = session.run_tasks(_make, [ShardTask(work, job.output.location.uri, each) for each in groups])
    sizes = Sizes(sampler.layout)
    for entries, more in made:
        job.output.adopt(entries)
        sizes.merge(more)
    job.output.json(DESCRIPTION, description(graph, sampler, params, seeds))
    return sample_output(job.progress, graph, sampler.spec, sizes, seeds)


def _make(task: ShardTask) -> tuple[tuple[FileEntry, ...], Sizes]:
    sampler = _sampler(task.work)

    def make(shard: SampleShard, rows: SeedRows | None) -> tuple[tuple[FileEntry, ...], Sizes]:
        seeds = _seeds(task.work).rows(shard.split, shard.first, shard.last) if rows is None else rows
        writer = TaskWriter(task.output)
        with writer.file(shard.name) as path:
            sizes = write_shard(path, sampler, seeds)
        return writer.entries, sizes

    if any(rows is None for _, rows in task.shards):
        _seeds(task.work)  # once, before threads ask for it
    sizes, entries = Sizes(sampler.layout), list[FileEntry]()
    with ThreadPoolExecutor(len(task.shards)) as pool:
        for more_entries, more in pool.map(lambda each: make(*each), task.shards):
            entries += more_entries
            sizes.merge(more)
    return tuple(entries), sizes


@member_cache
def _graph(work: SampleContext) -> HeteroGraph:
    return HeteroGraph.open(SharedDataset.at(work.uri, work.folder))


@member_cache
def _sampler(work: SampleContext) -> SpecSampler:
    return SpecSampler(_graph(work), work.spec, SampleParams.model_validate_json(work.params))


@member_cache
def _seeds(work: SampleContext) -> SeedTable:
    params = SampleParams.model_validate_json(work.params)
    return find_seeds(_graph(work), _sampler(work).spec, params)
