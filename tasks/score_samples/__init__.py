"""Stage `score_samples`: predictions of held-out samples next to their labels.

Features that the model does not have count as 0; missing values of a table, and categories that the model does not
have, as the mean of their column; a warning says how many values there are. Figures: of numbers
`rmse@test` and `r2@test`, and `mean_…` of the mean label; of classes `accuracy@test`, and `majority_accuracy@test` of
the most frequent class. A sample whose class the model does not have is predicted wrong. Samples of a table that have
no label are predicted, and not judged.

Files: `metrics.json`; `predictions.parquet` with columns `label`, null where there is none, and `predicted`, a row for
each sample in the file's order.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

_PROCESS = Process(start_s=1.2, memory_bytes=190 << 20)


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """The samples are in memory."""
    given, model = int(inputs.get("test", {}).get("bytes") or 0), int(inputs.get("values", {}).get("bytes") or 0)
    return _PROCESS.estimate(memory_bytes=6 * given + 2 * model, cpu_s=2e-8 * given, output_bytes=given // 20)


STAGE = Stage(
    name="score_samples",
    params=StageParams,
    inputs={
        "graph": Input("feature_graph dataset"),
        "values": Input("lasso or svm dataset of that graph"),
        "test": Input("held-out samples in the form of those that were learned from", file=True),
    },
    run="superworkflow.tasks.score_samples.run:run",
    estimate=estimate,
    metrics=("rmse", "r2", "mean_rmse", "mean_r2", "accuracy", "majority_accuracy"),
    help="predictions of held-out samples next to their labels",
)
