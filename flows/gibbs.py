"""Gibbs sampling on a lattice, by a vertex program."""

from __future__ import annotations

from superworkflow.flows.vertex_program import lattice_superworkflow
from superworkflow.tasks.gibbs import STAGE
from superworkflow.tasks.gibbs.program import PROGRAM

SUPERWORKFLOW = lattice_superworkflow(PROGRAM, STAGE)
