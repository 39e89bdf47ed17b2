"""Stage `sssp`: a vertex program; see `tasks.sssp.program`.

Field of the dataset, whose files `VertexProgram.__call__` describes: `distance` float64.
"""

from __future__ import annotations

from superworkflow.tasks.lib.vertex.stage import program_stage
from superworkflow.tasks.sssp.program import PROGRAM

STAGE = program_stage(PROGRAM, "superworkflow.tasks.sssp.program:PROGRAM", version="2")
