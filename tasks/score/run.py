"""The work of stage `score`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.baseline_warnings import class_warnings
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings, warning_stats
from superworkflow.tasks.lib.gnn.learned_features import shown_names
from superworkflow.tasks.lib.graph.integrity import damaged
from superworkflow.tasks.lib.metrics import LABEL_FIGURES
from superworkflow.tasks.score import MOST_RANKED
from superworkflow.tasks.score.class_table import (
    all_names,
    calibration_bins,
    calibration_error,
    class_table,
    coded,
    confusion_table,
    label_scores,
)
from superworkflow.tasks.score.numbers import JUDGED, judge_numbers, keys_of, nothing_to_judge, trained_by


def run(job: StageRun[StageParams]) -> Output:
    """Judge predictions; see `tasks.score`.

    Raises:
        UserError: no node is to be validated on or tested; or, for the model in use, no label is a class of it.
    """
    predictions = job.inputs["predictions"]
    with predictions.parquet("predictions.parquet") as file:
        kind = file.schema_arrow.field("label").type
        several, numbers = pa.types.is_list(kind), pa.types.is_floating(kind)
        keys = keys_of(file.schema_arrow.names)
        table = file.read([*keys, "ranked" if several else "predicted", "label", "split"])
    table = table.append_column("row", pa.array(np.arange(len(table))))
    if "seen" in job.inputs and not numbers:
        _check_classes(job, table["label"])
    if "seen" in job.inputs:
        table = table.filter(pc.invert(pc.is_in(_key(table), value_set=_trained_on(job.inputs["seen"]))))
    if numbers:
        return judge_numbers(job, table)
    classes, likely = predictions.json("classes.json"), predictions.array("probabilities.npy")
    if likely.ndim != 2 or likely.shape[1] != len(classes):
        raise damaged(predictions, "probabilities.npy", f"a probability for each of {len(classes)} classes")
    names = all_names(classes, table["label"])
    metrics: dict[str, float] = {}
    tables: dict[str, list[pa.Table]] = {"classes": [], "confusion": [], "calibration": []}
    counts: dict[str, int] = {}
    for split in JUDGED:
        part = table.filter(pc.equal(table["split"], split))
        if not len(part):
            continue
        counts[split] = len(part)
        wanted, given = (coded(part[name], names) for name in ("label", "ranked" if several else "predicted"))
        found = label_scores(part, names)
        metrics |= dict(zip([f"{name}@{split}" for name in LABEL_FIGURES], found, strict=True))
        rows = np.arange(0, len(part), -(-len(part) * len(classes) // MOST_RANKED))
        judged = np.asarray(likely[part["row"].to_numpy()[rows]])
        table_of, means = class_table(names, wanted, given, judged, rows)
        tables["classes"].append(_labelled(split, table_of))
        metrics |= {f"{name}@{split}": value for name, value in means.items()}
        if not several:
            tables["confusion"].append(_labelled(split, confusion_table(names, wanted.values, given.values)))
            bins = calibration_bins(judged.max(axis=1), judged.argmax(axis=1) == wanted.values[rows])
            tables["calibration"].append(_labelled(split, bins))
            metrics[f"calibration_error@{split}"] = calibration_error(bins)
    if not metrics:
        raise nothing_to_judge(predictions.uri)
    job.output.json("metrics.json", metrics)
    for name, parts in tables.items():
        if parts:
            job.output.table(f"{name}.parquet", pa.concat_tables(parts))
    simple = job.inputs["baselines"].json("metrics.json") if "baselines" in job.inputs else {}
    warnings = class_warnings(metrics, simple, counts, "micro_f1" if several else "accuracy", trained_by(predictions))
    log_warnings(job.progress, warnings)
    return Output(rows=sum(counts.values()), metrics=metrics, stats=warning_stats(warnings))


def _check_classes(job: StageRun[StageParams], given: pa.ChunkedArray) -> None:
    """Name the labels that are no classes of an earlier network, and its classes that no node has any more.

    Raises:
        UserError: no label is a class of it, such as names that have become numbers.
    """
    predictions, labels = job.inputs["predictions"], all_names([], given)
    classes = predictions.json("classes.json")
    new, gone = sorted(set(labels) - set(classes)), [name for name in classes if name not in labels]
    if labels and len(new) == len(labels):
        raise UserError(f"no label is a class of the network, which has {shown_names(classes)}", where=predictions.uri,
                        value=shown_names(new), remedy="Check the labels")  # fmt: skip
    for what, names in (("labels that the network has no classes for, and gets wrong", new),
                        ("classes of the network that no node has any more", gone)):  # fmt: skip
        if names:
            job.progress.log(f"warning: {what}: {shown_names(names)}")


def _trained_on(predictions: Dataset) -> pa.Array:
    """Nodes or edges that the network of other predictions was trained or validated on."""
    with predictions.parquet("predictions.parquet") as file:
        table = file.read([*keys_of(file.schema_arrow.names), "split"])
    table = table.filter(pc.is_in(table["split"], value_set=pa.array(["train", "validation"])))
    return _key(table).combine_chunks()


def _key(table: pa.Table) -> pa.ChunkedArray:
    """Name of each node, or of both ends of each edge."""
    columns = [table[name] for name in keys_of(table.column_names)]
    return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, "\0")


def _labelled(split: str, table: pa.Table) -> pa.Table:
    return table.add_column(0, "split", pa.array([split] * len(table), pa.string()))
