"""Stage `vertex_fields`: the table of vertices that a user gives, matched with the nodes of a graph.

It needs the graph alone, so that a faulty table, or one about other nodes, is refused before the program runs. The node
is the column of one of the names that tables of features have for it, else the first one.

Files: `vertices.npy` int32 [rows], the vertices, ascending; `columns.parquet`, the other columns in the order of these
rows, values as they were given: of CSV they are text, empty where they are missing.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats


class VertexFieldsParams(StageParams):
    """Parameters that say how a table of vertices is read."""

    max_unknown: float = Field(
        default=0.05, ge=0, le=1,
        description="Largest share of rows, 0 to 1, that may be about nodes that the graph lacks; they are left out, "
        "with a warning. A larger share is an error.",
        json_schema_extra={"affects_result": False},
    )  # fmt: skip


_PROCESS = Process(start_s=0.6, memory_bytes=150 << 20)


def estimate(params: VertexFieldsParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """The table and the graph's nodes are in memory."""
    vertices, given = int(inputs.get("graph", {}).get("vertices") or 0), int(inputs.get("table", {}).get("bytes") or 0)
    return _PROCESS.estimate(
        memory_bytes=6 * given + 48 * vertices, cpu_s=4e-8 * given + 2e-7 * vertices, output_bytes=given,
        stats={"bytes": given},
    )  # fmt: skip


STAGE = Stage(
    name="vertex_fields",
    version="2",
    params=VertexFieldsParams,
    inputs={
        "graph": Input("index dataset"),
        "table": Input("columns of its nodes: CSV or Parquet with a column `node`; or a folder of part files",
                       file=True, parts=True),
    },
    run="superworkflow.tasks.vertex_fields.run:run",
    estimate=estimate,
    help="columns of a table of vertices, matched with a graph, for vertex programs",
)  # fmt: skip
