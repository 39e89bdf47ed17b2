"""The work of stage `records`: find the sizes of all records, cut them into shards, and make each shard by itself."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.graph.heterograph import Feature, HeteroGraph
from superworkflow.tasks.lib.graph.schema import (
    SCHEMA_FILE,
    ContextSchema,
    EdgeSetSchema,
    GraphSchema,
    NodeSetSchema,
    SchemaFeature,
    schema_text,
)
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.subgraphs.blocks import SPLITS
from superworkflow.tasks.records import RecordsParams
from superworkflow.tasks.records.features import READOUT, READOUT_ENDS, FeatureSource, seed_sets_of
from superworkflow.tasks.records.rows import write_rows
from superworkflow.tasks.records.shards import (
    Packed,
    SplitSubgraphs,
    record_ends,
    shard_file,
    shard_spans,
    values_of,
    write_records,
)

load_kernels_fast()


class RecordShard(NamedTuple):
    """A file of subgraphs `first` to `last` - 1 of a split, in one of `FORMATS`."""

    name: str
    format: str
    split: str
    first: int
    last: int


class Plan(NamedTuple):
    """All that is to be written.

    Args:
        subgraphs: of each split.
        shards: in their order.
        stats: of the dataset.
    """

    subgraphs: Mapping[str, SplitSubgraphs]
    shards: list[RecordShard]
    stats: dict[str, Stat]

    @property
    def records(self) -> int:
        return sum(map(len, self.subgraphs.values()))

    @property
    def files(self) -> list[str]:
        return [SCHEMA_FILE, *(shard.name for shard in self.shards)]


def run(job: StageRun[RecordsParams]) -> Output:
    """Write the records of `job.inputs["subgraphs"]`, with the features of `job.inputs["graph"]`.

    Raises:
        DatasetDamaged: the subgraphs are not of the graph.
    """
    params, source = job.params, open_source(job.inputs["graph"], job.inputs["subgraphs"])
    plan = plan_of(job.inputs["subgraphs"], source, params, job.threads)
    job.output.claim(plan.files, resumable=True)
    write_schema(job.output, source)
    left, done, written = [], 0, 0
    for shard in plan.shards:
        with job.output.left_whole(shard.name) as path:
            if path is None:
                left.append(shard)
            else:
                done += shard.last - shard.first
    if done:
        job.progress.log(f"{len(plan.shards) - len(left)} of {len(plan.shards)} shards are from an earlier attempt")
    source.expect(values_of(plan.subgraphs.values()))
    began = time.perf_counter()

    def make(shard: RecordShard) -> tuple[int, int]:
        size = write_shard(job.output, shard, plan.subgraphs[shard.split], source, params)
        return shard.last - shard.first, size

    with ThreadPoolExecutor(job.threads) as pool:
        for count, size in pool.map(make, left):
            done, written = done + count, written + size
            speed = 1e-9 * written / (time.perf_counter() - began)
            job.progress.update(done, plan.records * len(params.written), "records", gb_per_s=speed)
    return Output(rows=plan.records, stats=plan.stats)


def open_source(graph: Dataset, subgraphs: Dataset) -> FeatureSource:
    """The features of the graph that the subgraphs were sampled from."""
    opened = HeteroGraph.open(graph)
    return FeatureSource(opened, seed_sets_of(subgraphs, opened))


def plan_of(dataset: Dataset, source: FeatureSource, params: RecordsParams, kept: int = 0) -> Plan:
    """Plan of the records to write of the subgraphs in a dataset; for `kept` see `SplitSubgraphs`."""
    splits = {split: SplitSubgraphs(dataset, split, kept) for split in SPLITS}
    shards: list[RecordShard] = []
    stats: dict[str, Stat] = {"formats": params.formats, "records": sum(map(len, splits.values()))}
    for split, subgraphs in splits.items():
        found = shards_of(subgraphs, source, params) if len(subgraphs) and params.written else []
        shards += found
        stats |= {f"records.{split}": len(subgraphs), f"shards.{split}": len(found) // max(1, len(params.written))}
    return Plan(splits, shards, stats)


def write_schema(output: DatasetWriter, source: FeatureSource) -> None:
    """Write `schema.pbtxt`."""
    with output.file(SCHEMA_FILE) as path:
        path.write_text(schema_of_records(source))


def shards_of(subgraphs: SplitSubgraphs, source: FeatureSource, params: RecordsParams) -> list[RecordShard]:
    """The shards of a split: those of every format have the same subgraphs."""
    endings = {"tfrecord": ".tfrecord" + ".gz" * (params.compression == "gzip"), "parquet": ".parquet"}
    spans = shard_spans(record_ends(subgraphs, source), params.shards)
    return [
        RecordShard(shard_file(subgraphs.split, number, len(spans), endings[each]), each, subgraphs.split, first, last)
        for each in params.written
        for number, (first, last) in enumerate(spans)
    ]


def write_shard(
    output: DatasetWriter | TaskWriter,
    shard: RecordShard,
    subgraphs: SplitSubgraphs,
    source: FeatureSource,
    params: RecordsParams,
) -> int:
    """Write one shard; its bytes before compression."""
    with output.stream(shard.name, kept=False) as stream:
        if shard.format == "parquet":
            return write_rows(stream, subgraphs, source, shard.first, shard.last, params.compression)
        if params.compression == "none":
            return write_records(subgraphs, source, shard.first, shard.last, stream)
        packed = Packed(stream)
        size = write_records(subgraphs, source, shard.first, shard.last, packed)
        packed.end()
        return size


def schema_of_records(source: FeatureSource) -> str:
    """The text of `schema.pbtxt`: what the Examples of subgraphs with these features hold."""
    graph, seed_sets = source.graph, source.seed_sets
    link = len(seed_sets) == 2
    nodes = {each.name: NodeSetSchema(each.name, _features(each.features)) for each in graph.node_sets.values()}
    edges = {
        each.name: EdgeSetSchema(each.name, each.source, each.target, _features(each.features))
        for each in graph.edge_sets.values()
    }
    if link:
        nodes[READOUT] = NodeSetSchema(READOUT)
        for end, name in zip(READOUT_ENDS, seed_sets, strict=True):
            edges[end] = EdgeSetSchema(end, name, READOUT)
    context = (SchemaFeature("sample_id", "string"), SchemaFeature("seed_id", "string", (2,) if link else ()))
    return schema_text(GraphSchema(nodes, edges, ContextSchema(context), "SUBGRAPH", tuple(dict.fromkeys(seed_sets))))


def _features(features: tuple[Feature, ...]) -> tuple[SchemaFeature, ...]:
    return tuple(SchemaFeature(each.name, each.dtype, each.shape) for each in features)
