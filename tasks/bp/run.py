"""The work of stage `bp`."""

from __future__ import annotations

from dataclasses import replace

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.bp import program_for
from superworkflow.tasks.bp.program import BpParams


def run(job: StageRun[BpParams]) -> Output:
    """Run the graph's program, on a graph without cycles as long as it takes; see `tasks.bp`."""
    stats = job.inputs["graph"].stats
    program, cycles = program_for(stats), stats.get("cycles")
    if "cycles" not in stats:
        cycles = int(stats["edges"] or 0) >= int(stats["vertices"] or 0)
    output = replace(program, defaults={**program.defaults, **({} if cycles else {"max_sweeps": 0.0})})(job)
    if stats.get("cycles"):
        job.progress.log("warning: factors join variables in cycles, so that beliefs are approximate; gibbs draws from "
                         "the exact distribution")  # fmt: skip
    if output.stats["ended"] in ("steps", "sweeps"):
        job.progress.log(f"warning: after {int(output.stats['updates'] or 0)} updates messages still change, so that "
                         f"beliefs depend on max_{output.stats['ended']}: try bp.damping=0.5")  # fmt: skip
    return output
