"""The work of stage `probe`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.feature_matrix.columns import features_among_columns
from superworkflow.tasks.lib.baseline_warnings import class_warnings
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, log_warnings, warning_stats
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.metrics.figures import f1_scores
from superworkflow.tasks.lib.metrics.logistic_regression import LABEL_BLOCK, decision_function, fit_one_vs_rest
from superworkflow.tasks.lib.subgraphs.blocks import (
    DESCRIPTION,
    SPLITS,
    SubgraphBlock,
    layout_of,
    read_group,
    shard_names,
)
from superworkflow.tasks.lib.subgraphs.spec_paths import paths_in
from superworkflow.tasks.probe import ProbeParams
from superworkflow.tasks.probe.carry import carried, chosen, end_of, features_of
from superworkflow.tasks.probe.labels import WHERE, label_of, labels_of
from superworkflow.tasks.probe.scale import in_row_space, scaled, scales_of

load_kernels_fast()

Tables = dict[str, tuple[pa.Array, NDArray[Any], list[NDArray[np.float32]]]]
"""Ids, labels and means of subgraphs by split."""
_METHODS = {
    "majority": (
        "the sample classifies no better than the most frequent label",
        "Give the graph features, or a spec that reaches nodes with features",
    ),
    "features": (
        "the seeds' own features classify better than the sample",
        "Sample along other edge sets, or less; or set probe.C lower",
    ),
}


def run(job: StageRun[ProbeParams]) -> Output:
    """Judge sampled subgraphs; see `tasks.probe`.

    Raises:
        UserError: no label is named or it is none, there are no features, or too few labelled seeds.
    """
    params, subgraphs = job.params, job.inputs["subgraphs"]
    if not params.label:
        raise UserError("no label is named", where=WHERE, remedy="Give --label SET.FEATURE")
    nb.set_num_threads(min(job.threads, nb.get_num_threads()))
    graph = HeteroGraph.open(job.inputs["graph"])
    spec = subgraphs.json(DESCRIPTION)["spec"]
    if "seed_op" not in spec:
        raise UserError("seeds that are links have no label", where=WHERE, value=params.label,
                        remedy="Leave the label out")  # fmt: skip
    seed_set = spec["seed_op"]["node_set_name"]
    label = label_of(graph, params.label, seed_set)
    paths = paths_in(spec)
    ends = {end_of(graph, path, seed_set) for path in paths}
    columns = features_among_columns(graph, f"{seed_set}.{label.name}", params.take, params.leave_out, "probe", ends)
    warnings = list(columns.warnings)
    features: dict[str, list[NDArray[Any]]] = {}
    for end in sorted(ends):
        features[end], lacking = features_of(graph, end, columns.columns[end])
        warnings += lacking
    if not any(features.values()):
        raise UserError("no node that is sampled has features", where=subgraphs.uri, value=", ".join(features),
                        remedy="Give the graph features")  # fmt: skip

    limits = dict(zip(SPLITS, (params.train_subgraphs, params.test_subgraphs, params.test_subgraphs), strict=True))
    tables: Tables = {}
    for split, limit in limits.items():
        ids, labels, parts = [], [], []
        total = min(limit, _rows(subgraphs, split))
        for block in _some(subgraphs, split, total):
            values, has = labels_of(graph, label, seed_set, block.seeds)
            labelled = chosen(block, np.flatnonzero(has))
            ids.append(labelled.sample_ids)
            labels.append(values[has])
            parts.append(carried(graph, labelled, paths, seed_set, features))
            job.progress.update(sum(map(len, ids)), total, f"{split} subgraphs")
        if ids and sum(map(len, ids)):
            means = [np.concatenate(each) for each in zip(*parts, strict=True)]
            tables[split] = (pa.concat_arrays(ids), np.concatenate(labels), means)
    return _judge(job, tables, len(features[seed_set]), warnings)


def _judge(job: StageRun[ProbeParams], tables: Tables, own: int, warnings: list[InputWarning]) -> Output:
    """Train on the means of the first split, and judge by those of the others; `own` is how many are the seeds' own."""
    where = job.inputs["subgraphs"].uri
    kinds = np.unique(tables["train"][1]) if "train" in tables else np.array([])
    judged = [split for split in SPLITS[1:] if split in tables]
    if len(kinds) < 2 or not judged:
        raise UserError(
            "a classifier needs two labels to train on, and labelled seeds to judge it by", where=where,
            value={split: len(table[1]) for split, table in tables.items()},
            remedy="Give seeds with a split, or more of them",
        )  # fmt: skip
    wide = sum(block.shape[1] for block in tables["train"][2])
    job.progress.log(f"{len(tables['train'][1])} subgraphs to train on, {wide} features")
    found = _predicted(job, tables, kinds, slice(None))
    simple = {"majority": {split: _most_frequent(tables["train"][1], len(tables[split][1])) for split in judged}}
    if 0 < own < len(tables["train"][2]):
        simple["features"] = _predicted(job, tables, kinds, slice(own))
    metrics: dict[str, float] = {}
    rows = []
    for split in judged:
        ids, labels, _ = tables[split]
        for method, predicted in (("", found[split]), *((f"{each}_", simple[each][split]) for each in simple)):
            metrics[f"{method}accuracy@{split}"] = float((predicted == labels).mean())
            every = np.unique(np.concatenate([labels, predicted]))
            metrics[f"{method}macro_f1@{split}"] = f1_scores(labels[:, None] == every, predicted[:, None] == every)[1]
        rows.append(pa.table({
            "split": pa.array([split] * len(ids)), "sample_id": ids,
            "label": pa.array(labels.tolist()), "predicted": pa.array(found[split].tolist()),
        }))  # fmt: skip
    counts = {split: len(tables[split][1]) for split in judged}
    warnings = [*warnings, *class_warnings(metrics, metrics, counts, "accuracy", "probe", _METHODS)]
    log_warnings(job.progress, warnings)
    job.output.json("metrics.json", metrics)
    job.output.table("predictions.parquet", pa.concat_tables(rows))
    facts: dict[str, Stat] = {
        **{f"{split}_subgraphs": len(labels) for split, (_, labels, _) in tables.items()},
        "labels": len(kinds), "features": wide, **warning_stats(warnings),
    }  # fmt: skip
    return Output(rows=sum(counts.values()), stats=facts, metrics=metrics)


