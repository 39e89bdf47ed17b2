"""Stage `coem`: a vertex program; see `tasks.coem.program`.

Fields of the dataset are those of `tasks.label_propagation`.
"""

from superworkflow.tasks.coem.program import PROGRAM
from superworkflow.tasks.lib.vertex.stage import program_stage

STAGE = program_stage(PROGRAM, "superworkflow.tasks.coem.program:PROGRAM", version="2")
