"""Stage `records`: heterograph and sampled subgraphs → files that training reads, with all features in them.

Files of the dataset, for each split that has subgraphs: `train-00000-of-00100.tfrecord` and so on, `.tfrecord.gz` where
they are compressed, and `.parquet`, by the formats that are asked for; the subgraphs are in their order.
`schema.pbtxt` describes them to TF-GNN: the graph's sets and features without files, and the context's `seed_id` and
`sample_id`. TFRecords hold a tf.train.Example each, by the bytes that protobuf's deterministic serialization gives;
Parquet files have a row for each subgraph and a column for each feature by the same name.

A shard is a stretch of the subgraphs of a split: all shards of a split have about the same bytes before compression.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats
from superworkflow.tasks.lib.subgraphs.shard_layout import GROUP_ENTRIES

SHARD_BYTES = 128 << 20
"""Bytes of a shard before compression, where the number of shards is not given."""
MOST_SHARDS = 100_000
FORMATS = ("tfrecord", "parquet")


def _formats(value: Any) -> Any:
    """Several formats, as a list or behind commas, in the one order that digests know."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not set(given) <= set(FORMATS):
        return value
    return ",".join(each for each in FORMATS if each in given)


class RecordsParams(StageParams):
    """Parameters of the files that are made of the subgraphs."""

    formats: Annotated[
        Literal["tfrecord", "parquet", "tfrecord,parquet", "none"], BeforeValidator(_formats)
    ] = Field(
        default="tfrecord",
        description="tfrecord: a tf.train.Example for each subgraph, which TF-GNN reads; parquet: a row; both, behind "
        "a comma; none: the schema alone.",
    )  # fmt: skip
    shards: int | None = Field(
        default=None, ge=1, le=MOST_SHARDS,
        description="Files of each split, 1 to 100,000; if not given, as many as hold 128 MiB each before compression.",
    )  # fmt: skip
    compression: Literal["none", "gzip"] = Field(default="none", description="Of the files: none or gzip.")

    @property
    def written(self) -> tuple[str, ...]:
        """The formats of which files are made."""
        return tuple(each for each in FORMATS if each in self.formats.split(","))


def estimate(params: RecordsParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Bytes by the features that sampled nodes and edges have on average; time by what one 3 GHz core needed for them.

    Where the sampled sizes are not known for each set yet, every set has its share of all nodes and edges.
    """
    graph, subgraphs = inputs["graph"], inputs["subgraphs"]
    count = _number(subgraphs, "subgraphs")
    size = 200.0 * count
    for kind, other in (("nodes", 0.0), ("edges", 3.0)):
        begin = "record_bytes."
        names = [key.removeprefix(begin) for key in graph if key.startswith(f"{begin}{kind}.")]
        items = sum(_number(graph, key) for key in names)
        for key in names:
            if f"{key}.mean" in subgraphs:
                mean = _number(subgraphs, f"{key}.mean")
            elif any(each.startswith(f"{kind}.") for each in subgraphs):
                mean = 0.0
            else:
                mean = _number(subgraphs, kind) / max(1, count) * _number(graph, key) / max(1, items)
            size += count * mean * (other + _number(graph, f"record_bytes.{key}"))
    formats, rows = len(params.written), "parquet" in params.written
    written = size * formats
    compressed = written * (_GZIP_SHARE if params.compression == "gzip" else 1)
    work_s = 1e-9 * size * sum(_FORMAT_NS[each] for each in params.written) + 3e-5 * count
    work_s += 1e-9 * _EDGE_NS * _number(subgraphs, "edges") * formats
    work_s += 1e-9 * _GZIP_NS * written * (params.compression == "gzip") + 0.6e-9 * _number(graph, "bytes")
    described = sum(_number(graph, key.removeprefix("record_bytes.")) * _number(graph, key) for key in graph
                    if key.startswith("record_bytes."))  # fmt: skip
    mapped = int(min(described, _number(graph, "bytes"), written))
    entries = _number(subgraphs, "nodes") + _number(subgraphs, "edges")
    filled = min(1.0, entries / resources.threads / GROUP_ENTRIES)
    group = min(size, _GROUP_SUBGRAPHS * size / max(1, count)) if rows else _CHUNK_BYTES
    memory = int(resources.threads * (_THREAD_BYTES + filled * _GROUP_BYTES + 2 * group)) + mapped
    memory += int(_ID_BYTES * _number(graph, "nodes"))
    return _PROCESS.estimate(
        memory_bytes=memory,
        cpu_s=work_s,
        output_bytes=int(compressed),
        stats={"records": int(count), "bytes": int(written)},
        parallel=0.95,
        mapped_bytes=mapped,
        kind=params.formats,
    )


def _number(stats: Stats, name: str) -> float:
    return float(stats.get(name) or 0)


_PROCESS = Process(start_s=0.9, memory_bytes=170 << 20)
"""Resident set of the interpreter with NumPy, Arrow and compiled kernels, before a graph is read."""
_THREAD_BYTES, _GROUP_BYTES = 30 << 20, 60 << 20
"""Bytes of a thread, and of the full row group of subgraphs that it reads."""
_CHUNK_BYTES = 2 << 20
_GROUP_SUBGRAPHS = 512
_ID_BYTES = 16
"""CPU seconds until the work begins."""
_EDGE_NS = 25
"""To read a sampled edge."""
_FORMAT_NS = {"tfrecord": 1.6, "parquet": 3.0}
_GZIP_NS = 40.0
"""For a byte: gathered, summed and written; compressed."""
_GZIP_SHARE = 0.9

STAGE = Stage(
    name="records",
    version="1",
    params=RecordsParams,
    inputs={"graph": Input("heterograph dataset"), "subgraphs": Input("sampled subgraphs of that graph")},
    run="superworkflow.tasks.records.run:run",
    engines=dict.fromkeys(("spark", "dask"), "superworkflow.tasks.records.on_members:run"),
    estimate=estimate,
    help="Sampled subgraphs with their features, as TFRecords or Parquet files",
)
