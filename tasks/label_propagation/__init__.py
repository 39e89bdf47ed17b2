"""Stage `label_propagation`: a vertex program; see `tasks.label_propagation.program`.

Fields of the dataset, whose files `VertexProgram.__call__` describes: `label` int32, the class as given, -1 without;
`predicted` int32, the class, -1 where no labelled node is reached; `share` float64 [vertices, classes]. `classes.json`
has the names of the classes.
"""

from superworkflow.tasks.label_propagation.program import PROGRAM
from superworkflow.tasks.lib.vertex.stage import program_stage

STAGE = program_stage(PROGRAM, "superworkflow.tasks.label_propagation.program:PROGRAM", version="2")
