"""Stage `gibbs`: a vertex program on a lattice, see `tasks.gibbs.program`, or a factor graph, `tasks.gibbs.factors`.

Fields of the dataset, whose files `VertexProgram.__call__` describes: `label` int32, the label or state most often
drawn; `belief` float64 [labels, or states], shares of the draws.
"""

from __future__ import annotations

from superworkflow.infra.contract.estimate import Stats
from superworkflow.tasks.gibbs.factors import PROGRAM as FACTORS
from superworkflow.tasks.gibbs.program import PROGRAM, draws
from superworkflow.tasks.lib.vertex.program import VertexProgram
from superworkflow.tasks.lib.vertex.stage import program_stage


def program_for(graph: Stats) -> VertexProgram:
    """The program for a graph with these stats."""
    return FACTORS if "factors" in graph else PROGRAM


STAGE = program_stage(
    PROGRAM,
    "superworkflow.tasks.gibbs.run:run",
    of_graph=program_for,
    steps=lambda program, params: draws(params, program.defaults["max_steps"])["max_steps"],
)
