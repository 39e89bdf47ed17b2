"""The work of stage `recommend`."""

from __future__ import annotations

import numba as nb
import numpy as np
import pyarrow as pa

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.kernels.largest import largest_left
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.metrics.ranks import TrueLinks, products
from superworkflow.tasks.lib.model_bundle import sorted_order
from superworkflow.tasks.recommend import RecommendParams

load_kernels_fast()
RECOMMENDATIONS = "recommendations.parquet"
_BLOCK_BYTES = 32 << 20
_ROW_GROUP = 1 << 17


def run(job: StageRun[RecommendParams]) -> Output:
    """Write the items of highest predicted ratings; see `tasks.recommend`."""
    nb.set_num_threads(min(job.threads, nb.get_num_threads()))
    given, params = job.inputs["factors"], job.params
    users, items = (given.array(f"{side}_factors.npy", mmap=False) for side in ("user", "item"))
    names = [_names(given, side) for side in ("user", "item")]
    facts, starts = given.json("bundle.json"), given.array("rated_offsets.npy", mmap=False)
    rated = TrueLinks(starts, given.array("rated.npy"))
    chosen = np.sort(np.argsort(-np.diff(starts), kind="stable")[: params.users])
    if len(chosen) < len(users):
        job.progress.log(f"items are recommended to {len(chosen):,} of {len(users):,} users, those with most ratings "
                         "(recommend.users)")  # fmt: skip
    parts, size = [], max(1, _BLOCK_BYTES // (4 * len(items)))
    for first in range(0, len(chosen), size):
        own = chosen[first : first + size]
        places, ratings = largest_left(products(users[own], items), rated.among(own), params.k)
        rows, ranks = np.nonzero(places >= 0)
        parts.append(pa.table({
            "user": names[0].take(column(own[rows])),
            "item": names[1].take(column(places[rows, ranks])),
            "rank": column((ranks + 1).astype(np.int32)),
            "rating": column(np.clip(ratings[rows, ranks], facts["least"], facts["most"]).astype(np.float32)),
        }))  # fmt: skip
        job.progress.update(first + len(own), len(chosen), "users")
    table = pa.concat_tables(parts)
    job.output.table(RECOMMENDATIONS, table, _ROW_GROUP)
    return Output(rows=len(table), stats={"rows": len(table)})


def _names(factors: Dataset, side: str) -> pa.Array:
    """Names of users or items in the order of their rows, that of their bytes."""
    nodes = factors.table(f"{side}s.parquet", ["node"])["node"].combine_chunks()
    return nodes.take(sorted_order(nodes.cast(pa.large_string()), "factors", factors.uri)).cast(pa.string())
