"""Stage `kcore`: coreness by peeling, or by a vertex program; see `tasks.kcore.run` and `tasks.kcore.program`.

Field of the dataset, whose files `VertexProgram.__call__` describes: `core` int64. `trace.parquet` of peeling has a row
for each coreness that occurs: it is `step`, and the vertices and their degrees are `updates` and `arcs`.
"""

from superworkflow.tasks.kcore.program import PEELING, PROGRAM
from superworkflow.tasks.lib.vertex.stage import program_stage

STAGE = program_stage(
    PROGRAM, "superworkflow.tasks.kcore.run:run", version="3", alone=PEELING,
    arc_s=lambda params: 3e-10 if params.execution == PEELING else 3e-9,
)  # fmt: skip
