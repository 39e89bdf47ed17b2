"""The index stage: an edge list in a file becomes a simple graph with numbered vertices, as compressed sparse rows.

Rules:

- Labels are strings, exactly as the file has them: `007` is not `7`.
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
from typing import Literal

from pydantic import Field, field_validator

from infra.params import StageParams
from infra.resources import Resources
from infra.stage import Estimate, Input, Stage, Stats


class IndexParams(StageParams):
    """Parameters of the index stage."""

    format: Literal["auto", "csv", "tsv", "whitespace", "parquet"] = Field(
        default="auto",
        description="How the file is written; auto looks into it. csv and tsv may have comment lines (# or %) at the "
        "top, whitespace anywhere; csv may quote fields with double quotes. Gzip is recognised by itself.",
    )
    delimiter: str | None = Field(
        default=None, description="One ASCII character between the fields of a csv file, if it is not the comma."
    )
    header: Literal["auto"] | bool = Field(
        default="auto",
        description="Whether the first row holds column names. auto: yes when a column is named in the parameters, "
        "when the first row has usual names (source, target; src, dst; from, to; …), or when the rows after it hold "
        "numbers where it does not.",
    )
    source: str | None = Field(
        default=None, description="Name of the column of source nodes; default: a usual name, else the first."
    )
    target: str | None = Field(
        default=None, description="Name of the column of target nodes; default: a usual name, else the second."
    )
    weight: str | None = Field(default=None, description="Name of the column of edge weights, positive numbers.")
    weighted: Literal["auto"] | bool = Field(
        default="auto",
        description="Whether edges have weights. auto: yes when `weight` is given, when a column is called weight, or "
        "when a file without header has exactly three columns and the third holds numbers.",
    )
    directed: bool = Field(default=False, description="Whether (u, v) and (v, u) are different edges.")
    duplicates: Literal["sum", "max", "min", "error"] = Field(
        default="sum",
        description="Weight of an edge that has several rows: sum, max or min of theirs; error refuses such a file, "
        "weighted or not.",
    )
    max_degree: int | None = Field(
        default=None, ge=1, description="Most neighbours that a vertex keeps, at least 1; none for no limit."
    )
    seed: int = Field(default=0, ge=0, lt=2**31, description="Seed of the sample of neighbours, 0 to 2147483647.")
    engine: Literal["auto", "compiled", "relational"] = Field(
        default="auto",
        description="What computes: compiled kernels in memory, or SQL that spills to disk; auto takes the kernels "
        "for files of 4 MiB or more when they fit the stage's memory. The result is the same.",
        json_schema_extra={"affects_result": False},
    )

    @field_validator("delimiter")
    @classmethod
    def _one_character(cls, value: str | None) -> str | None:
        if value is not None and (len(value) != 1 or not value.isascii() or value in '"\r\n'):
            raise ValueError("must be one ASCII character other than a quote or a line end")
        return value


_BYTES_PER_ROW = 14
_BYTES_PER_WEIGHT = 5
_ROWS_PER_VERTEX = 20
_GZIP_RATIO = 3
_BASE_MEMORY = 300 << 20


def estimate(params: IndexParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Predict from the size of the file, at a guess of 14 bytes a row and 20 rows a vertex.

    The stats of the source may say more: `rows`, `vertices`, `text_bytes`, `gzipped`.
    """
    source = inputs.get("edges", {})
    size = int(
        source.get("text_bytes") or int(source.get("bytes") or 0) * (_GZIP_RATIO if source.get("gzipped") else 1)
    )
    weighted = params.weighted is True or params.weight is not None
    row_bytes = _BYTES_PER_ROW + (_BYTES_PER_WEIGHT if weighted else 0)
    rows = int(source.get("rows") or max(1, size // row_bytes))
    vertices = int(source.get("vertices") or max(2, rows // _ROWS_PER_VERTEX))
    arcs = rows if params.directed else 2 * rows
    output = arcs * (8 if weighted else 4) + vertices * 16
    return Estimate(
        memory_bytes=compiled_memory(rows, vertices, arcs, weighted, size, resources.threads),
        cpu_s=2.0 + rows * (2.2e-7 if weighted else 1.7e-7) + size * 2e-9,
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
    )


def compiled_memory(rows: int, vertices: int, arcs: int, weighted: bool, text_bytes: int, threads: int) -> int:
    """Peak bytes of the compiled kernels: the largest of their three phases, beside the libraries."""
    per_row = 12 if weighted else 8
    table = 64 * vertices
    reading = rows * per_row + min(text_bytes, 1 << 25) * 3 + table
    merging = 2 * rows * per_row + 16 * vertices
    filling = (
        rows * per_row + min(arcs * per_row, 1 << 30) + arcs * (per_row - 4) + vertices * (60 + 8 * min(threads, 8))
    )
    return _BASE_MEMORY + max(reading, merging, filling)


STAGE = Stage(
    name="index",
    version="1",
    params=IndexParams,
    inputs={"edges": Input("edge list: CSV, TSV, white space or Parquet, also gzipped", file=True)},
    run="tasks.index.run:run",
    estimate=estimate,
    help="edge list to a simple graph with numbered vertices",
)
