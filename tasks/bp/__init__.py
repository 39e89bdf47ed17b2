"""Stage `bp`: a vertex program; see `tasks.bp.program`.

Fields of the dataset, whose files `VertexProgram.__call__` describes: `label` int32, the likeliest label; `belief`
float32 [labels], marginals of sum-product, max-marginals of max-product, which add up to 1.
"""

from __future__ import annotations

from superworkflow.tasks.bp.program import PROGRAM
from superworkflow.tasks.lib.vertex.stage import program_stage

STAGE = program_stage(PROGRAM, "superworkflow.tasks.bp.program:PROGRAM")
