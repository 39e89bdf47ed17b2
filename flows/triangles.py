"""Triangles and clustering coefficient of each node of an edge list."""

from __future__ import annotations

from superworkflow.infra.contract.diagram import Diagram
from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.superworkflow import Flag, Superworkflow
from superworkflow.infra.storage.source import Source
from superworkflow.tasks import index, publish_fields, triangles
from superworkflow.tasks.lib.formats import IN_MEMORY


def diagram(flow: Diagram, edges: Source) -> None:
    """Index, triangles, publish_fields."""
    graph = flow.stage(index.STAGE, edges=edges)
    flow.stage(publish_fields.STAGE, graph=graph, values=flow.stage(triangles.STAGE, graph=graph))


SUPERWORKFLOW = Superworkflow(
    name="triangles",
    help="triangles and clustering coefficient of each node",
    stages=(index.STAGE, triangles.STAGE, publish_fields.STAGE),
    sources={
        "edges": "an edge list: CSV, TSV, whitespace-separated or Parquet, optionally gzipped; or a folder of part "
        "files",
    },
    diagram=diagram,
    options=StageParams,
    flags={"directed": Flag("index.directed", "edges have a direction")},
    in_memory=IN_MEMORY,
    outputs={"vertices": ("publish_fields", "vertices.parquet")},
)
