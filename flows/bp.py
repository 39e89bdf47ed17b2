"""Belief propagation on a lattice, by a vertex program."""

from __future__ import annotations

from superworkflow.flows.vertex_program import lattice_superworkflow
from superworkflow.tasks.bp import STAGE
from superworkflow.tasks.bp.program import PROGRAM

SUPERWORKFLOW = lattice_superworkflow(PROGRAM, STAGE)
