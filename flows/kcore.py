"""Coreness of an edge list, by peeling or by a vertex program."""

from superworkflow.flows.vertex_program import vertex_superworkflow
from superworkflow.tasks.kcore import STAGE
from superworkflow.tasks.kcore.program import PEELING, PROGRAM

SUPERWORKFLOW = vertex_superworkflow(PROGRAM, STAGE, colourless=PEELING)
