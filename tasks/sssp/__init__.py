"""Stage `sssp`: a vertex program; see `tasks.sssp.program`.

Field of the dataset, whose files `VertexProgram.__call__` describes: `distance` float64.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from superworkflow.tasks.index import IndexParams
from superworkflow.tasks.lib.vertex.stage import program_stage
from superworkflow.tasks.sssp.program import PROGRAM


class DistancesParams(IndexParams):
    """Parameters of the index stage for distances: of several rows of an edge the shortest counts."""

    duplicates: Literal["sum", "max", "min", "error"] = Field(
        default="min", description=IndexParams.model_fields["duplicates"].description
    )


STAGE = program_stage(PROGRAM, "superworkflow.tasks.sssp.program:PROGRAM", version="2")
