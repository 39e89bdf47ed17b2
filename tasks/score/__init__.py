"""Stage `score`: what predictions are worth, on the nodes to validate on and to test.

File: `metrics.json`. With one label for each node Micro-F1 is the accuracy; Macro-F1 is the mean over the classes that
occur in the split or are predicted there.

Where nodes have several labels, a node with k of them is given the k of highest score, as by the stage `evaluate`:
accuracy is the share of nodes of which all are right, and Macro-F1 the mean over all labels.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.estimate import Estimate, Stats
from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.contract.stage import Input, Stage

_PROCESS_BYTES = 110 << 20
_START_S = 0.4


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Four columns of text, and a table of nodes and classes."""
    nodes = int(inputs.get("predictions", {}).get("nodes") or 0)
    return Estimate(
        memory_bytes=_PROCESS_BYTES + 150 * nodes, cpu_s=_START_S + 1e-6 * nodes, output_bytes=1 << 10,
        parallel=0.0, start_s=_START_S, base_bytes=_PROCESS_BYTES,
    )  # fmt: skip


STAGE = Stage(
    name="score",
    version="1",
    params=StageParams,
    inputs={
        "predictions": Input("infer dataset: the predictions to judge"),
        "seen": Input("infer dataset: nodes that it has in train and validation are not judged by", optional=True),
    },
    run="superworkflow.tasks.score.run:run",
    estimate=estimate,
    help="accuracy and F1 of predictions",
    metrics=("accuracy", "micro_f1", "macro_f1"),
)
