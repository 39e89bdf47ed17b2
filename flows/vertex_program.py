"""The superworkflow of a vertex program: one function makes it of any."""

from __future__ import annotations

from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.diagram import Diagram
from superworkflow.infra.contract.stage import Stage
from superworkflow.infra.contract.superworkflow import Flag, Superworkflow
from superworkflow.infra.storage.source import Source
from superworkflow.tasks import colour, grid, index, publish_fields, publish_lattice, vertex_fields
from superworkflow.tasks.lib.vertex.program import DISTANCES, VertexProgram


def vertex_superworkflow(program: VertexProgram, stage: Stage[Any], read: Stage[Any] = index.STAGE) -> Superworkflow:
    """Index, colour, the program, publish_fields.

    Args:
        program: what runs.
        stage: its stage, as `tasks.lib.vertex.stage.program_stage` makes it.
        read: the index stage, perhaps with other defaults.
    """

    def diagram(flow: Diagram, edges: Source, vertices: Source | None = None) -> None:
        """Index, colour, fields from a table if the program has some, the program, publish_fields."""
        _check_distance(flow, program)
        for name in program.nodes:
            if not flow.parameter(f"{program.name}.{name}"):
                raise UserError("the program needs a node", where=f"{program.name}.{name}",
                                remedy=f"Give one with --set {program.name}.{name}=NODE")  # fmt: skip
        graph = flow.stage(read, edges=edges)
        table = flow.stage(vertex_fields.STAGE, graph=graph, table=vertices) if vertices is not None else None
        values = flow.stage(stage, graph=graph, colours=flow.stage(colour.STAGE, graph=graph), table=table)
        flow.stage(publish_fields.STAGE, graph=graph, values=values)

    given = (vertex_fields.STAGE,) if program.given else ()
    table = {"vertices": f"a table of vertices with columns node, {', '.join(program.given)}: CSV or Parquet"}
    table = table if program.given else {}
    return Superworkflow(
        name=program.name,
        help=program.help or f"vertex program {program.name}",
        stages=(read, colour.STAGE, *given, stage, publish_fields.STAGE),
        sources={
            "edges": "an edge list: CSV, TSV, whitespace-separated or Parquet, optionally gzipped; or a folder of part "
            "files",
            **table,
        },
        diagram=diagram,
        options=program.params,
        flags={"directed": Flag("index.directed", "edges have a direction")},
        outputs={"vertices": ("publish_fields", "vertices.parquet"), "trace": (program.name, "trace.parquet")},
    )


def lattice_superworkflow(program: VertexProgram, stage: Stage[Any]) -> Superworkflow:
    """Grid, colour, the program, publish_lattice; the arguments are those of `vertex_superworkflow`."""

    def diagram(flow: Diagram, lattice: Source) -> None:
        """Grid, colour, the program, publish_lattice."""
        _check_distance(flow, program)
        graph = flow.stage(grid.STAGE, lattice=lattice)
        values = flow.stage(stage, graph=graph, colours=flow.stage(colour.STAGE, graph=graph))
        flow.stage(publish_lattice.STAGE, graph=graph, values=values)

    return Superworkflow(
        name=program.name,
        help=program.help,
        stages=(grid.STAGE, colour.STAGE, stage, publish_lattice.STAGE),
        sources={"lattice": "an image or a volume: .npy of 2 or 3 dimensions, of integers"},
        diagram=diagram,
        options=program.params,
        outputs={"labels": ("publish_lattice", "label.npy"), "trace": (program.name, "trace.parquet")},
    )


def _check_distance(flow: Diagram, program: VertexProgram) -> None:
    """Refuse colours that do not keep the program's consistency."""
    needed = DISTANCES[program.consistency]
    if flow.parameter("colour.distance") < needed:
        raise UserError(f"the program has {program.consistency} consistency", where="colour.distance",
                        value=flow.parameter("colour.distance"), remedy=f"Set colour.distance={needed}")  # fmt: skip
