"""Stage `als`: a vertex program; see `tasks.als.program`.

Field of the dataset, whose files `VertexProgram.__call__` describes: `factor` float32 [factors], whose products with
those of the other side predict ratings.
"""

from __future__ import annotations

from superworkflow.tasks.als.program import PROGRAM
from superworkflow.tasks.lib.vertex.stage import program_stage

STAGE = program_stage(
    PROGRAM, "superworkflow.tasks.als.program:PROGRAM", arc_s=lambda params: 1.6e-10 * params.factors**2
)
