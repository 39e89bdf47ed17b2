"""Stage `components`: a vertex program; see `tasks.components.program`.

Field of the dataset, whose files `VertexProgram.__call__` describes: `component` int64, the smallest vertex of it.
"""

from __future__ import annotations

from superworkflow.tasks.components.program import PROGRAM
from superworkflow.tasks.lib.vertex.stage import program_stage

STAGE = program_stage(PROGRAM, "superworkflow.tasks.components.program:PROGRAM", version="3")
