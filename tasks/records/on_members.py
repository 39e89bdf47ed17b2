"""Records on the members of an engine: a task for each file.

It reads the graph by its machine's copy, and writes straight to the store.

A file depends on its subgraphs and the graph alone; one that is made again, after its member was lost, is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.shared_dataset import SharedDataset
from superworkflow.infra.engines.task_session import member_cache, open_tasks
from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.storage.manifest import FileEntry
from superworkflow.tasks.records import RecordsParams
from superworkflow.tasks.records.features import FeatureSource
from superworkflow.tasks.records.run import RecordShard, open_source, plan_of, write_schema, write_shard
from superworkflow.tasks.records.shards import SplitSubgraphs


@dataclass(frozen=True)
class RecordInputs:
    """Inputs of the tasks.

    Args:
        graph, subgraphs: URIs of the datasets.
        folder: where this machine keeps its copies; that of its members when None.
    """

    graph: str
    subgraphs: str
    folder: str | None


@dataclass(frozen=True)
class File:
    """One task: a shard of the dataset at `output`."""

    inputs: RecordInputs
    output: str
    params: RecordsParams
    shard: RecordShard


def run(job: StageRun[RecordsParams]) -> Output:
    """Write the records; see `tasks.records.run`."""
    graph, subgraphs, params = job.inputs["graph"], job.inputs["subgraphs"], job.params
    source = open_source(graph, subgraphs)
    plan = plan_of(subgraphs, source, params)
    job.output.claim(plan.files)
    write_schema(job.output, source)
    with open_tasks(job) as tasks:
        inputs = RecordInputs(graph.uri, subgraphs.uri, tasks.scratch)
        files = [File(inputs, job.output.location.uri, params, shard) for shard in plan.shards]
        for entries in tasks.run_tasks(_make, files):
            job.output.adopt(entries)
    return Output(rows=plan.records, stats=plan.stats)


def _make(file: File) -> tuple[FileEntry, ...]:
    source, datasets = _opened(file.inputs)
    writer = TaskWriter(file.output)
    write_shard(writer, file.shard, SplitSubgraphs(datasets, file.shard.split), source, file.params)
    return writer.entries


@member_cache
def _opened(inputs: RecordInputs) -> tuple[FeatureSource, SharedDataset]:
    graph, subgraphs = (SharedDataset.at(uri, inputs.folder) for uri in (inputs.graph, inputs.subgraphs))
    return open_source(graph, subgraphs), subgraphs