def _predicted(
    job: StageRun[ProbeParams], tables: Tables, kinds: NDArray[Any], blocks: slice
) -> dict[str, NDArray[Any]]:
    """Labels of the judged subgraphs by some of the means, by split."""
    scales = scales_of(tables["train"][2][blocks])
    inputs = {split: scaled(means[blocks], scales) for split, (_, _, means) in tables.items()}
    judged = [split for split in inputs if split != "train"]
    train, *others = in_row_space(inputs.pop("train"), [inputs[split] for split in judged])
    targets = tables["train"][1][:, None] == kinds
    with threadpool_limits(1), ThreadPoolExecutor(job.threads) as pool:
        firsts = range(0, len(kinds), LABEL_BLOCK)
        fits = [pool.submit(fit_one_vs_rest, train, targets[:, i : i + LABEL_BLOCK], C=job.params.C) for i in firsts]
        weights = np.concatenate([fit.result() for fit in fits], axis=1)
    return {
        split: kinds[decision_function(rows, weights).argmax(axis=1)]
        for split, rows in zip(judged, others, strict=True)
    }


def _most_frequent(labels: NDArray[Any], count: int) -> NDArray[Any]:
    kinds, counts = np.unique(labels, return_counts=True)
    return np.repeat(kinds[counts.argmax()], count)


def _rows(subgraphs: Dataset, split: str) -> int:
    """Number of subgraphs of a split."""
    total = 0
    for name in shard_names(subgraphs, split):
        with subgraphs.parquet(name) as file:
            total += file.metadata.num_rows
    return total


def _some(subgraphs: Dataset, split: str, wanted: int) -> Iterator[SubgraphBlock]:
    """`wanted` subgraphs of a split at even distances, a block for each row group."""
    layout = layout_of(subgraphs)
    places = np.arange(wanted) * _rows(subgraphs, split) // max(wanted, 1)
    first = 0
    for name in shard_names(subgraphs, split):
        with subgraphs.parquet(name) as file:
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                low, high = np.searchsorted(places, [first, first + rows])
                if high > low:
                    yield chosen(read_group(file, group, layout), places[low:high] - first)
                first += rows
        subgraphs.release(name)
