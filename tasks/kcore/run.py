"""The work of stage `kcore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.kcore.kernel import peel
from superworkflow.tasks.kcore.program import PEELING, PROGRAM
from superworkflow.tasks.lib.graph.integrity import check_rows
from superworkflow.tasks.lib.vertex.given import NOTHING_GIVEN
from superworkflow.tasks.lib.vertex.outcome import ProgramOutcome
from superworkflow.tasks.lib.vertex.stage import is_of_program, write_outcome
from superworkflow.tasks.lib.vertex.transpose import in_edges

if TYPE_CHECKING:
    from superworkflow.tasks.kcore.program import KcoreParams


def run(job: StageRun[KcoreParams]) -> Output:
    """Peel the graph, or run the program; see `tasks.kcore`.

    Raises:
        UserError: as `is_of_program`.
    """
    if is_of_program(PROGRAM, job, PEELING):
        return PROGRAM(job)
    graph = job.inputs["graph"]
    indptr, indices = graph.array("indptr.npy", mmap=False), graph.array("indices.npy")
    check_rows(graph.uri, indptr, indices, None, len(indptr) - 1)
    degrees, core = coreness(indptr, indices, bool(graph.stats["directed"]))
    updates, arcs = np.bincount(core), np.bincount(core, degrees)
    trace = [{"step": level, "updates": int(updates[level]), "arcs": int(arcs[level]), "residual": 0.0}
             for level in np.flatnonzero(updates).tolist()]  # fmt: skip
    found = ProgramOutcome({"core": core.astype(np.int64)}, {"degeneracy": float(core.max(initial=0))}, trace)
    return write_outcome(PROGRAM, job.params, NOTHING_GIVEN, found, job.output, job.progress.log)


def coreness(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], directed: bool
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Degree and coreness of each vertex, int64 and int32 [vertices]; edges of both directions count.

    Args:
        indptr: int64 [vertices + 1].
        indices: int32 [arcs], ascending in each row.
        directed: rows have out-edges alone; otherwise both arcs of each edge.
    """
    further: tuple[NDArray[Any], NDArray[Any]] = in_edges(indptr, indices, directed)
    degrees = np.diff(indptr).astype(np.int64)
    if directed:
        degrees += np.diff(further[0])
    core, vertices = degrees.astype(np.int32), len(degrees)
    peel(indptr, indices, *further, core, np.empty(vertices, np.int32), np.empty(vertices + 1, np.int32))
    return degrees, core
