"""The index stage: an edge list in a file becomes a simple graph with numbered vertices, as compressed sparse rows.

Rules:

- Labels are strings, exactly as the file has them: `007` is not `7`.
- Text is lines that end in a newline, or in a carriage return and a newline. Any other carriage return is an error
  unless a csv field with quotes has it; so is a line of more than 1 MiB, and gzip that grows beyond 100 times its size
  (64 MiB are always allowed).
- Of a bipartite graph (`bipartite`) each name has its side's prefix, so that 1 as a user is not 1 as an item. Neither
  prefix begins with the other. The stats have the prefixes, and the number of sources as `source_vertices`.
- Rows without an id are refused, or dropped and counted as `missing_dropped`, as `missing` says.
- Self-loops are dropped and counted. A vertex that occurs in self-loops only stays, without edges.
- Rows of the same edge are merged and counted. Without direction, (u, v) and (v, u) are the same edge; with weights
  the parameter `duplicates` says which weight the edge gets.
- Vertices are numbered by degree (in plus out, in the simple graph) from the highest, then by the bytes of their
  labels. So the numbers are the same on every engine, and the vertices that walks visit most lie together in memory.
- Undirected graphs store each edge in both its rows.
- `max_degree` comes after numbering. A vertex with more neighbours (out-neighbours, if directed) than that keeps a
  random sample of them, drawn by a hash of seed and edge. Without direction an edge goes as soon as one of its ends
  drops it, so that the graph stays symmetric and no degree is above the limit. Vertices that lose all their edges
  stay, with degree 0, and are counted as `isolated_vertices`.

Files of the dataset:

- `indptr.npy` int64 [vertices + 1], `indices.npy` int32 [arcs], ascending in each row; `weights.npy` float32 [arcs] if
  weighted.
- `vertices.parquet`: `node` (string), `degree` (int64, in plus out, after `max_degree`), row i is vertex i.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from pydantic import Field, field_validator, model_validator

from superworkflow.infra.contract.stage import Estimate, Input, Resources, Stage, StageParams, Stats
from superworkflow.tasks.lib.edge_list.time_bounds import ColumnName, TimeBound
from superworkflow.tasks.lib.graph.csr_limits import MOST_ARCS, MOST_WORKERS, PIECE


class IndexParams(StageParams):
    """Parameters of the index stage."""

    format: Literal["auto", "csv", "tsv", "whitespace", "parquet", "triples"] = Field(
        default="auto",
        description="Format of the file; auto detects it, and refuses other formats by name. triples reads rows head, "
        "relation, tail as edges from head to tail, without the relation. csv and tsv may begin with comment lines (# "
        "or %), whitespace may have them anywhere; csv fields may be quoted with double quotes. Gzip is detected. "
        "Lines end in LF or CRLF and have at most 1 MiB.",
    )
    delimiter: str | None = Field(
        default=None, description="Delimiter of a csv file, one ASCII character; default: the comma."
    )
    header: Literal["auto"] | bool = Field(
        default="auto",
        description="Whether the first row holds column names. auto: if a column is named in the parameters, if the "
        "first row has common names (source, target; src, dst; from, to; …), or if the rows after it hold numbers "
        "where it does not.",
    )
    source: ColumnName = Field(
        default=None,
        description="Column of source nodes, by name or by number from 1; default: a common name, else the first.",
    )
    target: ColumnName = Field(
        default=None,
        description="Column of target nodes, by name or by number from 1; default: a common name, else the second.",
    )
    weight: ColumnName = Field(
        default=None, description="Column of edge weights, which are positive, by name or by number from 1."
    )
    weighted: Literal["auto"] | bool = Field(
        default="auto",
        description="Whether edges have weights. auto: if `weight` is given, if a column is called weight, or if a "
        "file without a header has exactly three columns and the third holds numbers. Unix times and numbers with "
        "leading zeros are no weights.",
    )
    negative: Literal["error", "drop", "absolute", "keep"] = Field(
        default="error",
        description="Rows with negative weights: error refuses them, drop leaves them out, absolute drops the sign. "
        "keep takes them and 0, as als and bptf do, whose weights are ratings; walks and other programs refuse them.",
    )
    missing: Literal["auto", "error", "drop", "keep"] = Field(
        default="auto",
        description="Rows whose source or target is empty or a name of missing values "
        "(\\N, NULL, NA, N/A, NaN, NaT, None, -): error refuses them, drop leaves them out and counts them, keep reads "
        "such names as nodes; auto is keep with a warning. Empty ids are refused unless dropped.",
    )
    bipartite: Literal["auto"] | bool = Field(
        default="auto",
        description="Whether the two columns are two sets of nodes, even where ids coincide; each name then gets its "
        "side's prefix. auto: if the file says so itself (KONECT's % bip), or if a prefix is given.",
    )
    source_prefix: str | None = Field(
        default=None,
        description="Before the names of source nodes of a bipartite graph; default: the column's name without a final "
        "id and with a colon, such as user: for user_id, or left: without a header.",
    )
    target_prefix: str | None = Field(
        default=None, description="The same before the names of target nodes; default without a header: right:."
    )
    time: ColumnName = Field(
        default=None,
        description="Column of times for `from_time` and `until`, by name or by number from 1: Unix times in seconds "
        "or finer units, other numbers, or dates of ISO 8601. Default: a column called time, timestamp or date, else "
        "one of Unix times or dates.",
    )
    from_time: TimeBound = Field(
        default=None,
        description="Rows before this time are left out: a date (2004-05-01, at 0:00 UTC), an instant "
        "(2004-05-01T12:00+02:00), or a number such as a Unix time. What is wrong in rows left out does not matter.",
    )
    until: TimeBound = Field(
        default=None, description="Rows of this time and later ones are left out; given as `from_time` is."
    )
    directed: bool = Field(default=False, description="Whether (u, v) and (v, u) are different edges.")
    duplicates: Literal["sum", "max", "min", "error"] = Field(
        default="sum",
        description="How the weights of an edge with several rows are combined: sum, max or min; error refuses such a "
        "file, weighted or not.",
    )
    max_degree: int | None = Field(
        default=None, ge=1, description="Most neighbours that a vertex keeps, at least 1; null for no limit."
    )
    seed: int = Field(default=0, ge=0, lt=2**31, description="Seed for sampling neighbours, 0 to 2147483647.")
    engine: Literal["auto", "compiled", "relational"] = Field(
        default="auto",
        description="compiled kernels in memory, or relational queries that spill to disk; auto uses the kernels for "
        "files of 2 MiB or more that fit the stage's memory. The result is the same.",
        json_schema_extra={"affects_result": False},
    )

    @field_validator("delimiter")
    @classmethod
    def _one_character(cls, value: str | None) -> str | None:
        if value is not None and (len(value) != 1 or not value.isascii() or value in '"\r\n'):
            raise ValueError("must be one ASCII character other than a quote or a line end")
        return value

    @model_validator(mode="after")
    def _two_sides(self) -> IndexParams:
        if self.bipartite is False and (self.source_prefix is not None or self.target_prefix is not None):
            raise ValueError("source_prefix and target_prefix are for bipartite graphs, and bipartite is false")
        return self


_BYTES_PER_ROW = 14
_BYTES_PER_WEIGHT = 5
_ROWS_PER_VERTEX = 20
_GZIP_RATIO = 3
_PROCESS_BYTES = 204 << 20
"""Resident set of the interpreter with NumPy, Arrow and the compiled kernels."""
_DUCKDB_BYTES = 272 << 20
_SQL_ROW_BYTES = 140
_DRIVER_S, _DRIVER_BYTES = 13, 220 << 20
"""CPU seconds and memory of a driver that plans some sixty small jobs; measured with 1 vCPU and 1 GiB."""
_HEAP_SHARE = 0.2
"""Share of an executor's memory that Java takes for its shuffles where that is less; measured with 1 GiB."""
_SHUFFLE_BYTES = 620 << 20
"""Bytes that executors take for shuffles on top of those for moving few rows, where there is room."""
_PARTS_S, _PART_ROW_S = 2.0, 7e-6
"""CPU seconds of the jobs of any graph, and of a row in them."""
_PARTS_BYTES, _PART_ROW_BYTES = 80 << 20, 85
"""Bytes of members on this machine, and of a row in them up to `_SHUFFLE_BYTES`; measured from 600 to 6,000,000 rows.
"""
SMALL_BYTES = 2 << 20
"""SQL is through with files smaller than this before a new machine has compiled the kernels."""


