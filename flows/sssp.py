"""Shortest paths from one node of an edge list, by a vertex program."""

from dataclasses import replace

from superworkflow.flows.vertex_program import vertex_superworkflow
from superworkflow.tasks import index
from superworkflow.tasks.sssp import STAGE, DistancesParams
from superworkflow.tasks.sssp.program import PROGRAM

SUPERWORKFLOW = vertex_superworkflow(PROGRAM, STAGE, replace(index.STAGE, params=DistancesParams))
