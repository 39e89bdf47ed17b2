"""Panel of predicted links: the likeliest of all nodes."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from superworkflow.infra.contract.panel import Part, table
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.predict_links import LINKS

_SHOWN = 20


def likeliest(datasets: Mapping[str, Dataset]) -> list[Part] | None:
    """Parts of a predict_links dataset."""
    (dataset,) = datasets.values()
    with dataset.parquet(LINKS) as file:
        best, count = file.schema_arrow.empty_table(), file.metadata.num_rows
        for batch in file.iter_batches():
            best = pa.concat_tables([best, pa.Table.from_batches([batch])])
            order = pc.select_k_unstable(best, 2 * _SHOWN, [("score", "descending")])
            best = best.take(order)
    names = [name for name in ("source", "relation", "target", "probability", "score") if name in best.column_names]
    rows, pairs = [], set()
    for row in best.to_pylist():
        pair = (frozenset((row["source"], row["target"])), row.get("relation"), round(row["score"], 3))
        if pair not in pairs:  # of links without a direction the same pair from its other end
            rows.append([round(row[name], 4) if isinstance(row[name], float) else row[name] for name in names])
        pairs.add(pair)
    if not rows:
        return None
    return [table(names, rows[:_SHOWN], note=f"The {min(_SHOWN, len(rows))} likeliest of {count:,} predicted links.")]
