"""Stage `als`: a vertex program; see `tasks.als.program`.

Field of the dataset, whose files `VertexProgram.__call__` describes: `factor` float32 [factors + 2], whose products
with those of the other side predict ratings: of a user its bias and the mean rating, then 1; of an item 1, then its
bias, come last.
"""

from superworkflow.tasks.als.program import PROGRAM
from superworkflow.tasks.lib.vertex.stage import program_stage

STAGE = program_stage(
    PROGRAM, "superworkflow.tasks.als.program:PROGRAM", version="3", arc_s=lambda params: 1.6e-10 * params.factors**2
)
