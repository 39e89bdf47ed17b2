"""Stage `kcore`: a vertex program; see `tasks.kcore.program`.

Field of the dataset, whose files `VertexProgram.__call__` describes: `core` int64.
"""

from __future__ import annotations

from superworkflow.tasks.kcore.program import PROGRAM
from superworkflow.tasks.lib.vertex.stage import program_stage

STAGE = program_stage(PROGRAM, "superworkflow.tasks.kcore.program:PROGRAM", version="2")
