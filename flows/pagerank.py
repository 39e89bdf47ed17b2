"""PageRank of an edge list, by a vertex program."""

from superworkflow.flows.vertex_program import vertex_superworkflow
from superworkflow.tasks.pagerank import STAGE
from superworkflow.tasks.pagerank.program import PROGRAM

SUPERWORKFLOW = vertex_superworkflow(PROGRAM, STAGE)
