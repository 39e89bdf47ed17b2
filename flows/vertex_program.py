"""The superworkflow of a vertex program: one function makes it of any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.diagram import Diagram
from superworkflow.infra.contract.stage import Stage
from superworkflow.infra.contract.superworkflow import Flag, Superworkflow
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.tasks import (
    colour,
    factor_graph,
    grid,
    index,
    publish_factors,
    publish_fields,
    publish_lattice,
    vertex_fields,
)
from superworkflow.tasks.lib import panels
from superworkflow.tasks.lib.formats import IN_MEMORY
from superworkflow.tasks.lib.vertex.program import CLASSES, DISTANCES, VertexProgram
from superworkflow.tasks.lib.vertex.vertex_names import graph_before

INITIAL = "earlier run of this program to start from, or the folder of its values; vertices are matched by name"


def vertex_superworkflow(
    program: VertexProgram, stage: Stage[Any], read: Stage[Any] = index.STAGE, colourless: str = ""
) -> Superworkflow:
    """Index, colour, the program, publish_fields.

    Args:
        program: what runs.
        stage: its stage, as `tasks.lib.vertex.stage.program_stage` makes it.
        read: the index stage, perhaps with other defaults.
        colourless: value of its `execution` that needs no colours.
    """

    def diagram(flow: Diagram, edges: Source, vertices: Source | None = None, initial: Dataset | None = None) -> None:
        """Index, colour, fields from a table if the program has some, the program, publish_fields."""
        _check_distance(flow, program)
        for name in program.nodes:
            if not flow.parameter(f"{program.name}.{name}"):
                raise UserError("the program needs a node", where=f"{program.name}.{name}",
                                remedy=f"Give one with --set {program.name}.{name}=NODE")  # fmt: skip
        graph = flow.stage(read, edges=edges)
        table = flow.stage(vertex_fields.STAGE, graph=graph, table=vertices) if vertices is not None else None
        needed = flow.parameter(f"{program.name}.execution") != colourless
        colours = flow.stage(colour.STAGE, graph=graph) if needed else None
        values = flow.stage(stage, graph=graph, colours=colours, table=table, initial=initial, before=_before(initial))
        flow.stage(publish_fields.STAGE, graph=graph, values=values)

    given = (vertex_fields.STAGE,) if program.given else ()
    table = {"vertices": f"a table of vertices with columns node, {', '.join(program.given)}: CSV, TSV or Parquet"}
    table = table if program.given else {}
    initial = {"initial": INITIAL} if program.restart is not None else {}
    return Superworkflow(
        name=program.name,
        help=program.help or f"vertex program {program.name}",
        stages=(read, colour.STAGE, *given, stage, publish_fields.STAGE),
        sources={
            "edges": "an edge list: CSV, TSV, whitespace-separated or Parquet, optionally gzipped; or a folder of part "
            "files",
            **table,
            **initial,
        },
        optional=frozenset(initial),
        datasets=frozenset(initial),
        diagram=diagram,
        options=program.params,
        flags={"directed": Flag("index.directed", "edges have a direction")},
        in_memory=IN_MEMORY,
        outputs={
            "vertices": ("publish_fields", "vertices.parquet"),
            **({"classes": ("publish_fields", CLASSES)} if program.classes else {}),
            "trace": (program.name, "trace.parquet"),
        },
        outcomes=(panels.GRAPH,),
    )


def model_superworkflow(program: VertexProgram, stage: Stage[Any]) -> Superworkflow:
    """Grid or factor_graph, colour, the program, publish_lattice or publish_factors.

    Args:
        program: what runs on a lattice.
        stage: its stage, which finds by the graph which program runs.
    """

    def diagram(
        flow: Diagram, lattice: Source | None = None, factors: Source | None = None, evidence: Source | None = None,
        initial: Dataset | None = None,
    ) -> None:  # fmt: skip
        """Grid or factor_graph, colour, the program, publish_lattice or publish_factors."""
        if (lattice is None) == (factors is None):
            raise UserError(f"{program.name} needs a lattice or factors", where="lattice, factors",
                            value="neither" if lattice is None else "both",
                            remedy="Give one of --lattice FILE and --factors FILE")  # fmt: skip
        if lattice is not None and evidence is not None:
            raise UserError("evidence is of a model's variables", where="evidence", value=evidence.uri,
                            remedy="Give the model with --factors, or leave --evidence out")  # fmt: skip
        if lattice is not None:
            _check_distance(flow, program)
            graph = flow.stage(grid.STAGE, lattice=lattice)
        else:
            graph = flow.stage(factor_graph.STAGE, factors=factors, evidence=evidence)
        colours = flow.stage(colour.STAGE, graph=graph)
        values = flow.stage(stage, graph=graph, colours=colours, initial=initial, before=_before(initial))
        publish = publish_lattice.STAGE if lattice is not None else publish_factors.STAGE
        flow.stage(publish, graph=graph, values=values)

    further = {"initial": INITIAL} if program.restart is not None else {}
    return Superworkflow(
        name=program.name,
        help=program.help,
        stages=(grid.STAGE, factor_graph.STAGE, colour.STAGE, stage, publish_lattice.STAGE, publish_factors.STAGE),
        sources={
            "lattice": "an image or a volume: .npy of 2 or 3 dimensions, of integers, or a .png",
            "factors": "a model in the UAI format, MARKOV or BAYES, optionally gzipped",
            "evidence": "states of observed variables of such a model, in the UAI format",
            **further,
        },
        optional=frozenset({"lattice", "factors", "evidence", *further}),
        datasets=frozenset(further),
        diagram=diagram,
        options=program.params,
        in_memory=IN_MEMORY,
        outputs={
            "labels": ("publish_lattice", "label.*"),
            "marginals": ("publish_factors", "marginals.parquet"),
            "assignment": ("publish_factors", "assignment.parquet"),
            "trace": (program.name, "trace.parquet"),
        },
    )


def lattice_superworkflow(
    program: VertexProgram, stage: Stage[Any], read: Stage[Any] = grid.STAGE,
    outputs: Mapping[str, tuple[str, str]] | None = None,
) -> Superworkflow:  # fmt: skip
    """Grid, colour, the program, publish_lattice.

    Args:
        program: what runs.
        stage: its stage.
        read: the grid stage, perhaps with other defaults.
        outputs: further results that the summary names.
    """

    def diagram(flow: Diagram, lattice: Source, initial: Dataset | None = None) -> None:
        """Grid, colour, the program, publish_lattice."""
        _check_distance(flow, program)
        graph = flow.stage(read, lattice=lattice)
        colours = flow.stage(colour.STAGE, graph=graph)
        values = flow.stage(stage, graph=graph, colours=colours, initial=initial, before=_before(initial))
        flow.stage(publish_lattice.STAGE, graph=graph, values=values)

    further = {"initial": INITIAL} if program.restart is not None else {}
    return Superworkflow(
        name=program.name,
        help=program.help,
        stages=(read, colour.STAGE, stage, publish_lattice.STAGE),
        sources={"lattice": "an image or a volume: .npy of 2 or 3 dimensions, of integers, or a .png", **further},
        optional=frozenset(further),
        datasets=frozenset(further),
        diagram=diagram,
        options=program.params,
        in_memory=IN_MEMORY,
        outputs={
            "arrays": ("publish_lattice", "*.npy"),
            **(outputs or {}),
            "trace": (program.name, "trace.parquet"),
        },
    )


def _before(initial: Dataset | None) -> Dataset | None:
    """Graph of an earlier run."""
    return None if initial is None else graph_before(initial)


def _check_distance(flow: Diagram, program: VertexProgram) -> None:
    """Refuse colours that do not keep the program's consistency."""
    needed, given = DISTANCES[program.consistency], flow.parameter("colour.distance")
    if (1 if given is None else given) < needed:
        raise UserError(f"the program has {program.consistency} consistency", where="colour.distance", value=given,
                        remedy=f"Set colour.distance={needed}")  # fmt: skip
