"""The work of stage `cosegment`."""

from __future__ import annotations

from dataclasses import replace

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.cosegment.program import MOST_SEGMENTS, PROGRAM, CosegmentParams


def run(job: StageRun[CosegmentParams]) -> Output:
    """Run the program, with as many segments as the lattice has values where none are set; see `tasks.cosegment`."""
    segments = min(int(job.inputs["graph"].stats["labels"] or 2), MOST_SEGMENTS)
    output = replace(PROGRAM, defaults={**PROGRAM.defaults, "segments": segments})(job)
    if output.stats["ended"] != "empty":
        job.progress.log("warning: the segments still change: raise cosegment.max_sweeps, or try cosegment.damping=0.5")
    return output
