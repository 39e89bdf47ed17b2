"""The work of stage `sample`: read the graph, find the seeds, sample them shard by shard."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from superworkflow.infra.contract.stage import Output, Progress, StageRun
from superworkflow.infra.storage.part_files import differ, part_files, part_uri
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings, warning_stats
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.heterograph_writer import stats_of
from superworkflow.tasks.lib.subgraphs.blocks import (
    DESCRIPTION,
    SPLITS,
    SubgraphLayout,
    read_group,
    shard_schema,
    shard_writer,
)
from superworkflow.tasks.lib.subgraphs.shard_layout import GROUP_ENTRIES, shard_name, shard_spans
from superworkflow.tasks.sample.expected import path_values
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.sampler import SeedRows, SpecSampler
from superworkflow.tasks.sample.seeds import SeedTable, find_seeds, read_table
from superworkflow.tasks.sample.sizes import Sizes
from superworkflow.tasks.sample.spec import SamplingSpec, read_spec


class SampleShard(NamedTuple):
    """One file: subgraphs `first` to `last - 1` of a split."""

    split: str
    number: int
    first: int
    last: int

    @property
    def name(self) -> str:
        """Name of the file."""
        return shard_name(self.split, self.number)


def run(job: StageRun[SampleParams]) -> Output:
    """Write the subgraphs of `job.inputs["graph"]`.

    Raises:
        UserError: the spec cannot be read or does not fit the graph, a seed is no node of it, or weights or timestamps
            that sampling needs are none.
    """
    graph, params = HeteroGraph.open(job.inputs["graph"]), job.params
    sampler = SpecSampler(graph, read_spec(job.sources["spec"], job.scratch), params)
    seeds = find_seeds(graph, sampler.spec, params, *table_of_seeds(job.sources, job.scratch))
    shards = shards_of(seeds)
    job.output.claim([DESCRIPTION, *(shard.name for shard in shards)], resumable=True)
    sizes, left = Sizes(sampler.layout), []
    for shard in shards:
        with job.output.left_whole(shard.name) as path:
            if path is None:
                left.append(shard)
            else:
                sizes.merge(sizes_of(path, sampler))
    if len(left) < len(shards):
        job.progress.log(f"{len(shards) - len(left)} of {len(shards)} shards are from an earlier attempt")
    total, before, began = sizes.subgraphs + sum(s.last - s.first for s in left), sizes, time.perf_counter()
    already = before.subgraphs, before.edges

    def make(shard: SampleShard) -> tuple[Path, Sizes]:
        path = job.scratch / shard.name
        return path, write_shard(path, sampler, seeds.rows(shard.split, shard.first, shard.last))

    with ThreadPoolExecutor(job.threads) as pool:
        waiting, running = iter(left), dict[Future[tuple[Path, Sizes]], SampleShard]()
        while True:
            while len(running) < 2 * job.threads and (following := next(waiting, None)) is not None:
                running[pool.submit(make, following)] = following
            if not running:
                break
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                shard = running.pop(done)
                made, more = done.result()
                with job.output.file(shard.name) as target:
                    shutil.move(made, target)
                sizes.merge(more)
            seconds = time.perf_counter() - began
            job.progress.update(
                sizes.subgraphs, total, "subgraphs", subgraphs_per_s=(sizes.subgraphs - already[0]) / seconds,
                edges_per_s=(sizes.edges - already[1]) / seconds,
            )  # fmt: skip
    job.output.json(DESCRIPTION, description(graph, sampler, params, seeds))
    return sample_output(job.progress, graph, sampler.spec, sizes, seeds)


class Sampled(Protocol):
    """Facts that every sampler reports."""

    @property
    def spec(self) -> SamplingSpec: ...
    @property
    def layout(self) -> SubgraphLayout: ...


def table_of_seeds(sources: Mapping[str, Source], scratch: Path) -> tuple[pa.Table | None, str]:
    """(rows, name for people) of the table of seeds, if there is one; of a folder those of all its part files.

    Raises:
        UserError: a file cannot be read, or part files differ.
    """
    source = sources.get("seeds")
    if source is None:
        return None, "seeds"
    names = part_files(source)
    tables = [read_table(source.local(scratch, name), f"{source.location.name}/{name}" if source.is_folder else name)
              for name in names]  # fmt: skip
    for name, table in zip(names, tables, strict=True):
        if table.schema != tables[0].schema:
            shown = [", ".join(f"{field.name} ({field.type})" for field in each.schema) for each in (tables[0], table)]
            raise differ(part_uri(source, names[0]), part_uri(source, name),
                         f"the one has {shown[0]}, the other {shown[1]}")  # fmt: skip
    return pa.concat_tables(tables), source.location.name


def shards_of(seeds: SeedTable) -> list[SampleShard]:
    """The shards of a dataset, in their order."""
    return [
        SampleShard(split, number, *span)
        for split in SPLITS
        for number, span in enumerate(shard_spans(seeds.count(split)))
    ]


def write_shard(path: Path, sampler: SpecSampler, seeds: SeedRows) -> Sizes:
    """Sample the subgraphs of a shard and write its file."""
    sizes = Sizes(sampler.layout)
    block = sampler.block(seeds, GROUP_ENTRIES, copied=False)
    with shard_writer(path, shard_schema(block, sampler.layout)) as write:
        while block.subgraphs:
            write(block)
            sizes.add(block)
            block = sampler.block(seeds.part(sizes.subgraphs, len(seeds.ids)), GROUP_ENTRIES, copied=False)
    return sizes


def sizes_of(path: Path, sampler: SpecSampler) -> Sizes:
    """Sizes of the subgraphs in an existing shard."""
    sizes = Sizes(sampler.layout)
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            sizes.add(read_group(file, group, sampler.layout))
    return sizes


def description(graph: HeteroGraph, sampler: Sampled, params: SampleParams, seeds: SeedTable) -> dict[str, object]:
    """Document in `sampled.json`."""
    return {
        "format": 2, "spec": sampler.spec.canonical(), "aggregation": params.aggregation, "inputs": params.inputs,
        "repeats": params.repeats, "seed_node_set": graph.node_number(sampler.spec.node_set),
        "node_sets": sampler.layout.node_sets, "edge_sets": sampler.layout.edge_sets,
        "used_node_sets": list(sampler.layout.used_nodes), "used_edge_sets": list(sampler.layout.used_edges),
        "subgraphs": {split: seeds.count(split) for split in SPLITS},
    }  # fmt: skip


def sample_output(progress: Progress, graph: HeteroGraph, spec: SamplingSpec, sizes: Sizes, seeds: SeedTable) -> Output:
    """Output of the stage, on every engine."""
    log_warnings(progress, seeds.doubts)
    stats = sizes.stats(list(graph.node_sets), list(graph.edge_sets))
    stats |= warning_stats(seeds.doubts) | {f"subgraphs.{split}": seeds.count(split) for split in SPLITS}
    graph_stats = stats_of(list(graph.node_sets.values()), list(graph.edge_sets.values()))
    return Output(rows=sizes.subgraphs, stats=stats | {"path_values": path_values(graph_stats, spec.canonical())})
