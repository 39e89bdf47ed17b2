"""GNN: a graph neural network that classifies nodes, trained in mini-batches on one machine."""

from __future__ import annotations

from superworkflow.infra.diagram import Diagram, Flag, Superworkflow
from superworkflow.infra.errors import UserError
from superworkflow.infra.outcomes import Metric, Model
from superworkflow.infra.storage.source import Source
from superworkflow.tasks import aggregate, heterograph, infer, publish_predictions, score, train


def diagram(
    flow: Diagram, graph: Source | None, edges: Source | None, features: Source | None, labels: Source | None
) -> None:
    """Heterograph, train, infer, score, publish; means of features are made first where the network reads them."""
    check_sources(graph, edges, features, labels)
    typed = flow.stage(heterograph.STAGE, graph=graph, edges=edges, features=features, labels=labels)
    sums = None
    if flow.parameter("train.sums_features") and (graph or features):
        sums = flow.stage(aggregate.STAGE, graph=typed)
    network = flow.stage(train.STAGE, graph=typed, sums=sums)
    predictions = flow.stage(infer.STAGE, graph=typed, network=network)
    scores = flow.stage(score.STAGE, predictions=predictions)
    flow.stage(publish_predictions.STAGE, predictions=predictions, scores=scores)


def check_sources(graph: Source | None, edges: Source | None, features: Source | None, labels: Source | None) -> None:
    """Refuse sources that make no graph with labels.

    Raises:
        UserError: says which to give.
    """
    if (graph is None) == (edges is None):
        raise UserError("gnn needs a graph, in one form", where="graph" if graph is None else "edges",
                        remedy="Give either --edges FILE with --labels FILE, or --graph FILE")  # fmt: skip
    if edges is not None and labels is None:
        raise UserError("gnn needs labels of nodes to learn", where="labels", remedy="Give --labels FILE")
    if graph is not None and (features or labels):
        raise UserError(
            "features and labels of a graph with a schema are columns of its tables",
            where="features" if features else "labels", value=(features or labels).uri,  # type: ignore[union-attr]
            remedy="Leave it out, and name the column of labels with --label SET.FEATURE",
        )  # fmt: skip


STAGES = (heterograph.STAGE, aggregate.STAGE, train.STAGE, infer.STAGE, score.STAGE, publish_predictions.STAGE)
SMALL = {"resources": {"cpu": 1, "memory": "1Gi"}}

SUPERWORKFLOW = Superworkflow(
    name="gnn",
    help="a graph neural network that classifies nodes",
    stages=STAGES,
    sources={
        "graph": "a schema of tables of nodes and edges (schema.pbtxt), or the folder that has it",
        "edges": "instead of a schema an edge list: CSV, TSV, whitespace-separated or Parquet, optionally gzipped",
        "features": "with an edge list, features of its nodes: CSV with a header or Parquet, a row for each node",
        "labels": "with an edge list, labels of its nodes: rows `node,label` or `node,label,split`",
    },
    optional=frozenset({"graph", "edges", "features", "labels"}),
    diagram=diagram,
    flags={"label": Flag("train.label", "with a schema, the feature of nodes that is learned", "SET.FEATURE")},
    variants={
        "laptop": {"score": SMALL, "publish_predictions": SMALL},
        "spark": {"score": SMALL, "publish_predictions": SMALL},
    },
    outputs={
        "embeddings": ("infer", "embeddings.parquet"),
        "predictions": ("infer", "predictions.parquet"),
        "network": ("train", "model.safetensors"),
    },
    outcomes=(
        Metric("score", "accuracy@validation", headline=True),
        Metric("score", "accuracy@test", headline=True),
        Metric("score", "macro_f1@validation"),
        Metric("score", "macro_f1@test"),
        Metric("score", "micro_f1@validation"),
        Metric("score", "micro_f1@test"),
        Model(
            "publish_predictions", code="superworkflow.tasks.publish_predictions.serving",
            card="superworkflow.tasks.publish_predictions.model:card", name="gnn-predictions",
        ),
    ),
)  # fmt: skip
