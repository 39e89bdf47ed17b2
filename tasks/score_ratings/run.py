"""The work of stage `score_ratings`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.bptf.results import slice_factors
from superworkflow.tasks.index.rows_again import RowsAgain
from superworkflow.tasks.index.two_sets import RatingsParams
from superworkflow.tasks.lib.baseline_warnings import rating_warnings
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings, warning_stats
from superworkflow.tasks.lib.vertex.stage import whole_field
from superworkflow.tasks.score_ratings import METHODS
from superworkflow.tasks.score_ratings.times import check_unit
from superworkflow.tasks.time_slices import STARTS
from superworkflow.tasks.time_slices.run import slices_of

_BLOCK = 1 << 18
"""Rows that are predicted in one go."""
_ROUNDS = 20
_DAMPING = 5.0
"""Of biases: ratings without deviation that each user and item has besides its own."""


def run(job: StageRun[RatingsParams]) -> Output:
    """Predict and compare; see `tasks.score_ratings`.

    Raises:
        UserError: a row is bad, with file and line; there is none; or the factors are of another graph.
    """
    graph, factors = job.inputs["graph"], whole_field(job.inputs["graph"], job.inputs["values"], "factor")
    table = pa.concat_tables(list(_rows(job)))
    table = table.rename_columns(["user", "item", "rating", *table.column_names[3:]])
    if not len(table):
        raise UserError("there are no held-out ratings", where=job.sources["test"].uri, remedy="Give rows to judge by")
    if "seen" in job.inputs:
        table = table.filter(pa.array(~_seen(table, graph, job.inputs["seen"])))
        if not len(table):
            raise UserError("the earlier model has learned from all held-out ratings", where=job.sources["test"].uri,
                            remedy="Give ratings that are in none of its edge lists")  # fmt: skip
    ends = _ends(table, graph)
    ratings = graph.array("weights.npy", mmap=False)
    low, high, mean = float(ratings.min()), float(ratings.max()), float(ratings.mean(dtype=np.float64))
    matched = (ends[0] >= 0) & (ends[1] >= 0)
    rows = np.repeat(np.arange(len(factors)), np.diff(graph.array("indptr.npy", mmap=False)))
    counts = np.bincount(rows, minlength=len(factors))
    biases = np.append(_biases(rows, graph.array("indices.npy", mmap=False), ratings - mean, counts), 0.0)
    by_biases = np.clip(mean + biases[ends[0]] + biases[ends[1]], low, high)
    predicted, in_slices = by_biases.copy(), slice_factors(job.inputs["values"])
    if in_slices is not None:
        numbers = slices_of(table["time"].to_numpy(), job.inputs["slices"].array(STARTS))
    for first in range(0, len(table), _BLOCK):
        part = slice(first, first + _BLOCK)
        users, items = (factors[side[part]].astype(np.float64) for side in ends)
        if in_slices is not None:
            users *= in_slices[numbers[part]]
        products = np.clip(np.einsum("rk,rk->r", users, items), low, high)
        predicted[part] = np.where(matched[part], products, by_biases[part])
    means = np.bincount(rows, ratings, len(factors)) / np.maximum(1, counts)
    of_item = np.where(ends[1] >= 0, means[ends[1]], mean)
    wanted = table["rating"].to_numpy().astype(np.float64)
    metrics: dict[str, float] = {}
    for method, values in zip(METHODS, (predicted, np.full(len(table), mean), of_item, by_biases), strict=True):
        metrics[f"{method}rmse@test"] = float(np.sqrt(np.mean((values - wanted) ** 2)))
        metrics[f"{method}mae@test"] = float(np.mean(np.abs(values - wanted)))
    log_warnings(job.progress, found := rating_warnings(metrics, METHODS[1:]))
    unknown = int((~matched).sum())
    shown = ", ".join(f"{method or 'factors_'}rmse {metrics[f'{method}rmse@test']:.4f}" for method in METHODS)
    job.progress.log(f"{len(table)} held-out ratings: {shown}")
    if unknown:
        job.progress.log(f"warning: {unknown} held-out ratings are of a user or an item without others, and get the "
                         "mean with the bias of the other one")  # fmt: skip
    job.output.json("metrics.json", metrics)
    table = table.append_column("predicted", pa.array(predicted, pa.float32())).append_column(
        "known", pa.array(matched)
    )
    job.output.table("predictions.parquet", table)
    return Output(
        rows=len(table), stats={"rows": len(table), "unknown_rows": unknown, **warning_stats(found)}, metrics=metrics
    )


def _ends(table: pa.Table, graph: Dataset, prefixes: Sequence[str] = ("", "")) -> list[NDArray[np.int64]]:
    """Vertices of users and items, -1 for those that the graph lacks.

    Args:
        table: with the columns `user` and `item`.
        graph: index dataset.
        prefixes: of the names of users and items in the table, in whose place the graph has its own; empty for names
            as the graph has them.
    """
    names = graph.table("vertices.parquet", ["node"]).column(0).combine_chunks().cast(pa.large_string())
    found = []
    for side, prefix, own in zip(("user", "item"), prefixes, ("source_prefix", "target_prefix"), strict=True):
        column = table[side]
        if prefix:
            bare = pc.utf8_slice_codeunits(column, len(prefix))
            column = pc.binary_replace_slice(bare, 0, 0, graph.stats[own])
        found.append(pc.fill_null(pc.index_in(column, value_set=names), -1).to_numpy().astype(np.int64))
    return found


def _seen(table: pa.Table, graph: Dataset, seen: Dataset) -> NDArray[np.bool_]:
    """True for the rows whose user and item have a rating in another graph."""
    users, items = _ends(table, seen, [str(graph.stats[side]) for side in ("source_prefix", "target_prefix")])
    starts, others = seen.array("indptr.npy", mmap=False), seen.array("indices.npy", mmap=False)
    vertices = len(starts) - 1
    pairs = np.where((users >= 0) & (items >= 0), users * vertices + items, -1)
    arcs = np.repeat(np.arange(vertices), np.diff(starts)) * vertices + others
    return np.isin(pairs, arcs)


def _biases(
    rows: NDArray[np.int64], others: NDArray[np.int32], ratings: NDArray[np.float64], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Deviation of each user and item from the mean, given those of the others; as of `_DAMPING` further ratings of 0.

    Args:
        rows, others: [arcs], the vertex that has a rating, and the other one.
        ratings: [arcs], less their mean.
        counts: [vertices], ratings of each.
    """
    biases = np.zeros(len(counts))
    for _ in range(_ROUNDS):
        biases = np.bincount(rows, ratings - biases[others], len(counts)) / (_DAMPING + counts)
    return biases


def _rows(job: StageRun[RatingsParams]) -> RowsAgain:
    """Held-out ratings with names as the graph has them."""
    source, graph = job.sources["test"], job.inputs["graph"]
    if not graph.stats.get("weighted") or not graph.stats.get("bipartite"):
        raise UserError("the graph is not one of ratings", where=graph.uri,
                        remedy="Index it with weighted=true and bipartite=true")  # fmt: skip
    slices = job.inputs.get("slices")
    rows = RowsAgain(job, source, graph, timed=slices is not None, whole=True)
    if slices is not None and rows.times is not None:
        check_unit(rows.times.unit, int(slices.stats["unit"] or 0), source.uri)
    return rows
