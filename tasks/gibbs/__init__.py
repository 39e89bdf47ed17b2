"""Stage `gibbs`: a vertex program; see `tasks.gibbs.program`.

Fields of the dataset, whose files `VertexProgram.__call__` describes: `label` int32, the label most often drawn;
`belief` float64 [labels], shares of the draws.
"""

from __future__ import annotations

from superworkflow.tasks.gibbs.program import PROGRAM
from superworkflow.tasks.lib.vertex.stage import program_stage

STAGE = program_stage(PROGRAM, "superworkflow.tasks.gibbs.program:PROGRAM")
