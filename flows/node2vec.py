"""Node2Vec: vertex embeddings from biased random walks (Grover and Leskovec, 2016)."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from superworkflow.infra.contract.diagram import Diagram, Node
from superworkflow.infra.contract.metrics import Metric
from superworkflow.infra.contract.outcomes import Drift, Model, Picture, Rescoring
from superworkflow.infra.contract.panel import Panel
from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.superworkflow import Export, Flag, Query, Superworkflow
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.tasks import drift as compare
from superworkflow.tasks import embed, evaluate, holdout, index, label, prepare, publish, walk
from superworkflow.tasks.lib.formats import IN_MEMORY


class Node2VecOptions(StageParams):
    """Options of the pipeline itself."""

    link_prediction: bool = Field(
        default=True,
        description="Also evaluate by link prediction: holds out half of the edges and embeds the rest, "
        "which about doubles the work. Without labels this is the only evaluation.",
    )


def diagram(flow: Diagram, edges: Source, labels: Source | None, initial: Dataset | None) -> None:
    """Index, walk, prepare, embed, evaluate, publish; link prediction also embeds a graph with held-out edges.

    Labels are matched right after index, so that an unusable file ends the run early.
    """
    graph = flow.stage(index.STAGE, edges=edges)
    matched = flow.stage(label.STAGE, graph=graph, labels=labels) if labels else None
    embeddings = embedding(flow, graph, initial)
    hidden = held_out = None
    if flow.option("link_prediction"):
        hidden = flow.stage(holdout.STAGE, graph=graph)
        held_out = embedding(flow, hidden, prefix="holdout-")
    evaluation = None
    if matched or hidden:
        evaluation = flow.stage(
            evaluate.STAGE, graph=graph, embeddings=embeddings, labels=matched,
            holdout=hidden, holdout_embeddings=held_out,
        )  # fmt: skip
    flow.stage(publish.STAGE, embeddings=embeddings, evaluation=evaluation)


def embedding(flow: Diagram, graph: Node, initial: Dataset | None = None, prefix: str = "") -> Node:
    """Walk, prepare and embed: from a graph to its embeddings.

    The held-out graph never starts from earlier embeddings: they may have seen the hidden edges.
    """
    walks = flow.stage(walk.STAGE, name=f"{prefix}walk", graph=graph)
    vocabulary = flow.stage(prepare.STAGE, name=f"{prefix}prepare", graph=graph, walks=walks)
    return flow.stage(
        embed.STAGE, name=f"{prefix}embed", graph=graph, walks=walks, vocabulary=vocabulary, initial=initial
    )


def again(flow: Diagram, nodes: Mapping[str, Node], model: Mapping[str, Dataset]) -> Node | tuple[Node, Node] | None:
    """Score the champion's embeddings on this run's labels and splits.

    Without labels, score the champion and this run on those hidden edges that the champion was not trained on.
    """
    if "label" in nodes and "embed" in model:
        return flow.stage(
            evaluate.STAGE, name="champion-evaluate", graph=nodes["index"], embeddings=model["embed"],
            labels=nodes["label"],
        )  # fmt: skip
    if "label" in nodes or "holdout" not in nodes or not {"embed", "holdout", "holdout-embed"} <= set(model):
        return None
    champion = flow.stage(
        evaluate.STAGE, name="champion-evaluate", graph=nodes["index"], embeddings=model["embed"],
        holdout=nodes["holdout"], holdout_embeddings=model["holdout-embed"], seen=model["holdout"],
    )  # fmt: skip
    challenger = flow.stage(
        evaluate.STAGE, name="challenger-evaluate", graph=nodes["index"], embeddings=nodes["embed"],
        holdout=nodes["holdout"], holdout_embeddings=nodes["holdout-embed"], seen=model["holdout"],
    )  # fmt: skip
    return champion, challenger


def drift(flow: Diagram, nodes: Mapping[str, Node], before: Mapping[str, Dataset]) -> Node | None:
    """Drift of the graph, and of its embeddings if there are any, from those of the champion."""
    if "index" not in before:
        return None
    return flow.stage(
        compare.STAGE, graph=nodes["index"], earlier_graph=before["index"],
        embeddings=nodes["embed"], earlier_embeddings=before.get("embed"),
    )  # fmt: skip


SMALL = {"label": {"resources": {"cpu": 1}}, "publish": {"resources": {"cpu": 1, "memory": "1Gi"}}}
ON_SPARK = {"engine": "spark"}

SUPERWORKFLOW = Superworkflow(
    name="node2vec",
    help="vertex embeddings from biased random walks",
    stages=(
        index.STAGE,
        label.STAGE,
        walk.STAGE,
        prepare.STAGE,
        embed.STAGE,
        holdout.STAGE,
        evaluate.STAGE,
        publish.STAGE,
        compare.STAGE,
    ),
    sources={
        "edges": "an edge list: CSV, TSV, whitespace-separated or Parquet, optionally gzipped; or a folder "
        "of part files",
        "labels": "node labels: rows `node,label`; a node with several labels has several rows; or a folder "
        "of part files",
        "initial": "earlier run to start training from, or the folder of its embed dataset; nodes are matched by label",
    },
    optional=frozenset({"labels", "initial"}),
    datasets=frozenset({"initial"}),
    diagram=diagram,
    options=Node2VecOptions,
    flags={"directed": Flag("index.directed", "edges have a direction")},
    variants={
        "laptop": {"prepare": {"resources": {"memory": "2Gi"}}, **SMALL},
        "spark": {**dict.fromkeys(("index", "walk", "prepare", "holdout-walk", "holdout-prepare"), ON_SPARK), **SMALL},
    },
    outputs={"embeddings": ("embed", "embeddings.parquet")},
    drift=Drift(("index", "embed"), drift),
    in_memory=IN_MEMORY,
    queries={"neighbors": Query("publish", "superworkflow.tasks.publish.queries:neighbors")},
    exports={"word2vec": Export("embed", "superworkflow.tasks.embed.export:write_word2vec", "word2vec.txt")},
    outcomes=(
        Metric(
            "evaluate", "macro_f1", headline=True, uncertainty="macro_f1_std", source="labels",
            options={"link_prediction": False}, optional=True,
        ),
        Metric(
            "evaluate", "micro_f1", headline=True, uncertainty="micro_f1_std", source="labels",
            options={"link_prediction": False}, optional=True,
        ),
        Metric("evaluate", "link_auc@hadamard", headline=True, optional=True, baselines="evaluate"),
        Picture("evaluate", "superworkflow.tasks.evaluate.picture:draw", "projection", optional=True),
        Panel(
            "embed", "superworkflow.tasks.lib.panels.node_projection:projection", "embeddings", title="Embeddings",
            others=("index", "label", "evaluate"),
        ),
        Panel(
            "evaluate", "superworkflow.tasks.evaluate.panels:judged", "evaluation", title="Evaluation", optional=True
        ),
        Panel("index", "superworkflow.tasks.lib.panels.graph_profile:profile", "graph", title="Graph",
              others=("label",)),
        Model(
            "publish", code="superworkflow.tasks.publish.serving", card="superworkflow.tasks.publish.model:card",
            name="node2vec-embeddings", warm_start={"initial": "embed"},
            rescore=Rescoring("evaluate", ("embed", "holdout", "holdout-embed"), again),
        ),
    ),
)  # fmt: skip
