"""The work of stage `bp`."""

from __future__ import annotations

from dataclasses import replace

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.bp import program_for
from superworkflow.tasks.bp.program import BpParams, few_equal_neighbours
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, log_warnings, warning_stats


def run(job: StageRun[BpParams]) -> Output:
    """Run the graph's program, on a graph without cycles as long as it takes; see `tasks.bp`."""
    stats = job.inputs["graph"].stats
    program, cycles = program_for(stats), stats.get("cycles")
    if "cycles" not in stats:
        cycles = int(stats["edges"] or 0) >= int(stats["vertices"] or 0)
    output = replace(program, defaults={**program.defaults, **({} if cycles else {"max_sweeps": 0.0})})(job)
    found = few_equal_neighbours(stats, job.params)
    if stats.get("cycles"):
        settle = "Take them as estimates" if stats.get("zeros") else "gibbs draws from the exact distribution"
        found.append(InputWarning("factors join variables in cycles, so that beliefs are approximate", "bp",
                                  f"{stats['cycles']} cycles", settle))  # fmt: skip
    if output.stats["ended"] in ("steps", "sweeps"):
        found.append(InputWarning("messages still change, so that beliefs depend on where it ended",
                                  f"bp.max_{output.stats['ended']}", f"{int(output.stats['updates'] or 0)} updates",
                                  "Try bp.damping=0.5"))  # fmt: skip
    log_warnings(job.progress, found)
    return replace(output, stats={**output.stats, **warning_stats(found)})
