"""Stage `publish_predictions`: predictions as a self-contained bundle that a server maps into memory.

The bundle needs neither this project nor Parquet nor torch to be read: plain arrays, small JSON documents, and the
network's weights as safetensors. With the network it predicts new nodes too (`new_nodes`), at the cost of a row for
each node and layer: nodes × width of the features + nodes × `hidden` × (layers - 1) numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats
from superworkflow.tasks.lib.gnn.estimates import USUAL_CLASSES, feature_values

_PROCESS = Process(start_s=0.4, memory_bytes=120 << 20)


class PublishPredictionsParams(StageParams):
    """Parameters of the publication of predictions."""

    inductive: bool = Field(
        default=True,
        description="Include the network and what its layers read of all nodes, by which the model predicts new nodes "
        "from features and neighbours.",
    )
    most_bytes: int = Field(
        default=4 << 30, ge=0,
        description="Most bytes of the probabilities of all classes and of what new nodes need, 0 or more; rows that "
        "do not fit as float32 are float16, and what does not fit then is left out, which the log says.",
    )  # fmt: skip


def estimate(params: PublishPredictionsParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """From the number of predictions, and of rows for new nodes."""
    given, network, graph = (inputs.get(name, {}) for name in ("predictions", "network", "graph"))
    nodes = int(given.get("nodes") or 0)
    classes = int(given.get("classes") or USUAL_CLASSES)
    rows = 4 * nodes * classes * (2 if "corrected" in inputs else 1) if network else 0
    if params.inductive and network:
        inner = int(network.get("hidden") or 256) * (int(network.get("layers") or 2) - 1)
        values = feature_values(graph) + int(graph.get("nodes") or nodes) * inner
        rows += 4 * values + 4 * int(network.get("parameters") or 0)
    rows = min(rows, params.most_bytes)
    paths = 80 * int(graph.get("edges") or 0) if "corrected" in inputs and graph.get("links") else 0
    return _PROCESS.estimate(
        memory_bytes=100 * nodes + paths, cpu_s=2e-6 * nodes + 2e-9 * rows, output_bytes=(1 << 10) + 36 * nodes + rows,
        stats={"nodes": nodes},
    )  # fmt: skip


STAGE = Stage(
    name="publish_predictions",
    version="4",
    params=PublishPredictionsParams,
    inputs={
        "predictions": Input("infer dataset: the predictions to publish"),
        "corrected": Input("correct or correct_links dataset: the same predictions, corrected", optional=True),
        "network": Input("train dataset: the network, for all classes and for new nodes", optional=True),
        "graph": Input("heterograph or holdout_links dataset: the graph, for new nodes", optional=True),
        "scores": Input("score dataset: what they are worth", optional=True),
    },
    run="superworkflow.tasks.publish_predictions.run:run",
    estimate=estimate,
    help="predictions as a self-contained model bundle",
)
