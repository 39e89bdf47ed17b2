"""The work of stage `bp`."""

from __future__ import annotations

from dataclasses import replace

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.bp import program_for
from superworkflow.tasks.bp.factors import PROGRAM as FACTORS
from superworkflow.tasks.bp.program import BpParams

_OF_LATTICES, _OF_FACTORS = 1e-3, 1e-9


def run(job: StageRun[BpParams]) -> Output:
    """Run the graph's program, with the precision for such graphs where none is set; see `tasks.bp`."""
    program = program_for(job.inputs["graph"].stats)
    precision = job.params.precision or (_OF_FACTORS if program is FACTORS else _OF_LATTICES)
    output = program(replace(job, params=job.params.model_copy(update={"precision": precision})))
    if job.inputs["graph"].stats.get("cycles"):
        job.progress.log("warning: factors join variables in cycles, so that beliefs are approximate; gibbs draws from "
                         "the exact distribution")  # fmt: skip
    if output.stats["ended"] == "steps":
        job.progress.log("warning: messages still change, so that beliefs depend on max_steps: try bp.damping=0.5")
    return output
