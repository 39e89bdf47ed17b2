"""GNN: a graph neural network that predicts classes or numbers of nodes or edges, or links, in mini-batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from superworkflow.flows.node_rescoring import scored_again
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.diagram import Diagram, Node
from superworkflow.infra.contract.metrics import Metric
from superworkflow.infra.contract.outcomes import Model, Rescoring
from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.superworkflow import Export, Flag, Superworkflow
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.tasks import (
    aggregate,
    baselines,
    baselines_links,
    correct,
    correct_links,
    feature_matrix,
    heterograph,
    holdout_edges,
    holdout_links,
    infer,
    node_labels,
    partition,
    predict_links,
    publish_predictions,
    score,
    score_links,
    shard,
    train,
)
from superworkflow.tasks.lib import panels
from superworkflow.tasks.lib.formats import IN_MEMORY
from superworkflow.tasks.lib.gnn.model.config import read_shape
from superworkflow.tasks.lib.metrics import NUMBER_FIGURES

CLASSIFICATION, LINKS = "node_classification", "link_prediction"
EDGE_TASKS = ("edge_classification", "edge_regression")


class GnnOptions(StageParams):
    """Options of the pipeline itself."""

    task: Literal["node_classification", "link_prediction"] = Field(
        default="node_classification",
        description="Task to learn: node_classification, or what train.task says of nodes or edges; link_prediction "
        "needs no labels.",
    )
    partitioned: bool = Field(
        default=False,
        description="Partition the graph for training on a worker group. The trained network is the same dataset "
        "either way.",
    )
    correct: bool = Field(
        default=True,
        description="Correct the predictions of nodes by the errors at labelled nodes nearby (Correct and Smooth), and "
        "scores of links by short paths between their nodes.",
    )


def diagram(
    flow: Diagram,
    graph: Source | None,
    edges: Source | None,
    features: Source | None,
    labels: Source | None,
    links: Source | None,
    subgraphs: Dataset | None,
) -> None:
    """Heterograph, train, infer, correct, score, publish; links or labelled edges that are judged are held out first.

    With a schema, the columns of nodes that are features become one matrix for all stages after it.
    Labels of an edge list are apart from the graph, so that other labels leave it and the means as they are.
    Baselines depend on the graph and its splits alone, so that all networks share them.
    Means of features are computed first if the network reads them. Partitioning does not change the trained network.
    """
    is_links = flow.option("task") == LINKS
    of_edges = flow.parameter("train.task") in EDGE_TASKS
    check_sources(graph, edges, features, labels, is_links, of_edges)
    if of_edges:
        check_edges(labels, is_links, flow.parameter("train.label"))
    if links is not None and not is_links:
        raise UserError("links to validate and test are of link prediction", where="links", value=links.uri,
                        remedy=f"Leave it out, or set gnn.task={LINKS}")  # fmt: skip
    elsewhere = f"{flow.parameter('train.label')},{flow.parameter('train.split_by')}" if of_edges else ""
    typed = flow.stage(
        heterograph.STAGE, defaults={"other_columns": elsewhere}, graph=graph, edges=edges, features=features
    )
    if graph is not None:
        typed = flow.stage(feature_matrix.STAGE, graph=typed)
    classes = None if labels is None else flow.stage(node_labels.STAGE, graph=typed, labels=labels)
    learned = flow.stage(holdout_links.STAGE, graph=typed, links=links) if is_links else typed
    if of_edges:
        learned = flow.stage(holdout_edges.STAGE, graph=typed, edges=edges)
    shards = None
    if flow.option("partitioned"):
        parts = flow.stage(partition.STAGE, graph=learned)
        shards = flow.stage(shard.STAGE, graph=learned, partition=parts)
    sums = None
    if flow.parameter("train.sums_features") and (graph or features):
        sums = flow.stage(aggregate.STAGE, graph=learned, shards=shards)
    network = flow.stage(train.STAGE, graph=learned, labels=classes, sums=sums, shards=shards, subgraphs=subgraphs)
    predictions = flow.stage(
        infer.STAGE, graph=learned, labels=classes, network=network, shards=shards, subgraphs=subgraphs
    )
    corrected = None
    if is_links:
        simple = flow.stage(baselines_links.STAGE, graph=learned)
        if flow.option("correct"):
            corrected = flow.stage(correct_links.STAGE, predictions=predictions, graph=learned)
        scores = flow.stage(
            score_links.STAGE, graph=learned, predictions=predictions, corrected=corrected, baselines=simple
        )
        flow.stage(predict_links.STAGE, graph=learned, predictions=predictions, corrected=corrected)
    else:
        if flow.option("correct") and not of_edges:
            corrected = flow.stage(correct.STAGE, predictions=predictions, network=network, graph=learned)
        simple = flow.stage(baselines.STAGE, graph=learned, labels=classes, subgraphs=subgraphs)
        scores = flow.stage(score.STAGE, predictions=corrected or predictions, baselines=simple)
    flow.stage(
        publish_predictions.STAGE, predictions=predictions, corrected=corrected, network=network, graph=learned,
        scores=scores,
    )  # fmt: skip


def again(flow: Diagram, nodes: Mapping[str, Node], model: Mapping[str, Dataset]) -> tuple[Node, Node] | None:
    """Score the champion and this run's network on this run's graph, on nodes that the champion was not trained on.

    None for a champion with node embeddings, which exist for the nodes of its own graph only.
    """
    if not {"train", "infer"} <= set(model) or read_shape(model["train"]).embedded():
        return None
    graph = nodes.get("holdout_edges", nodes.get("feature_matrix", nodes["heterograph"]))
    found = flow.stage(
        infer.STAGE, name="champion-infer", graph=graph,
        network=model["train"], splits=nodes["train"], shards=nodes.get("shard"), labels=nodes.get("node_labels"),
    )  # fmt: skip
    return scored_again(flow, nodes, found, model["train"], graph, model["infer"])


def check_sources(
    graph: Source | None,
    edges: Source | None,
    features: Source | None,
    labels: Source | None,
    links: bool,
    of_edges: bool,
) -> None:
    """Refuse combinations of sources that do not define a graph to learn from.

    Raises:
        UserError: names the sources to give.
    """
    if (graph is None) == (edges is None):
        raise UserError("gnn needs exactly one graph", where="graph" if graph is None else "edges",
                        remedy="Give either --edges FILE with --labels FILE, or --graph FILE")  # fmt: skip
    if graph is not None and (features or labels):
        raise UserError(
            "with a schema, features and labels are columns of its tables",
            where="features" if features else "labels", value=(features or labels).uri,  # type: ignore[union-attr]
            remedy="Leave it out, and name the column of labels with --label SET.FEATURE",
        )  # fmt: skip
    if links and labels is not None:
        raise UserError("link prediction uses no labels of nodes", where="labels", value=labels.uri,
                        remedy=f"Leave it out, or set gnn.task={CLASSIFICATION}")  # fmt: skip
    if edges is not None and labels is None and not links and not of_edges:
        raise UserError("node classification needs labels", where="labels",
                        remedy=f"Give --labels FILE, or set gnn.task={LINKS}")  # fmt: skip


def check_edges(labels: Source | None, links: bool, label: str) -> None:
    """Refuse what does not say which labels of edges are to be learned.

    Raises:
        UserError: names the parameter or source.
    """
    if links:
        raise UserError("labels of edges and links are two tasks", where="gnn.task", value=LINKS,
                        remedy="Leave gnn.task out, or train.task")  # fmt: skip
    if labels is not None:
        raise UserError("labels of edges are in the edge list itself", where="labels", value=labels.uri,
                        remedy="Leave it out, and name the column with --label COLUMN")  # fmt: skip
    if not label:
        raise UserError("edges need labels to learn", where="train.label",
                        remedy="Give --label COLUMN of the edge list, or --label SET.FEATURE of a schema")  # fmt: skip


STAGES = (
    heterograph.STAGE, feature_matrix.STAGE, node_labels.STAGE, holdout_links.STAGE, holdout_edges.STAGE,
    aggregate.STAGE, partition.STAGE, shard.STAGE, train.STAGE, infer.STAGE, correct.STAGE, correct_links.STAGE,
    baselines.STAGE, baselines_links.STAGE, score.STAGE, score_links.STAGE, predict_links.STAGE,
    publish_predictions.STAGE,
)  # fmt: skip
CLASSES = {"task": CLASSIFICATION}
OF_LINKS: dict[str, bool | str] = {"auc@test": True, "mrr@test": "baselines_links.relation_frequency_mrr@test"}
"""Figures that models of links are promoted by; MRR in runs on triples, which alone report that of frequencies."""
SMALL = {"resources": {"cpu": 1, "memory": "1Gi"}}

SUPERWORKFLOW = Superworkflow(
    name="gnn",
    help="a graph neural network that predicts classes or numbers of nodes or edges, or links",
    stages=STAGES,
    sources={
        "graph": "a schema of tables of nodes and edges (schema.pbtxt), its folder, or DGL's metadata.json",
        "edges": "an edge list instead of a schema: CSV, TSV, whitespace-separated or Parquet, optionally "
        "gzipped; or a folder of part files",
        "features": "with an edge list, features of its nodes: CSV or TSV with a header, or Parquet, a row for each "
        "node; or a folder of part files",
        "labels": "with an edge list, labels of its nodes: rows `node,label` or `node,label,split`; or a folder "
        "of part files",
        "links": "with gnn.task=link_prediction, the links to validate and test instead of drawn ones: CSV or "
        "TSV with a header, or Parquet, rows `source,target,split`, and perhaps `label`, 1 for a link and 0 for a pair "
        "without one",
        "subgraphs": "with train.sampler=subgraphs, the dataset of stage sample of a run of `subgraphs` on this graph",
    },
    optional=frozenset({"graph", "edges", "features", "labels", "links", "subgraphs"}),
    datasets=frozenset({"subgraphs"}),
    diagram=diagram,
    options=GnnOptions,
    flags={
        "label": Flag(
            "train.label", "with a schema the feature to predict; of an edge list's edges the column", "SET.FEATURE"
        ),
        "directed": Flag("heterograph.directed", "edges of an edge list have a direction"),
    },
    variants={
        "laptop": {"score": SMALL, "publish_predictions": SMALL},
        "spark": {"score": SMALL, "publish_predictions": SMALL},
    },
    outputs={
        "embeddings": ("infer", "embeddings.parquet"),
        "predictions": (("correct", "correct_links", "infer"), "predictions.parquet"),
        "network": ("train", "model.safetensors"),
        "links": ("predict_links", predict_links.LINKS),
    },
    in_memory=IN_MEMORY,
    exports={"pyg": Export("train", "superworkflow.tasks.train.export:write_pyg", "pyg.safetensors")},
    outcomes=(
        *(
            Metric(
                "score", f"{name}@{split}", headline=name == "accuracy", promotes=(name, split) == ("accuracy", "test"),
                baselines=("correct", "baselines"), options=CLASSES, optional=True,
            )
            for name in ("accuracy", "macro_f1", "micro_f1") for split in ("validation", "test")
        ),
        *(
            Metric("score", f"{name}@{split}", options=CLASSES, optional=True)
            for name in ("roc_auc", "average_precision") for split in ("validation", "test")
        ),
        *(
            Metric(
                "score", f"{name}@{split}", "maximize" if name == "r2" else "minimize", headline=name == "rmse",
                promotes=(name, split) == ("rmse", "test"), baselines=("correct", "baselines"), options=CLASSES,
                needs={"train.task": ("regression", "edge_regression")}, optional=True,
            )
            for name in NUMBER_FIGURES for split in ("validation", "test")
        ),
        Metric("score", "calibration_error@validation", "minimize", options=CLASSES, optional=True),
        Metric("score", "calibration_error@test", "minimize", options=CLASSES, optional=True),
        *(
            Metric(
                "score_links", f"{name}@{split}", headline=name == "auc",
                baselines=("score_links", "baselines_links"),
                promotes=OF_LINKS.get(f"{name}@{split}", False), options={"task": LINKS}, optional=True,
            )
            for name in ("auc", "ap", "mrr", "hits_at_1", "hits_at_3", "hits_at_k", "direction")
            for split in ("validation", "test")
        ),
        panels.CLASSES,
        panels.LINKS,
        panels.PREDICTED_LINKS,
        panels.PROJECTION,
        panels.LABELLED_GRAPH,
        Model(
            "publish_predictions", code="superworkflow.tasks.publish.serving",
            card="superworkflow.tasks.publish_predictions.model:card", name="gnn-predictions",
            rescore=Rescoring("score", ("train", "infer"), again),
        ),
    ),
)  # fmt: skip
