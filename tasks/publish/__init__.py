"""Stage `publish`: embeddings as a self-contained bundle that a server maps into memory.

The bundle needs neither this project nor Parquet to be read: plain arrays and one small JSON. What the tracker does
with it (logging it as a model, registering and promoting it) is not the stage's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats


class PublishParams(StageParams):
    """Parameters of the publication of embeddings."""

    metric: Literal["cosine", "dot"] = Field(
        default="cosine", description="Similarity that ranks neighbours: cosine or dot."
    )


def estimate(params: PublishParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """From the number of embeddings and their dimensions; vectors pass by in batches, the names stay."""
    given = inputs.get("embeddings", {})
    nodes = int(given.get("rows") or given.get("nodes") or given.get("vertices") or 0)
    dimensions = int(given.get("dimensions") or 128)
    labels = 16 * nodes
    batches = min(40 << 20, 4 * 4 * nodes * dimensions)
    return _PROCESS.estimate(
        memory_bytes=batches + 4 * labels + 11 * nodes,
        cpu_s=nodes * (2e-6 + dimensions * 5e-9),
        output_bytes=nodes * (4 * dimensions + 4 + 16) + labels + (1 << 10),
        stats={"nodes": nodes, "dimensions": dimensions},
    )


_PROCESS = Process(start_s=0.46, memory_bytes=108 << 20)

STAGE = Stage(
    name="publish",
    version="1",
    params=PublishParams,
    inputs={
        "embeddings": Input("embed dataset: the embeddings to publish"),
        "evaluation": Input("evaluate dataset: scores to include in the bundle", optional=True),
    },
    run="superworkflow.tasks.publish.run:run",
    estimate=estimate,
    help="The embeddings as a self-contained model bundle.",
)
