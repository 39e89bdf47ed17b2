"""Stage `recommend`: the items that users would rate highest, of those that they have not rated.

File: `recommendations.parquet` with columns `user` and `item`, `rank` int32 from 1, and `rating` float32, which is
predicted, within the range of the ratings; the `k` items of each user, best first, users by their names. By default
of 100,000 users, those with most ratings. Of factors with slices of time ratings are those of the last slice.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

_PROCESS = Process(start_s=0.9, memory_bytes=190 << 20)
_BLOCK_BYTES = 64 << 20


class RecommendParams(StageParams):
    """Parameters of recommendations."""

    k: int = Field(default=10, ge=1, le=1000, description="Items that are recommended to a user at most, 1 to 1000.")
    users: int = Field(
        default=100_000,
        ge=1,
        description="Users that items are recommended to at most, 1 or more: those with most ratings.",
    )


def estimate(params: RecommendParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """A product of factors for each user and item; a tenth as many items as users before both are counted."""
    found = inputs.get("factors", {})
    vertices, width = int(found.get("vertices") or 0), int(found.get("factors") or 10)
    counts = int(found.get("users") or vertices), int(found.get("items") or vertices // 10)
    users = min(params.users, counts[0])
    pairs, rows = users * counts[1], users * min(params.k, max(1, counts[1]))
    return _PROCESS.estimate(
        memory_bytes=min(_BLOCK_BYTES, 8 * pairs) + (8 * width + 100) * sum(counts) + 60 * rows,
        cpu_s=pairs * (2.0 * width / 2e10 + 1e-9) + 1e-6 * rows, output_bytes=12 * rows, stats={"rows": rows},
        parallel=0.6,
    )  # fmt: skip


STAGE = Stage(
    name="recommend",
    version="1",
    params=RecommendParams,
    inputs={"factors": Input("publish_latent_factors dataset: factors of users and items, and the ratings' items")},
    run="superworkflow.tasks.recommend.run:run",
    estimate=estimate,
    help="the items that users would rate highest",
)
