"""Stage `score_ratings`: predicted ratings next to held-out ones.

A prediction is the product of the factors of user and item, with slices of time that of user, item and slice, within
the range of the ratings that these were learned from. Where the graph lacks the user or the item it is the mean of
those ratings with the bias of the other one; such rows are counted, in the figures and as `unknown_rows`. Held-out
ratings are read as the others were, but not cut by time. With the input `seen`, those of its pairs are left out.

Figures: `rmse@test` and `mae@test`; of three simpler methods `mean_…`, the mean rating, `item_mean_…`, that of the
item, and `biases_…`, the mean with the damped biases of user and item. A warning says if one of them is better. Files:
`metrics.json`; `predictions.parquet` with columns `user`, `item`, `rating`, `predicted`, `known`, with slices also
`time`, a row for each held-out rating.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, Stats
from superworkflow.tasks.index.two_sets import RatingsParams

METHODS = ("", "mean_", "item_mean_", "biases_")
_PROCESS = Process(start_s=0.8, memory_bytes=250 << 20)


def estimate(params: RatingsParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """The held-out rows, the factors and the graph's nodes are in memory."""
    vertices, rows = (
        int(inputs.get("graph", {}).get("vertices") or 0),
        int(inputs.get("test", {}).get("bytes") or 0) // 12,
    )
    return _PROCESS.estimate(
        memory_bytes=200 * rows + int(inputs.get("values", {}).get("bytes") or 0) + 60 * vertices, cpu_s=2e-6 * rows,
        output_bytes=16 * rows, stats={"rows": rows},
    )  # fmt: skip


STAGE = Stage(
    name="score_ratings",
    version="3",
    params=RatingsParams,
    params_of=("index",),
    inputs={
        "graph": Input("index dataset of ratings"),
        "values": Input("als dataset of that graph"),
        "slices": Input("time_slices dataset of that graph, if the factors have slices", optional=True),
        "seen": Input("index dataset of ratings: pairs that it has are not judged by", optional=True),
        "test": Input("held-out ratings, in the form of the others; or a folder of part files", file=True, parts=True),
    },
    run="superworkflow.tasks.score_ratings.run:run",
    estimate=estimate,
    metrics=tuple(method + figure for method in METHODS for figure in ("rmse", "mae")),
    help="predicted ratings next to held-out ones",
)
