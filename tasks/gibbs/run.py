"""The work of stage `gibbs`."""

from __future__ import annotations

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.gibbs import program_for
from superworkflow.tasks.gibbs.program import GibbsParams


def run(job: StageRun[GibbsParams]) -> Output:
    """Run the graph's program; see `tasks.gibbs`."""
    stats = job.inputs["graph"].stats
    if zeros := stats.get("zeros"):
        job.progress.log(f"warning: {zeros} entries of factors are 0: the chain may not reach all possible assignments")
    return program_for(stats)(job)
