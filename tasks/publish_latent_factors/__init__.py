"""Stage `publish_latent_factors`: the factors of users and of items, as a table each and as a model that is served.

Files: `users.parquet` and `items.parquet` with columns `node`, named as in the ratings, and `factor`, a list of
float32. A rating is predicted by the product of two lists. Of factors with slices of time also `slices.parquet`, a row
for each slice in their order, with columns `start`, its first time, null of the first slice, and `factor`: a rating is
predicted by the sum of the products of three lists. The model answers for the last slice.

The model, by rows in ascending byte order of the names: `user_factors.npy` and `item_factors.npy` float32 [n, factors];
their names in `user_nodes.npy` and `user_node_offsets.npy` as `lib.model_bundle` writes them, and so on; `rated.npy`
int32, the rows of the items that each user has rated, ascending, cut at `rated_offsets.npy` int64 [users + 1]; and
`bundle.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from superworkflow.infra.contract.stage import Estimate, Input, Resources, Stage, StageParams, Stats
from superworkflow.tasks.publish_fields import estimate as estimate_of_fields


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """All factors twice, and the ratings' items, which are sorted."""
    made, edges = estimate_of_fields(params, inputs, resources), int(inputs.get("graph", {}).get("edges") or 0)
    factors = int(inputs.get("values", {}).get("bytes") or 0)
    return replace(
        made, memory_bytes=made.memory_bytes + factors + 28 * edges, cpu_s=made.cpu_s + 1e-7 * edges,
        output_bytes=made.output_bytes + factors + 4 * edges,
    )  # fmt: skip


STAGE = Stage(
    name="publish_latent_factors",
    version="3",
    params=StageParams,
    inputs={
        "graph": Input("index dataset of ratings"),
        "values": Input("als dataset of that graph"),
        "slices": Input("time_slices dataset of that graph, if the factors have slices", optional=True),
    },
    run="superworkflow.tasks.publish_latent_factors.run:run",
    estimate=estimate,
    help="factors of users and of items, as a table each and as a model",
)
