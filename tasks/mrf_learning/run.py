"""The work of stage `mrf_learning`."""

from __future__ import annotations

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.mrf_learning.program import OF_NEIGHBOURS, PROGRAM, MrfLearningParams


def run(job: StageRun[MrfLearningParams]) -> Output:
    """Run the program; see `tasks.mrf_learning`."""
    stats, objective = job.inputs["graph"].stats, job.params.objective
    has_cycles = int(stats["edges"] or 0) >= int(stats["vertices"] or 0)
    by_pairs = objective == "pseudo_likelihood" or (objective == "auto" and has_cycles)
    output = (OF_NEIGHBOURS if by_pairs else PROGRAM)(job)
    if output.stats["ended"] != "empty":
        job.progress.log(
            "warning: the expected statistics are not yet the observed ones: raise mrf_learning.max_sweeps"
        )
    if has_cycles and not by_pairs:
        job.progress.log(
            "warning: the lattice has cycles, so that expected statistics are those of Bethe's approximation; "
            "mrf_learning.objective=pseudo_likelihood does without"
        )
    job.progress.log(f"smoothing {float(output.stats['global.smoothing'] or 0):.6g}")
    return output
