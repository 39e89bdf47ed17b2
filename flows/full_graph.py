"""Full graph: a graph neural network of one edge list, trained on all of it at once, without sampling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import Field

from superworkflow.flows.node_rescoring import scored_again
from superworkflow.infra.contract.diagram import Diagram, Node
from superworkflow.infra.contract.metrics import Metric
from superworkflow.infra.contract.outcomes import Model, Picture, Rescoring
from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.superworkflow import Flag, Superworkflow
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.tasks import (
    aggregate,
    baselines,
    correct,
    heterograph,
    infer,
    node_labels,
    partition,
    publish_predictions,
    score,
    train_full,
)
from superworkflow.tasks.lib import panels
from superworkflow.tasks.lib.formats import IN_MEMORY

SUMS = replace(aggregate.STAGE, params=aggregate.GcnSumsParams)


class FullGraphOptions(StageParams):
    """Options of the pipeline itself."""

    partitioned: bool = Field(
        default=False,
        description="Partition the graph, so that intervals of vertices, and with them graph servers, read few rows of "
        "each other. It changes the order in which numbers are added, and so the last bits of the network.",
    )
    correct: bool = Field(
        default=True,
        description="Correct the predictions by the errors at labelled nodes nearby (Correct and Smooth).",
    )


def diagram(flow: Diagram, edges: Source, features: Source, labels: Source, split: Source | None) -> None:
    """Heterograph, sums of features for GCN, parts, training, inference, correction, scores, publication."""
    graph = flow.stage(heterograph.STAGE, edges=edges, features=features)
    classes = flow.stage(node_labels.STAGE, graph=graph, labels=labels, split=split)
    sums = None
    if flow.parameter("train_full.model") == "gcn":
        sums = flow.stage(SUMS, graph=graph)
    parts = flow.stage(partition.STAGE, graph=graph) if flow.option("partitioned") else None
    network = flow.stage(train_full.STAGE, graph=graph, labels=classes, sums=sums, parts=parts)
    predictions = flow.stage(infer.STAGE, graph=graph, labels=classes, network=network)
    corrected = None
    if flow.option("correct"):
        corrected = flow.stage(correct.STAGE, predictions=predictions, network=network, graph=graph)
    simple = flow.stage(baselines.STAGE, graph=graph, labels=classes)
    scores = flow.stage(score.STAGE, predictions=corrected or predictions, baselines=simple)
    flow.stage(
        publish_predictions.STAGE, predictions=predictions, corrected=corrected, network=network, graph=graph,
        scores=scores,
    )  # fmt: skip


def again(flow: Diagram, nodes: Mapping[str, Node], model: Mapping[str, Dataset]) -> tuple[Node, Node] | None:
    """Score the champion and this run's network on this run's graph, on nodes that the champion was not trained on."""
    if not {"train_full", "infer"} <= set(model):
        return None
    found = flow.stage(
        infer.STAGE, name="champion-infer", graph=nodes["heterograph"], network=model["train_full"],
        splits=nodes["train_full"], labels=nodes["node_labels"],
    )  # fmt: skip
    return scored_again(flow, nodes, found, model["train_full"], nodes["heterograph"], model["infer"])


SMALL = {"resources": {"cpu": 1, "memory": "1Gi"}}

SUPERWORKFLOW = Superworkflow(
    name="full_graph",
    help="a graph neural network that predicts classes of nodes, trained on the whole graph without sampling",
    stages=(
        heterograph.STAGE, node_labels.STAGE, SUMS, partition.STAGE, train_full.STAGE, infer.STAGE, correct.STAGE,
        baselines.STAGE, score.STAGE, publish_predictions.STAGE,
    ),
    sources={
        "edges": "an edge list: CSV, TSV, whitespace-separated or Parquet, optionally gzipped; or a folder of part "
        "files",
        "features": "features of its nodes: CSV or TSV with a header, or Parquet, a row for each node; or a folder of "
        "part files",
        "labels": "labels of its nodes: rows `node,label` or `node,label,split`; or a folder of part files",
        "split": "splits of its nodes, where the labels have none: rows `node,split`, with train, validation and test",
    },
    optional=frozenset({"split"}),
    diagram=diagram,
    options=FullGraphOptions,
    flags={"directed": Flag("heterograph.directed", "edges of the edge list have a direction")},
    variants={
        "laptop": {"score": SMALL, "publish_predictions": SMALL},
        "spark": {"score": SMALL, "publish_predictions": SMALL},
    },
    outputs={
        "embeddings": ("infer", "embeddings.parquet"),
        "predictions": (("correct", "infer"), "predictions.parquet"),
        "network": ("train_full", "model.safetensors"),
        "timeline": ("train_full", "timeline.parquet"),
    },
    in_memory=IN_MEMORY,
    outcomes=(
        panels.CLASSES,
        panels.PROJECTION,
        panels.LABELLED_GRAPH,
        *(
            Metric(
                "score", f"{name}@{split}", headline=name == "accuracy", promotes=(name, split) == ("accuracy", "test"),
                baselines=("correct", "baselines"), optional=True,
            )
            for name in ("accuracy", "macro_f1", "micro_f1") for split in ("validation", "test")
        ),
        Model(
            "publish_predictions", code="superworkflow.tasks.publish.serving",
            card="superworkflow.tasks.publish_predictions.model:card", name="full-graph-predictions",
            rescore=Rescoring("score", ("train_full", "infer"), again),
        ),
        Picture("train_full", "superworkflow.tasks.train_full.picture:draw", "pipeline"),
    ),
)  # fmt: skip
