"""Belief propagation on a lattice or on factors, by a vertex program."""

from superworkflow.flows.vertex_program import model_superworkflow
from superworkflow.tasks.bp import STAGE
from superworkflow.tasks.bp.program import PROGRAM

SUPERWORKFLOW = model_superworkflow(PROGRAM, STAGE)
