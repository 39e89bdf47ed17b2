"""Connected components of an edge list, by a vertex program."""

from __future__ import annotations

from superworkflow.flows.vertex_program import vertex_superworkflow
from superworkflow.tasks.components import STAGE
from superworkflow.tasks.components.program import PROGRAM

SUPERWORKFLOW = vertex_superworkflow(PROGRAM, STAGE)
