"""Stage `svm`: a vertex program; see `tasks.svm.program`.

Field of the dataset, whose files `VertexProgram.__call__` describes: `coefficient` float64 [problems], 0 of samples;
one problem of two classes, else one for each class against the others. The stats have `objective` (the sum of the
problems'), `gap`, `relative_gap`, and `vectors`, the samples that support the margin of a problem.
"""

from superworkflow.tasks.lib.vertex.stage import program_stage
from superworkflow.tasks.svm.program import PROGRAM

STAGE = program_stage(PROGRAM, "superworkflow.tasks.svm.run:run", version="2")
