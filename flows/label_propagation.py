"""Classes of nodes from the classes of some, by a vertex program."""

from superworkflow.flows.vertex_program import vertex_superworkflow
from superworkflow.tasks.label_propagation import STAGE
from superworkflow.tasks.label_propagation.program import PROGRAM

SUPERWORKFLOW = vertex_superworkflow(PROGRAM, STAGE)
