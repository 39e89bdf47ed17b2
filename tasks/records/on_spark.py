"""Records on Spark: a task for each file, which reads the graph by its machine's copy and writes straight to the store.

A file depends on its subgraphs and the graph alone; one that is made again, after its executor was lost, is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.shared_dataset import SharedDataset
from superworkflow.infra.engines.spark.session import runs_here, spark_session
from superworkflow.infra.engines.spark.tasks import run_tasks
from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.storage.location import Location
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
        folder: where this machine keeps its copies; the system's temporary folder when None.
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
    inputs = RecordInputs(graph.uri, subgraphs.uri, str(job.scratch) if runs_here(job) else None)
    files = [File(inputs, job.output.location.uri, params, shard) for shard in plan.shards]
    with spark_session(job) as session:
        for entries in run_tasks(session, _make, files):
            job.output.adopt(entries)
    return Output(rows=plan.records, stats=plan.stats)


def _make(file: File) -> tuple[FileEntry, ...]:
    source, datasets = _opened(file.inputs)
    writer = TaskWriter(Location.of(file.output))
    write_shard(writer, file.shard, SplitSubgraphs(datasets, file.shard.split), source, file.params)
    return writer.entries


@cache  # for the life of the process: it serves one stage
def _opened(inputs: RecordInputs) -> tuple[FeatureSource, SharedDataset]:
    graph, subgraphs = (SharedDataset.at(uri, inputs.folder) for uri in (inputs.graph, inputs.subgraphs))
    return open_source(graph, subgraphs), subgraphs
