"""Stage `grid`: an image or a volume becomes a grid graph, each of whose vertices has observed one label.

The file is a `.npy` of 2 or 3 dimensions, of integers or truth values, whose distinct values, ascending, are the labels
from 0 on; or a PNG, whose greys (of 16 bits the highest eight in use) are cut into equally wide levels. Vertices are
numbered row by row, as the array lies in memory; neighbours are next to each other along one axis.

Files: `indptr.npy` int64 [vertices + 1], `indices.npy` int32 [arcs], ascending in each row; `observed.npy` int32
[vertices], labels; `levels.npy` [labels], the values, uint8 of a PNG: the mean grey of each level. The stats have
`labels`, and the `shape` as text.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

_PROCESS = Process(start_s=0.4, memory_bytes=110 << 20)


class GridParams(StageParams):
    """Parameters of lattices."""

    levels: int = Field(
        default=8, ge=2, le=256, description="Equally wide levels into which the greys of a PNG are cut, 2 to 256. "
        "Greys that are no more than these stay as they are. Values of a .npy are labels already.",
    )  # fmt: skip


class GreysParams(GridParams):
    """Parameters of lattices whose values are numbers in an order."""

    levels: int = Field(default=256, ge=2, le=256, description=GridParams.model_fields["levels"].description)


def estimate(params: GridParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """The most vertices and neighbours that the file's bytes can be, which plans of later stages take over."""
    facts = inputs.get("lattice", {})
    vertices = int(facts.get("vertices") or facts.get("bytes") or 0)
    edges = 3 * vertices
    return _PROCESS.estimate(
        memory_bytes=70 * vertices, cpu_s=2e-7 * vertices, output_bytes=36 * vertices,
        stats={"vertices": vertices, "edges": edges, "labels": params.levels},
    )  # fmt: skip


STAGE = Stage(
    name="grid",
    version="2",
    params=GridParams,
    inputs={
        "lattice": Input(
            "an image or a volume: .npy of 2 or 3 dimensions, of integers, or a .png", file=True,
            stats="superworkflow.tasks.grid.run:size_of",
        )
    },
    run="superworkflow.tasks.grid.run:run",
    estimate=estimate,
    help="grid graph of an image or a volume",
)  # fmt: skip
