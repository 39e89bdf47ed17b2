"""Stage `baselines`: how well simpler methods classify the nodes that a network is judged by.

Labels and splits are those of training. Figures of four methods, on the nodes to validate on and to test:

- `majority`: the most frequent class of the nodes to train and to validate on.
- `features`: logistic regression on the nodes' features, without the graph (scikit-learn's, multinomial, L2, of four
  strengths the best on the validation nodes; of several labels `tasks.lib.metrics.logistic_regression`). Rows of sparse
  features that are not negative are divided by their length, others are standardised.
- `forest`: a random forest of 50 trees on the same features, leaves of two nodes and more; none of sparse features, for
  nodes of several labels, or for more than 500 classes.
- `label_propagation`: labels spread over the graph, without features: F ← 0.9 S F + 0.1 Y, S = D^-½ A D^-½ (Zhou et
  al., NeurIPS 2003), over the edges within the node set in both directions or, where it has none, over paths of two
  edges through another set.

Of numbers they are `mean`, of the training nodes, `features`, ridge regression on the features, of six strengths the
best on the validation nodes, `forest`, and `neighbor_mean`, of the training nodes among the neighbours.

Of edges, of whose labels those of the training edges alone are used: `majority`, and `end_classes`, the classes of both
ends' other edges by naive Bayes, each end with five further edges of the mean shares; of numbers `mean`, and
`end_means`, the mean plus each end's deviation from it, damped in the same way.

What costs more than some seconds is bounded, and the log says how: training rows and steps by the numbers of nodes,
edges and classes, judged nodes by 50,000 of each split. Where a method cannot be used it is left out, and the log says
why. Where nodes have several labels, a node with k of them is given the k of highest score, as by stage `score`.

File: `metrics.json`. The same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, Stats
from superworkflow.tasks.lib.gnn.estimates import USUAL_CLASSES, feature_values, split_sizes
from superworkflow.tasks.lib.gnn.objective.split_params import SplitParams
from superworkflow.tasks.lib.metrics import LABEL_FIGURES, NUMBER_FIGURES

METHODS = ("majority", "features", "forest", "label_propagation", "end_classes")
NUMBER_METHODS = ("mean", "features", "forest", "neighbor_mean", "end_means")
MOST_JUDGED = 50_000
"""Nodes of a split that are judged at most, the first by their hash."""
MOST_FEATURE_PRODUCTS = 300_000_000
"""Stored feature values of the training rows times classes, at most."""
MOST_ROWS = 20_000
"""Training rows of the logistic regression at most, the first by their hash."""
TREES, MOST_FOREST_CLASSES = 50, 500
"""Trees of a random forest, and classes of its leaves, at most."""
MOST_PROPAGATED = 4_000_000_000
"""Edges times classes times steps of label propagation, at most."""
MOST_CELLS = 50_000_000
"""Nodes times classes of label propagation, at most."""
_AROUND_BYTES = 1 << 16
"""Bytes of a mapped file that the system reads around a row."""
_PROCESS = Process(start_s=2.5, memory_bytes=230 << 20)


def estimate(params: SplitParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Bounded products; rows of features of the nodes that are trained on and judged, and scores of all nodes."""
    graph = inputs.get("graph", {})
    nodes, edges = max(1, int(graph.get("nodes") or 1)), int(graph.get("edges") or 0)
    width, classes = feature_values(graph) / nodes, USUAL_CLASSES
    trained, validated = split_sizes(params.shares, inputs.get("labels", graph), nodes)
    fitted = min(trained, MOST_ROWS)
    rows = min(nodes, fitted + 2 * min(validated, MOST_JUDGED))
    fits = 400.0 * min(width * classes * fitted, MOST_FEATURE_PRODUCTS)
    grown = TREES * min(32.0, 1 + width**0.5) * (fitted + rows)
    spread = min(50.0 * edges * classes, MOST_PROPAGATED) if nodes * classes <= MOST_CELLS else 0.0
    cells = min(nodes * classes, MOST_CELLS)
    mapped = round(min(4 * nodes * width, _AROUND_BYTES * rows))
    return _PROCESS.estimate(
        memory_bytes=mapped + round(8 * rows * width) + 12 * cells + 24 * min(edges, 50_000_000) + 30 * nodes,
        cpu_s=fits / 1e10 + 2e-7 * grown + spread / 1e9 + 1e-6 * nodes,
        output_bytes=1 << 10,
        mapped_bytes=mapped,
    )


STAGE = Stage(
    name="baselines",
    version="3",
    params=SplitParams,
    params_of=("train",),
    inputs={
        "graph": Input("heterograph or holdout_edges dataset: the graph with features and labels"),
        "labels": Input("node_labels dataset: labels of an edge list's nodes", optional=True),
        "subgraphs": Input("sample dataset: subgraphs, of whose seeds the splits are", optional=True),
    },
    run="superworkflow.tasks.baselines.run:run",
    estimate=estimate,
    help="simpler methods on the nodes that a network is judged by",
    metrics=tuple(
        f"{method}_{figure}"
        for methods, figures in ((METHODS, LABEL_FIGURES), (NUMBER_METHODS, NUMBER_FIGURES))
        for method in methods
        for figure in figures
    ),
)
