"""The work of stage `mrf_learning`."""

from __future__ import annotations

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.mrf_learning.program import PROGRAM, MrfLearningParams


def run(job: StageRun[MrfLearningParams]) -> Output:
    """Run the program; see `tasks.mrf_learning`."""
    output, stats = PROGRAM(job), job.inputs["graph"].stats
    if output.stats["ended"] != "empty":
        job.progress.log(
            "warning: the expected statistics are not yet the observed ones: raise mrf_learning.max_sweeps"
        )
    if int(stats["edges"] or 0) >= int(stats["vertices"] or 0):
        job.progress.log(
            "warning: the lattice has cycles, so that expected statistics are those of Bethe's approximation"
        )
    job.progress.log(f"smoothing {float(output.stats['global.smoothing'] or 0):.6g}")
    return output
