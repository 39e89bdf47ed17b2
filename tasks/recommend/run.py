"""The work of stage `recommend`."""

from __future__ import annotations

import numba as nb
import numpy as np
import pyarrow as pa

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.kernels.largest import largest_in_blocks
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.metrics.ranks import TrueLinks, products
from superworkflow.tasks.lib.model_bundle import sorted_order
from superworkflow.tasks.recommend import RecommendParams

load_kernels_fast()
RECOMMENDATIONS = "recommendations.parquet"
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
    parts, done = [], 0
    for count, best in largest_in_blocks(
        chosen, len(items), params.k, lambda own: products(users[own], items), rated.among
    ):  # fmt: skip
        parts.append(pa.table({
            "user": names[0].take(column(best.sources)),
            "item": names[1].take(column(best.targets)),
            "rank": column(best.ranks),
            "rating": column(np.clip(best.scores, facts["least"], facts["most"]).astype(np.float32)),
        }))  # fmt: skip
        done += count
        job.progress.update(done, len(chosen), "users")
    table = pa.concat_tables(parts)
    job.output.table(RECOMMENDATIONS, table, _ROW_GROUP)
    return Output(rows=len(table), stats={"rows": len(table)})


def _names(factors: Dataset, side: str) -> pa.Array:
    """Names of users or items in the order of their rows, that of their bytes."""
    nodes = factors.table(f"{side}s.parquet", ["node"])["node"].combine_chunks()
    return nodes.take(sorted_order(nodes.cast(pa.large_string()), "factors", factors.uri)).cast(pa.string())
