"""Stage `publish_predictions`: predictions as a self-contained bundle that a server maps into memory.

The bundle needs neither this project nor Parquet nor torch to be read: plain arrays and one small JSON.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.estimate import Estimate, Stats
from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.contract.stage import Input, Stage

_PROCESS_BYTES = 120 << 20
_START_S = 0.4


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """From the number of predictions."""
    nodes = int(inputs.get("predictions", {}).get("nodes") or 0)
    return Estimate(
        memory_bytes=_PROCESS_BYTES + 100 * nodes, cpu_s=_START_S + 2e-6 * nodes, output_bytes=(1 << 10) + 36 * nodes,
        stats={"nodes": nodes}, parallel=0.0, start_s=_START_S, base_bytes=_PROCESS_BYTES,
    )  # fmt: skip


STAGE = Stage(
    name="publish_predictions",
    version="1",
    params=StageParams,
    inputs={
        "predictions": Input("infer dataset: the predictions to publish"),
        "scores": Input("score dataset: what they are worth", optional=True),
    },
    run="superworkflow.tasks.publish_predictions.run:run",
    estimate=estimate,
    help="predictions as a self-contained model bundle",
)
