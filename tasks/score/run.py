"""The work of stage `score`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset

JUDGED = ("validation", "test")


def run(job: StageRun[StageParams]) -> Output:
    """Judge predictions; see `tasks.score`.

    Raises:
        UserError: no node is to be validated on or tested.
    """
    predictions = job.inputs["predictions"]
    with predictions.parquet("predictions.parquet") as file:
        several = pa.types.is_list(file.schema_arrow.field("label").type)
        table = file.read(["node", "ranked" if several else "predicted", "label", "split"])
    if "seen" in job.inputs:
        table = table.filter(pc.invert(pc.is_in(table["node"], value_set=_trained_on(job.inputs["seen"]))))
    metrics: dict[str, float] = {}
    judged = 0
    for split in JUDGED:
        part = table.filter(pc.equal(table["split"], split))
        if not len(part):
            continue
        judged += len(part)
        if several:
            classes = int(predictions.stats.get("classes") or 0)
            accuracy, micro, macro = several_scores(part["label"], part["ranked"], classes)
            metrics |= {f"accuracy@{split}": accuracy, f"micro_f1@{split}": micro, f"macro_f1@{split}": macro}
            continue
        coded = pa.chunked_array([*part["label"].chunks, *part["predicted"].chunks]).dictionary_encode()
        numbers = coded.combine_chunks().indices.to_numpy().astype(np.int64)
        accuracy, macro = scores(numbers[: len(part)], numbers[len(part) :])
        metrics |= {f"accuracy@{split}": accuracy, f"micro_f1@{split}": accuracy, f"macro_f1@{split}": macro}
    if not metrics:
        raise UserError("no node is left to judge the predictions by", where=predictions.uri,
                        remedy="Put labelled nodes into the splits validation and test")  # fmt: skip
    job.output.json("metrics.json", metrics)
    return Output(rows=judged, metrics=metrics)


def _trained_on(predictions: Dataset) -> pa.Array:
    """Nodes that the network of other predictions was trained or validated on."""
    with predictions.parquet("predictions.parquet") as file:
        table = file.read(["node", "split"])
    return table.filter(pc.is_in(table["split"], value_set=pa.array(["train", "validation"])))["node"].combine_chunks()


def scores(labels: NDArray[np.int64], predicted: NDArray[np.int64]) -> tuple[float, float]:
    """Accuracy and Macro-F1 of classes by their numbers, int64 [n] each."""
    classes = int(max(labels.max(), predicted.max())) + 1
    hits = np.bincount(labels[labels == predicted], minlength=classes)
    marked = np.bincount(labels, minlength=classes) + np.bincount(predicted, minlength=classes)
    there = marked > 0
    return float(hits.sum() / len(labels)), float((2 * hits[there] / marked[there]).mean())


def several_scores(labels: pa.ChunkedArray, ranked: pa.ChunkedArray, classes: int) -> tuple[float, float, float]:
    """Share of nodes of which all labels are found, Micro- and Macro-F1 of lists of labels.

    Args:
        labels, ranked: those of each node, and as many of highest score.
        classes: of the problem; one that is neither there nor ranked counts 0 in Macro-F1.
    """
    given = [each.combine_chunks() for each in (labels, ranked)]
    coded = pa.chunked_array([each.flatten() for each in given]).dictionary_encode().combine_chunks()
    numbers, kinds = coded.indices.to_numpy().astype(np.int64), max(1, len(coded.dictionary))
    owners = [np.repeat(np.arange(len(each)), pc.list_value_length(each).to_numpy()) for each in given]
    wanted, found = numbers[: len(owners[0])], numbers[len(owners[0]) :]
    right = np.isin(owners[1] * kinds + found, owners[0] * kinds + wanted)
    missed = np.bincount(owners[1][~right], minlength=len(given[0])) > 0
    hits = np.bincount(found[right], minlength=kinds)
    marked = np.bincount(wanted, minlength=kinds) + np.bincount(found, minlength=kinds)
    per_label = 2 * hits / np.maximum(marked, 1)
    micro, macro = 2 * hits.sum() / max(1, marked.sum()), per_label.sum() / max(classes, kinds)
    return float(1 - missed.mean()), float(micro), float(macro)