def estimate(params: IndexParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Predict from the size of the file, at a guess of 14 bytes a row and 20 rows a vertex.

    The stats of the source may say more: `rows`, `values`, `text_bytes`, `gzipped` (see
    `tasks.heterograph.file_sample`).
    """
    source = inputs.get("edges", {})
    size = int(
        source.get("text_bytes") or int(source.get("bytes") or 0) * (_GZIP_RATIO if source.get("gzipped") else 1)
    )
    weighted = params.weighted is True or params.weight is not None
    row_bytes = _BYTES_PER_ROW + (_BYTES_PER_WEIGHT if weighted else 0)
    rows = int(source.get("rows") or max(1, size // row_bytes))
    vertices = int(source.get("vertices") or source.get("values") or max(2, rows // _ROWS_PER_VERTEX))
    arcs = rows if params.directed else 2 * rows
    output = arcs * (8 if weighted else 4) + vertices * 16
    memory = compiled_memory(rows, vertices, arcs, weighted, size, resources.threads)
    kernels = uses_kernels(params, int(source.get("bytes") or 0), memory, resources)
    start_s = 0.45 if kernels else 0.95
    if not kernels:
        memory = _DUCKDB_BYTES + min(_SQL_ROW_BYTES * rows, sql_memory(resources)) + 8 * vertices
    return Estimate(
        memory_bytes=memory,
        cpu_s=start_s + rows * (4.5e-7 if weighted else 3.5e-7) + size * 3e-9,
        output_bytes=output,
        stats={
            "vertices": vertices,
            "edges": rows,
            "directed_edges": arcs,
            "directed": params.directed,
            "weighted": weighted,
            "bytes": output,
        },
        parallel=0.8,
        start_s=start_s,
        base_bytes=_PROCESS_BYTES if kernels else _DUCKDB_BYTES,
        kind="compiled" if kernels else "sql",
    )


def estimate_on_members(params: IndexParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Some small jobs, each with an exchange, whatever the size; they move each row several times."""
    alone = estimate(params, inputs, resources)
    rows = int(alone.stats["edges"] or 0)
    work_s = _PARTS_S + _PART_ROW_S * rows
    executors = resources.executors
    most = _PARTS_BYTES + _PART_ROW_BYTES * rows if executors is None else int(_HEAP_SHARE * executors.memory)
    shuffles = min(_SHUFFLE_BYTES, most)
    return replace(
        alone, cpu_s=alone.start_s + work_s, base_bytes=_PROCESS_BYTES, memory_bytes=_PROCESS_BYTES + shuffles,
        kind="relational", coordinator_s=_DRIVER_S, coordinator_bytes=_DRIVER_BYTES,
    )  # fmt: skip


def uses_kernels(params: IndexParams, file_bytes: int, memory: int, resources: Resources) -> bool:
    """True if compiled kernels do the work: as the parameter says, or where the file is worth it and they have room.

    Args:
        params: of the stage.
        file_bytes: size of the file as it is.
        memory: what `compiled_memory` says of it.
        resources: of the stage.
    """
    if params.engine != "auto":
        return params.engine == "compiled"
    return file_bytes >= SMALL_BYTES and memory <= max(resources.memory, 1 << 30)


def sql_memory(resources: Resources) -> int:
    """Bytes that SQL may take before it spills to disk."""
    return max(256 << 20, resources.memory * 6 // 10)


def compiled_memory(rows: int, vertices: int, arcs: int, weighted: bool, text_bytes: int, threads: int) -> int:
    """Peak bytes of the compiled kernels: the largest of their three phases, plus the libraries.

    Reading holds the rows' ends, two blocks of text and the table of labels. Merging holds the rows' ends twice, of
    which the second are the edges. Filling holds the edges, arcs in flight, two pieces of rows on their way to the
    store, and of each vertex its label, degrees, row lengths, row's start, and how often each worker has met it.
    """
    per_row = 12 if weighted else 8
    reading = rows * per_row + min(2 * text_bytes, 16 << 20) + 80 * vertices
    merging = 2 * rows * per_row + 24 * vertices
    filling = rows * per_row + min(arcs, MOST_ARCS) * per_row + 2 * min(arcs, PIECE) * (per_row - 4)
    filling += vertices * (72 + 12 * min(threads, MOST_WORKERS))
    return _PROCESS_BYTES + max(reading, merging, filling)


_ENGINES = ("spark", "dask")

STAGE = Stage(
    name="index",
    version="5",
    params=IndexParams,
    inputs={
        "edges": Input(
            "edge list: CSV, TSV, whitespace-separated or Parquet, optionally gzipped; or a folder of part files",
            file=True,
            parts=True,
            stats="superworkflow.tasks.heterograph.file_sample:table_stats",
        )
    },
    run="superworkflow.tasks.index.run:run",
    doubts="superworkflow.tasks.index.doubts:doubts",
    engines=dict.fromkeys(_ENGINES, "superworkflow.tasks.index.on_members:run"),
    estimates=dict.fromkeys(_ENGINES, estimate_on_members),
    estimate=estimate,
    help="edge list to a simple graph with numbered vertices",
    late=("duckdb", "superworkflow.tasks.index.relational"),
)
