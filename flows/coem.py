"""Classes of nouns and contexts from the classes of some, by a vertex program."""

from dataclasses import replace

from superworkflow.flows.vertex_program import vertex_superworkflow
from superworkflow.tasks import index
from superworkflow.tasks.coem import STAGE
from superworkflow.tasks.coem.program import PROGRAM
from superworkflow.tasks.index.two_sets import TwoSetsParams

SUPERWORKFLOW = vertex_superworkflow(PROGRAM, STAGE, replace(index.STAGE, params=TwoSetsParams))
