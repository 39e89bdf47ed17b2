"""The work of stage `score_ratings`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.index.two_sets import RatingsParams
from superworkflow.tasks.lib.edge_list.diagnose import bad_row
from superworkflow.tasks.lib.edge_list.edge_files import edge_files, text_rows_of
from superworkflow.tasks.lib.edge_list.text_rows import BadRow
from superworkflow.tasks.lib.vertex.stage import whole_field
from superworkflow.tasks.score_ratings import METHODS

_BLOCK = 1 << 18
"""Rows that are predicted in one go."""


def run(job: StageRun[RatingsParams]) -> Output:
    """Predict and compare; see `tasks.score_ratings`.

    Raises:
        UserError: a row is bad, with file and line; there is none; or the factors are of another graph.
    """
    graph, factors = job.inputs["graph"], whole_field(job.inputs["graph"], job.inputs["values"], "factor")
    table = pa.concat_tables(list(_rows(job)))
    if not len(table):
        raise UserError("there are no held-out ratings", where=job.sources["test"].uri, remedy="Give rows to judge by")
    with graph.parquet("vertices.parquet") as file:
        names = file.read(["node"]).column(0).combine_chunks()
    ends = [pc.fill_null(pc.index_in(table[side], value_set=names.cast(pa.large_string())), -1).to_numpy()
            for side in ("user", "item")]  # fmt: skip
    ratings = graph.array("weights.npy", mmap=False)
    low, high, mean = float(ratings.min()), float(ratings.max()), float(ratings.mean(dtype=np.float64))
    matched = (ends[0] >= 0) & (ends[1] >= 0)
    predicted = np.full(len(table), mean)
    for first in range(0, len(table), _BLOCK):
        part = slice(first, first + _BLOCK)
        users, items = (factors[side[part]].astype(np.float64) for side in ends)
        predicted[part] = np.where(matched[part], np.clip(np.einsum("rk,rk->r", users, items), low, high), mean)
    rows = np.repeat(np.arange(len(names)), np.diff(graph.array("indptr.npy", mmap=False)))
    means = np.bincount(rows, ratings, len(names)) / np.maximum(1, np.bincount(rows, minlength=len(names)))
    of_item = np.where(ends[1] >= 0, means[ends[1]], mean)
    wanted = table["rating"].to_numpy().astype(np.float64)
    metrics: dict[str, float] = {}
    for method, values in zip(METHODS, (predicted, np.full(len(table), mean), of_item), strict=True):
        metrics[f"{method}rmse@test"] = float(np.sqrt(np.mean((values - wanted) ** 2)))
        metrics[f"{method}mae@test"] = float(np.mean(np.abs(values - wanted)))
    unknown = int((~matched).sum())
    shown = ", ".join(f"{method or 'factors_'}rmse {metrics[f'{method}rmse@test']:.4f}" for method in METHODS)
    job.progress.log(f"{len(table)} held-out ratings: {shown}")
    if unknown:
        job.progress.log(
            f"warning: {unknown} held-out ratings are of a user or an item without others, and get the mean"
        )
    job.output.json("metrics.json", metrics)
    table = table.append_column("predicted", pa.array(predicted, pa.float32())).append_column(
        "known", pa.array(matched)
    )
    with job.output.file("predictions.parquet") as path:
        pq.write_table(table, path, compression="zstd")
    return Output(rows=len(table), stats={"rows": len(table), "unknown_rows": unknown}, metrics=metrics)


def _rows(job: StageRun[RatingsParams]) -> Iterator[pa.Table]:
    """Held-out ratings with names as the graph has them."""
    source, stats = job.sources["test"], job.inputs["graph"].stats
    if not stats.get("weighted") or not stats.get("bipartite"):
        raise UserError("the graph is not one of ratings", where=job.inputs["graph"].uri,
                        remedy="Index it with weighted=true and bipartite=true")  # fmt: skip
    params = job.params.model_copy(update={
        "bipartite": True, "weighted": True, "source_prefix": stats["source_prefix"],
        "target_prefix": stats["target_prefix"], "from_time": None, "until": None,
    })  # fmt: skip
    files = edge_files(source, params, job.scratch)
    try:
        for columns, weights in _parsed(job, files):
            yield pa.table([*(column.cast(pa.large_string()) for column in columns[:2]), pa.array(weights)],
                           ["user", "item", "rating"])  # fmt: skip
    except (BadRow, pa.ArrowInvalid) as error:
        raise bad_row(files, source.uri, "" if isinstance(error, BadRow) else str(error)) from None


def _parsed(job: StageRun[RatingsParams], files: Any) -> Iterator[Any]:
    if files[0].dialect.kind != "parquet":
        yield from text_rows_of(files)
        return
    from superworkflow.tasks.index.run import unpacked_parquet
    from superworkflow.tasks.lib.edge_list import duckdb_reader

    connection = duckdb_reader.connect(max(256 << 20, job.resources.memory // 4), job.threads, job.scratch)
    try:
        yield from duckdb_reader.rows_of(connection, unpacked_parquet(files, job.scratch))
    finally:
        connection.close()
