"""Stage `pagerank`: a vertex program; see `tasks.pagerank.program`.

Field of the dataset, whose files `VertexProgram.__call__` describes: `rank` float64, which add up to 1.
"""

from superworkflow.tasks.lib.vertex.stage import program_stage
from superworkflow.tasks.pagerank.program import PROGRAM

STAGE = program_stage(PROGRAM, "superworkflow.tasks.pagerank.program:PROGRAM", version="3")
