"""Parameters of a lattice's model from a labelling, by a vertex program."""

from superworkflow.flows.vertex_program import lattice_superworkflow
from superworkflow.tasks.mrf_learning import STAGE
from superworkflow.tasks.mrf_learning.program import PROGRAM

SUPERWORKFLOW = lattice_superworkflow(PROGRAM, STAGE, outputs={"model": ("mrf_learning", "globals.json")})
