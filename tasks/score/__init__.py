"""Stage `score`: what predictions are worth, on the nodes or edges to validate on and to test.

What is said of nodes holds for edges where these are predicted; `errors.parquet` then has `source` and `target`.

With one label for each node Micro-F1 is the accuracy; Macro-F1 is the mean over the classes that occur in the split or
are predicted there.

Where nodes have several labels, a node with k of them is given the k of highest score, as by the stage `evaluate`:
accuracy is the share of nodes of which all are right, and Macro-F1 the mean over all labels.

Probabilities of all classes are judged on 8,000,000 / classes nodes of a split at most, evenly spaced: `roc_auc` and
`average_precision` are means over the classes, each against all others, that some of these nodes have and some have
not. `calibration_error` is the mean difference, over 15 bins of equal width, between the probability of the predicted
class and the share of nodes where it is right, by the nodes in a bin (Guo et al., ICML 2017); not of several labels.

Of numbers the figures are `rmse`, `mae` and `r2`: the root of the mean squared error and the mean absolute error, in
the labels' unit, and 1 less the squared errors over those of the split's mean. `errors.parquet` has the 100 nodes of
each split with the largest errors, columns `split`, `node`, `label`, `predicted`.

Where the figures of simpler methods are given, one that is better than the network's is a warning.

Files: `metrics.json`; `classes.parquet`, a row for each split and class with `precision`, `recall`, `f1`, `support`,
`predicted`, `roc_auc` and `average_precision`, null where undefined; of one label for each node also
`confusion.parquet`, columns `split`, `label`, `predicted`, `nodes`, pairs that occur, and `calibration.parquet`,
columns `split`, `low`, `high`, `nodes`, `probability`, `accuracy`, bins that have nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats
from superworkflow.tasks.lib.gnn.estimates import USUAL_CLASSES
from superworkflow.tasks.lib.metrics import NUMBER_FIGURES

MOST_RANKED = 8_000_000
"""Probabilities of a split that are judged, at most."""
_PROCESS = Process(start_s=0.4, memory_bytes=110 << 20)


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Four columns of text, and a table of nodes and classes, of which some nodes' are sorted."""
    found = inputs.get("predictions", {})
    nodes, classes = int(found.get("nodes") or 0), int(found.get("classes") or USUAL_CLASSES)
    cells = min(nodes * classes, 2 * MOST_RANKED)
    return _PROCESS.estimate(
        memory_bytes=150 * nodes + 4 * cells, cpu_s=1e-6 * nodes + 8e-8 * cells, output_bytes=(1 << 12) + 200 * classes
    )


STAGE = Stage(
    name="score",
    version="2",
    params=StageParams,
    inputs={
        "predictions": Input("infer dataset: the predictions to judge"),
        "seen": Input("infer dataset: nodes that it has in train and validation are not judged by", optional=True),
        "baselines": Input("baselines dataset: figures of simpler methods, to compare with", optional=True),
    },
    run="superworkflow.tasks.score.run:run",
    estimate=estimate,
    help="accuracy, F1, ROC-AUC and calibration of predictions, or errors of numbers",
    metrics=(
        "accuracy",
        "micro_f1",
        "macro_f1",
        "roc_auc",
        "average_precision",
        "calibration_error",
        *NUMBER_FIGURES,
    ),
)
