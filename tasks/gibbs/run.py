"""The work of stage `gibbs`."""

from __future__ import annotations

from dataclasses import replace

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.bp.program import few_equal_neighbours
from superworkflow.tasks.gibbs import program_for
from superworkflow.tasks.gibbs.program import GibbsParams, draws
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, log_warnings, warning_stats


def run(job: StageRun[GibbsParams]) -> Output:
    """Run the graph's program; see `tasks.gibbs`."""
    stats = job.inputs["graph"].stats
    found = few_equal_neighbours(stats, job.params)
    if zeros := stats.get("zeros"):
        found.append(InputWarning("the chain may not reach all possible assignments, and shares of draws be far off",
                                  "entries of factors that are 0", f"{zeros} entries", "Compare with bp"))  # fmt: skip
    program = program_for(stats)
    output = replace(program, defaults=draws(job.params, program.defaults["max_steps"]))(job)
    log_warnings(job.progress, found)
    return replace(output, stats={**output.stats, **warning_stats(found)})
