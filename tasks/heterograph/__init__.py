"""The stage heterograph: the tables that a schema names become one typed graph with numbered nodes.

The schema is TF-GNN's `GraphSchema` in text format (`tasks._schema`), given as a file or as a folder that has it as
`schema.pbtxt`. Tables lie below its folder: `papers.csv`, `papers@8.csv` or `papers.csv@8` for eight shards,
`papers-?????-of-00008.csv` for the same, or a pattern.

Rules:

- CSV has a header, commas, and quotes as RFC 4180 has them, and may be gzipped; Parquet; TFRecord of tf.train.Example.
- Node tables have a column `id` or `#id`, edge tables `source` and `target` or `#source` and `#target`. Ids are text,
  exactly as the file has it: `007` is not `7`. Whole numbers become their decimal digits.
- A node set without a table has the nodes that edges name.
- Nodes are numbered by the bytes of their ids. Edges are in the order of source, target, and row; rows of a table in
  several files are those of its files, sorted by name, one after the other.
- An edge with an end that is no node is an error, or is dropped (`dangling`), before anything is sampled.
- Edges between the same two nodes stay, or only the first row does (`parallel_edges`).
- An edge set that is marked as reversed and has the table of another set has that set's edges the other way round; the
  table is read once. If no other set has its table, the columns of its ends are exchanged.
- Features are values, or lists of them as their shape says; of a ragged one the lists may differ in length.
- The context's table has one row.

The files are described in `tasks._heterograph`. The dataset is the same on any number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from superworkflow.infra.params import StageParams
from superworkflow.infra.resources import Resources
from superworkflow.infra.stage import Estimate, Input, Stage, Stats


class HeterographParams(StageParams):
    """Parameters of the stage heterograph."""

    dangling: Literal["error", "drop"] = Field(
        default="error", description="What becomes of an edge with an end that is no node: error refuses the tables."
    )
    parallel_edges: Literal["keep", "first"] = Field(
        default="keep",
        description="Whether all edges between the same two nodes are kept, or only that of the first row.",
    )


_PROCESS_BYTES = 210 << 20


def estimate(params: HeterographParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Predict from what is known of the tables; see `source.graph_stats`."""
    source = inputs.get("graph", {})
    size = int(source.get("bytes") or 0)
    return Estimate(memory_bytes=_PROCESS_BYTES + size, cpu_s=1, output_bytes=size, stats={"bytes": size})


STAGE = Stage(
    name="heterograph",
    version="1",
    params=HeterographParams,
    inputs={
        "graph": Input(
            "schema of a graph (schema.pbtxt) that names its tables, or a folder that has one",
            tables="superworkflow.tasks._schema:named_tables",
            inside="schema.pbtxt",
        )
    },
    run="superworkflow.tasks.heterograph.run:run",
    estimate=estimate,
    help="tables of a schema to a typed graph with numbered nodes",
)
