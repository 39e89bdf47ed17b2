"""Connected components of an edge list, by union-find or by a vertex program."""

from superworkflow.flows.vertex_program import vertex_superworkflow
from superworkflow.tasks.components import STAGE
from superworkflow.tasks.components.program import PROGRAM, UNIONS

SUPERWORKFLOW = vertex_superworkflow(PROGRAM, STAGE, colourless=UNIONS)
