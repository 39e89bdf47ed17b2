"""Stage `components`: union-find, or a vertex program; see `tasks.components.run` and `tasks.components.program`.

Field of the dataset, whose files `VertexProgram.__call__` describes: `component` int64, the smallest vertex of it.
`trace.parquet` of union-find has one row, whose `arcs` are those that were read.
"""

from superworkflow.tasks.components.program import PROGRAM, UNIONS
from superworkflow.tasks.lib.vertex.stage import program_stage

STAGE = program_stage(
    PROGRAM, "superworkflow.tasks.components.run:run", version="4", alone=UNIONS,
    arc_s=lambda params: 1e-10 if params.execution == UNIONS else 3e-9,
)  # fmt: skip
