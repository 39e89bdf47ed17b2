"""Stage `tabulate`: predictions of nodes or edges as one table for people, with the probabilities of all classes.

File: `predictions.parquet` with columns `node`, `predicted`, `probability` of that class, and for each class
`probability_<class>` float32. Where nodes have several classes `predicted` and `probability` are lists. Predicted
numbers are the columns `node` and `predicted` alone. Edges have `source` and `target` instead of `node`.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats
from superworkflow.tasks.lib.gnn.estimates import USUAL_CLASSES

_PROCESS = Process(start_s=0.4, memory_bytes=120 << 20)


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """From the number of predictions and of classes; rows pass by in groups."""
    given = inputs.get("predictions", {})
    nodes, classes = int(given.get("pairs") or given.get("nodes") or 0), int(given.get("classes") or USUAL_CLASSES)
    return _PROCESS.estimate(
        memory_bytes=min(nodes, 1 << 17) * (8 * classes + 200), cpu_s=3e-8 * nodes * classes,
        output_bytes=nodes * (4 * classes + 20), stats={"nodes": nodes},
    )  # fmt: skip


STAGE = Stage(
    name="tabulate",
    version="1",
    params=StageParams,
    inputs={
        "predictions": Input("infer dataset: the predictions"),
    },
    run="superworkflow.tasks.tabulate.run:run",
    estimate=estimate,
    help="predictions as one table, with the probabilities of all classes",
)
