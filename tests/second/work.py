"""The work of the second superworkflow's stages."""

from __future__ import annotations

import csv

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.errors import UserError
from superworkflow.infra.stage import Output, StageRun
from tests.second.stages.choose import ChooseParams
from tests.second.stages.fit import FitParams
from tests.second.stages.measurements import MeasurementsParams

STEPS = 50
"""Of gradient descent, in a round."""
Matrix = NDArray[np.float64]


def measurements(job: StageRun[MeasurementsParams]) -> Output:
    """`features.npy` float64 `[n, d]`, each column with mean 0 and variance 1, `target.npy` `[n]`, `columns.json`."""
    source = job.sources["table"]
    with source.local(job.scratch).open(newline="") as stream:
        header, *rows = list(csv.reader(stream))
    if job.params.target not in header:
        raise UserError("no such column", where=source.uri, value=job.params.target, remedy=f"Valid: {header}")
    values = np.array(rows, dtype=np.float64)
    place = header.index(job.params.target)
    features = np.delete(values, place, axis=1)
    mean, spread = features.mean(axis=0), features.std(axis=0)
    job.output.array("features.npy", (features - mean) / spread)
    job.output.array("target.npy", values[:, place])
    columns = [name for name in header if name != job.params.target]
    job.output.json("columns.json", {"names": columns, "mean": mean.tolist(), "spread": spread.tolist()})
    return Output(rows=len(values), stats={"rows": len(values)})


def powers(features: Matrix, degree: int) -> Matrix:
    """Columns to the powers 1 to `degree`, and ones: `[n, 1 + degree d]`."""
    return np.hstack([np.ones((len(features), 1)), *(features**power for power in range(1, degree + 1))])


def fit(job: StageRun[FitParams]) -> Output:
    """`weights.npy` of all rows, `predicted.npy` and `errors.npy` of each row by the fold that did not see it."""
    params, data = job.params, job.inputs["data"]
    x, y = powers(data.array("features.npy"), params.degree), np.asarray(data.array("target.npy"))
    folds = np.random.default_rng(params.seed).permutation(len(y)) % params.folds
    scale = np.abs(x).max(axis=0)
    x = x / scale
    weights = np.zeros((params.folds + 1, x.shape[1]))  # the last one sees all rows
    seen = [folds != fold for fold in range(params.folds)] + [np.ones(len(y), dtype=bool)]
    rates = [1.9 / (np.linalg.norm(x[rows], 2) ** 2 / rows.sum() + params.penalty) for rows in seen]
    predicted, rmse = np.zeros(len(y)), np.zeros(params.folds)
    for step in range(1, params.rounds + 1):
        for number, rows in enumerate(seen):
            for _ in range(STEPS):
                slope = x[rows].T @ (x[rows] @ weights[number] - y[rows]) / rows.sum()
                weights[number] -= rates[number] * (slope + params.penalty * weights[number])
        for fold in range(params.folds):
            predicted[folds == fold] = x[folds == fold] @ weights[fold]
            rmse[fold] = np.sqrt(np.mean((predicted - y)[folds == fold] ** 2))
        job.progress.report(step, params.rounds, -float(rmse.mean()))
        job.progress.update(step, params.rounds, "rounds", rmse=float(rmse.mean()))
    job.output.array("weights.npy", weights[-1] / scale)
    job.output.array("predicted.npy", predicted)
    job.output.array("target.npy", y)
    job.output.json("columns.json", {**data.json("columns.json"), "degree": params.degree})
    metrics = {"metrics.rmse": float(rmse.mean()), "metrics.rmse_std": float(rmse.std())}
    return Output(rows=len(y), stats={"rows": len(y), "degree": params.degree, **metrics})


def choose(job: StageRun[ChooseParams]) -> Output:
    """The files of the better fit, and its figures."""
    best = min(job.inputs.values(), key=lambda each: float(each.stats["metrics.rmse"] or 0))
    for name in ("weights.npy", "predicted.npy", "target.npy"):
        job.output.array(name, best.array(name))
    job.output.json("columns.json", best.json("columns.json"))
    metrics = {name: best.stats[name] for name in ("metrics.rmse", "metrics.rmse_std")}
    return Output(rows=best.manifest.rows, stats={"degree": best.stats["degree"], **metrics})
