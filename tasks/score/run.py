"""The work of stage `score`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.errors import UserError
from superworkflow.infra.stage import Output, StageRun
from superworkflow.tasks.score import ScoreParams

JUDGED = ("validation", "test")


def run(job: StageRun[ScoreParams]) -> Output:
    """Judge predictions; see `tasks.score`.

    Raises:
        UserError: no node is to be validated on or tested.
    """
    predictions = job.inputs["predictions"]
    with predictions.parquet("predictions.parquet") as file:
        table = file.read(["predicted", "label", "split"])
    metrics: dict[str, float] = {}
    judged = 0
    for split in JUDGED:
        part = table.filter(pc.equal(table["split"], split))
        if not len(part):
            continue
        judged += len(part)
        coded = pa.chunked_array([*part["label"].chunks, *part["predicted"].chunks]).dictionary_encode()
        numbers = coded.combine_chunks().indices.to_numpy().astype(np.int64)
        accuracy, macro = scores(numbers[: len(part)], numbers[len(part) :])
        metrics |= {f"accuracy@{split}": accuracy, f"micro_f1@{split}": accuracy, f"macro_f1@{split}": macro}
    if not metrics:
        raise UserError("no node is left to judge the predictions by", where=predictions.uri,
                        remedy="Put labelled nodes into the splits validation and test")  # fmt: skip
    job.output.json("metrics.json", metrics)
    return Output(rows=judged, stats={f"metrics.{name}": value for name, value in metrics.items()})


def scores(labels: NDArray[np.int64], predicted: NDArray[np.int64]) -> tuple[float, float]:
    """Accuracy and Macro-F1 of classes by their numbers, int64 [n] each."""
    classes = int(max(labels.max(), predicted.max())) + 1
    hits = np.bincount(labels[labels == predicted], minlength=classes)
    marked = np.bincount(labels, minlength=classes) + np.bincount(predicted, minlength=classes)
    there = marked > 0
    return float(hits.sum() / len(labels)), float((2 * hits[there] / marked[there]).mean())
