"""The work of stage `components`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.components.kernel import unite
from superworkflow.tasks.components.program import PROGRAM, UNIONS
from superworkflow.tasks.lib.graph.integrity import check_rows
from superworkflow.tasks.lib.vertex.given import NOTHING_GIVEN
from superworkflow.tasks.lib.vertex.outcome import ProgramOutcome
from superworkflow.tasks.lib.vertex.stage import is_of_program, write_outcome

if TYPE_CHECKING:
    from superworkflow.tasks.components.program import ComponentsParams


def run(job: StageRun[ComponentsParams]) -> Output:
    """Join the ends of edges, or run the program; see `tasks.components`.

    Raises:
        UserError: as `is_of_program`.
    """
    if is_of_program(PROGRAM, job, UNIONS):
        return PROGRAM(job)
    if "initial" in job.inputs:
        job.progress.log("union-find begins anew, which is faster than to look for changes")
    graph = job.inputs["graph"]
    indptr, indices = graph.array("indptr.npy", mmap=False), graph.array("indices.npy")
    check_rows(graph.uri, indptr, indices, None, len(indptr) - 1)
    component, read = components(indptr, indices, bool(graph.stats["directed"]))
    count = float((component == np.arange(len(component))).sum())
    trace = [{"step": 1, "updates": len(component), "arcs": read, "residual": 0.0}]
    found = ProgramOutcome({"component": component.astype(np.int64)}, {"components": count}, trace)
    return write_outcome(PROGRAM, job.params, NOTHING_GIVEN, found, job.output, job.progress.log)


def components(indptr: NDArray[np.int64], indices: NDArray[np.int32], directed: bool) -> tuple[NDArray[np.int32], int]:
    """Smallest vertex of each vertex's component, int32 [vertices], and how many arcs were read.

    Args:
        indptr, indices, directed: see `kernel.unite`.
    """
    parent = np.arange(len(indptr) - 1, dtype=np.int32)
    return parent, unite(indptr, indices, directed, parent)
