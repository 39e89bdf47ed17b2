"""Stage `bp`: a vertex program on a lattice, see `tasks.bp.program`, or on a factor graph, see `tasks.bp.factors`.

Fields of the dataset, whose files `VertexProgram.__call__` describes: `label` int32, the likeliest label or state;
`belief` float32 [labels], of a factor graph float64 [states], marginals of sum-product, max-marginals of max-product,
which add up to 1; and the messages.
"""

from __future__ import annotations

from superworkflow.infra.contract.estimate import Stats
from superworkflow.tasks.bp.factors import PROGRAM as FACTORS
from superworkflow.tasks.bp.program import PROGRAM
from superworkflow.tasks.lib.vertex.program import VertexProgram
from superworkflow.tasks.lib.vertex.stage import program_stage


def program_for(graph: Stats) -> VertexProgram:
    """The program for a graph with these stats."""
    return FACTORS if "factors" in graph else PROGRAM


STAGE = program_stage(PROGRAM, "superworkflow.tasks.bp.run:run", version="2", of_graph=program_for)
