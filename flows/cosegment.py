"""Segments of an image or a volume, by a vertex program."""

from __future__ import annotations

from superworkflow.flows.vertex_program import lattice_superworkflow
from superworkflow.tasks.cosegment import STAGE
from superworkflow.tasks.cosegment.program import PROGRAM

SUPERWORKFLOW = lattice_superworkflow(PROGRAM, STAGE)
