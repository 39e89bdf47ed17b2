"""Stage `correct`: predictions of nodes corrected by the errors at labelled nodes nearby (Correct and Smooth).

A network reads the features around a node, and not the labels; where the errors of neighbours are alike, those of the
nodes that it was trained on show those of the others (Huang et al., ICLR 2021; Jia and Benson, KDD 2020, of numbers).
With Z the probabilities of the classes, or the number, of each node, Y what its labels say, and A the edges:

- correct: E is Y - Z at the nodes to train; at the others E ← α D^-1 A E, from 0 on. Z' = Z + s E. α is in `SHARES`, s
  of least squares, 0 to 2.
- smooth: G is Y at the nodes to train; at the others G ← β D^-1 A G + (1 - β) Z', from Z' on. β is in `WEIGHTS`.

Each takes `STEPS` steps, or fewer once the rows change by `STILL` of their norm or less. Both are chosen by the mean
squared error on the nodes to validate on (of classes the Brier score), and each is left out that does not lower it by
two standard errors. No probability becomes less than `LEAST_SHARE` of the network's (of several labels, nor as much
nearer to 1), so that rare classes keep their order. The nodes to train keep the network's predictions; labels of the
nodes to validate on are read for the choice alone, and those to test never. Edges are those within the node set or,
where it has none, paths of two edges through another set; they all count the same.

Predictions stay as they are, and the log says why: where nodes are judged as of some time, whose neighbours may have
later labels; where no labels of nodes to train and to validate on are there; and of more than
`MOST_CELLS` probabilities.

Files: `predictions.parquet`, of classes `probabilities.npy` and `classes.json`, as of stage infer; `correction.json`,
`alpha`, `scale` and `beta`, null or 0 where a step is left out, and the mean squared errors `before` and `after`;
`terms.npy` float32 [nodes, classes or 1]: of a node that is not in the graph the corrected row is 1 - β times the
network's, plus the mean of its neighbours' terms. Figures named `network_…` are those of the network alone. The
same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats
from superworkflow.tasks.lib.gnn.estimates import USUAL_CLASSES
from superworkflow.tasks.lib.metrics import LABEL_FIGURES, NUMBER_FIGURES

SHARES, WEIGHTS = (0.5, 0.8, 1.0), (0.2, 0.5, 0.8, 0.95)
"""What a node keeps of its neighbours' mean in a step, of errors and of labels."""
STEPS, STILL = 20, 1e-3
LEAST_SHARE = 0.2
CORRECTION, TERMS = "correction.json", "terms.npy"
MOST_CELLS = 400_000_000
"""Nodes times classes at most."""
_PROCESS = Process(start_s=0.6, memory_bytes=220 << 20)


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Rows of the neighbours in each step, of half of all nodes; nine tables of all."""
    found, graph = inputs.get("predictions", {}), inputs.get("graph", {})
    nodes, edges = int(found.get("nodes") or graph.get("nodes") or 0), int(graph.get("edges") or 0)
    classes = int(found.get("classes") or USUAL_CLASSES)
    cells, steps = nodes * classes, STEPS * (len(SHARES) + len(WEIGHTS)) / 2
    return _PROCESS.estimate(
        memory_bytes=36 * min(cells, MOST_CELLS) + 200 * nodes + 5 * edges,
        cpu_s=steps * (5e-10 * edges * classes + 2e-9 * cells) * (cells <= MOST_CELLS) + 2e-6 * nodes,
        output_bytes=nodes * (8 * classes + 40),
        stats={"rows": nodes, "nodes": nodes},
        parallel=0.7,
        mapped_bytes=4 * edges,
    )


STAGE = Stage(
    name="correct",
    version="1",
    params=StageParams,
    inputs={
        "predictions": Input("infer dataset: the predictions to correct"),
        "network": Input("train dataset: the network that made them"),
        "graph": Input("heterograph dataset: the graph"),
    },
    run="superworkflow.tasks.correct.run:run",
    estimate=estimate,
    help="predictions of nodes, corrected by the errors at labelled nodes nearby",
    metrics=tuple(f"network_{name}" for name in (*LABEL_FIGURES, *NUMBER_FIGURES)),
)
