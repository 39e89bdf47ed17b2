"""The work of stage `probe`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.metrics.f1 import f1_scores
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
    features = {end: features_of(graph, end) for end in {end_of(graph, path, seed_set) for path in paths}}
    if not any(features.values()):
        raise UserError("no node that is sampled has features of floating-point numbers", where=subgraphs.uri,
                        value=", ".join(sorted(features)), remedy="Give the graph features")  # fmt: skip

    limits = dict(zip(SPLITS, (params.train_subgraphs, params.test_subgraphs, params.test_subgraphs), strict=True))
    tables: dict[str, tuple[pa.Array, NDArray[Any], list[NDArray[np.float32]]]] = {}
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
    return _judge(job, tables)


def _judge(
    job: StageRun[ProbeParams], tables: dict[str, tuple[pa.Array, NDArray[Any], list[NDArray[np.float32]]]]
) -> Output:
    where = job.inputs["subgraphs"].uri
    kinds = np.unique(tables["train"][1]) if "train" in tables else np.array([])
    judged = [split for split in SPLITS[1:] if split in tables]
    if len(kinds) < 2 or not judged:
        raise UserError(
            "a classifier needs two labels to train on, and labelled seeds to judge it by", where=where,
            value={split: len(table[1]) for split, table in tables.items()},
            remedy="Give seeds with a split, or more of them",
        )  # fmt: skip
    scales = scales_of(tables["train"][2])
    inputs = {split: scaled(means, scales) for split, (_, _, means) in tables.items()}
    wide = inputs["train"].shape[1]
    job.progress.log(f"{len(inputs['train'])} subgraphs to train on, {wide} features")
    inputs = dict(
        zip(["train", *judged], in_row_space(inputs["train"], [inputs[each] for each in judged]), strict=True)
    )
    train = inputs["train"]
    targets = tables["train"][1][:, None] == kinds
    with threadpool_limits(1), ThreadPoolExecutor(job.threads) as pool:
        firsts = range(0, len(kinds), LABEL_BLOCK)
        fits = [pool.submit(fit_one_vs_rest, train, targets[:, i : i + LABEL_BLOCK], C=job.params.C) for i in firsts]
        weights = np.concatenate([fit.result() for fit in fits], axis=1)
    metrics: dict[str, float] = {}
    rows = []
    for split in judged:
        ids, labels, _ = tables[split]
        predicted = kinds[decision_function(inputs[split], weights).argmax(axis=1)]
        metrics[f"accuracy@{split}"] = float((predicted == labels).mean())
        every = np.unique(np.concatenate([labels, predicted]))
        metrics[f"macro_f1@{split}"] = f1_scores(labels[:, None] == every, predicted[:, None] == every)[1]
        rows.append(pa.table({
            "split": pa.array([split] * len(ids)), "sample_id": ids,
            "label": pa.array(labels.tolist()), "predicted": pa.array(predicted.tolist()),
        }))  # fmt: skip
    job.output.json("metrics.json", metrics)
    with job.output.file("predictions.parquet") as path:
        pq.write_table(pa.concat_tables(rows), path, compression="zstd")
    facts: dict[str, Stat] = {
        **{f"{split}_subgraphs": len(values) for split, values in inputs.items()},
        "labels": len(kinds), "features": wide,
    }  # fmt: skip
    return Output(
        rows=sum(len(inputs[split]) for split in judged),
        stats=facts,
        metrics=metrics,
    )


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
