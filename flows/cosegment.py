"""Segments of an image or a volume, by a vertex program."""

from dataclasses import replace

from superworkflow.flows.vertex_program import lattice_superworkflow
from superworkflow.tasks.cosegment import STAGE
from superworkflow.tasks.cosegment.program import PROGRAM
from superworkflow.tasks.grid import STAGE as GRID
from superworkflow.tasks.grid import GreysParams

SUPERWORKFLOW = lattice_superworkflow(PROGRAM, STAGE, replace(GRID, params=GreysParams))
