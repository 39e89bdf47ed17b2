"""Gibbs sampling on a lattice or on factors, by a vertex program."""

from superworkflow.flows.vertex_program import model_superworkflow
from superworkflow.tasks.gibbs import STAGE
from superworkflow.tasks.gibbs.program import PROGRAM

SUPERWORKFLOW = model_superworkflow(PROGRAM, STAGE)
