"""The work of stage `score_samples`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.tasks.feature_graph.tables import SamplesTable, read_further
from superworkflow.tasks.lib.formats.svmlight import is_finite, read_samples
from superworkflow.tasks.lib.linear_model import linear_model


def run(job: StageRun[StageParams]) -> Output:
    """Predict and compare; see `tasks.score_samples`.

    Raises:
        UserError: a line is bad, or the coefficients are of another graph.
    """
    graph, source = job.inputs["graph"], job.sources["test"]
    model = linear_model(graph, job.inputs["values"])
    table, absent = SamplesTable.of(graph), 0
    if table is None:
        samples = read_samples(source.local(job.scratch), source.uri)
        given = np.ones(len(samples.labels), np.bool_)
    else:
        samples, given, absent = read_further(job, source, table, texts=not all(map(is_finite, model.classes)))
    predicted, unknown = model.predicted(samples.matrix)
    learned = graph.array("label.npy")[: int(graph.stats["samples"] or 0)]
    wanted, metrics = samples.labels, dict[str, float]()
    if model.classes:
        classes = np.array(model.classes, None if wanted.dtype.kind == "U" else np.float64)
        majority = classes[np.bincount(learned).argmax()]
        predicted = classes[predicted.astype(np.int64)]
        if given.any():
            metrics["accuracy@test"] = float(np.mean((predicted == wanted)[given]))
            metrics["majority_accuracy@test"] = float(np.mean((majority == wanted)[given]))
        if others := int((~np.isin(wanted[given], classes)).sum()):
            job.progress.log(f"warning: {others} held-out samples are of classes that the model does not have")
    elif given.any():
        for method, values in (("", predicted[given]), ("mean_", np.full(int(given.sum()), learned.mean()))):
            metrics |= {f"{method}{name}@test": value for name, value in _of_numbers(values, wanted[given]).items()}
    if absent:
        job.progress.log(f"warning: {absent} values are missing or of categories that the model does not have; they "
                         "count as the means of their columns")  # fmt: skip
    if unknown and table is None:  # of a table these are columns that had one value
        job.progress.log(
            f"warning: {unknown} of {samples.matrix.nnz} values are of features that the model does not have"
        )
    if (lacking := int((~given).sum())) < len(given):
        figures = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        job.progress.log(f"{len(given) - lacking} held-out samples: {figures}")
    if lacking:
        job.progress.log(f"{lacking} samples have no label and are predicted alone")
    job.output.json("metrics.json", metrics)
    job.output.table("predictions.parquet", pa.table({"label": pa.array(wanted, mask=~given), "predicted": predicted}))
    return Output(rows=len(wanted), stats={"rows": len(wanted), "unknown_values": unknown}, metrics=metrics)


def _of_numbers(predicted: NDArray[np.float64], wanted: NDArray[np.float64]) -> dict[str, float]:
    error, spread = float(np.mean((predicted - wanted) ** 2)), float(np.var(wanted))
    found = {"rmse": error**0.5}
    return {**found, "r2": 1 - error / spread} if spread > 0 else found
