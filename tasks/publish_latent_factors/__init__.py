"""Stage `publish_latent_factors`: the factors of users and of items, as a table each.

Files: `users.parquet` and `items.parquet` with columns `node`, named as in the ratings, and `factor`, a list of
float32. A rating is predicted by the product of two lists.
"""

from __future__ import annotations

from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.stage import Input, Stage
from superworkflow.tasks.publish_fields import estimate

STAGE = Stage(
    name="publish_latent_factors",
    params=StageParams,
    inputs={"graph": Input("index dataset of ratings"), "values": Input("als dataset of that graph")},
    run="superworkflow.tasks.publish_latent_factors.run:run",
    estimate=estimate,
    help="factors of users and of items, as a table each",
)
