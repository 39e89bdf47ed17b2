"""Stage `lasso`: a vertex program; see `tasks.lasso.program`.

Field of the dataset, whose files `VertexProgram.__call__` describes: `coefficient` float64, 0 of samples; the
last constant feature has the intercept, and those before it 0. The stats
have `alpha`, `intercept`, `gap` and `relative_gap`, `objective`, and `nonzero`, the coefficients that are not 0.
"""

from superworkflow.tasks.lasso.program import PROGRAM
from superworkflow.tasks.lib.vertex.stage import program_stage

STAGE = program_stage(PROGRAM, "superworkflow.tasks.lasso.run:run", version="2")
