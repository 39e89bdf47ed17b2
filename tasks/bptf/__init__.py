"""Stage `bptf`: a vertex program; see `tasks.bptf.program`.

Field of the dataset, whose files `VertexProgram.__call__` describes: `factor` float32 [1 + draws * factors], whose
products with those of the other side predict ratings, as those of `als` do.
"""

from superworkflow.tasks.bptf.program import PROGRAM
from superworkflow.tasks.lib.vertex.stage import program_stage

STAGE = program_stage(
    PROGRAM,
    "superworkflow.tasks.bptf.program:PROGRAM",
    version="2",
    arc_s=lambda params: 2e-9 + 1.6e-10 * params.factors**2,
    steps=lambda program, params: params.max_steps,
)
