"""Stage `set_drift`: how far the sizes of a typed graph's sets are from those of an earlier one.

Figures are `nodes_changed@SET` and `edges_changed@SET`: |now - before| / before, 1 for a set that only one of them
has. In the name of a set, what cannot stand in a figure's name is `_`.

File: `drift.json`, the figures.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """The interpreter; sizes are known without the tables."""
    return Process(start_s=0.6, memory_bytes=180 << 20).estimate(memory_bytes=0, cpu_s=0, output_bytes=4 << 10)


STAGE = Stage(
    name="set_drift",
    version="1",
    params=StageParams,
    inputs={
        "graph": Input("heterograph dataset: the graph"),
        "earlier_graph": Input("heterograph dataset: the earlier graph"),
    },
    run="superworkflow.tasks.set_drift.run:run",
    estimate=estimate,
    help="how far the sizes of a typed graph's sets are from earlier ones",
    drift=("nodes_changed", "edges_changed"),
)
