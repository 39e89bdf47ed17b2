"""The work of the second superworkflow's stages."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from superworkflow.infra.errors import UserError
from superworkflow.infra.stage import Output, StageRun
from tests.second.stages.choose import ChooseParams
from tests.second.stages.fit import FitParams
from tests.second.stages.measurements import MeasurementsParams

STEPS = 50
"""Of gradient descent, in a round."""
Matrix = Vector = NDArray[np.float64]


def measurements(job: StageRun[MeasurementsParams]) -> Output:
    """`features.npy` float64 `[n, d]`, each column with mean 0 and variance 1, `target.npy` `[n]`, `columns.json`.

    Of each patient: the own measurements, the staff of the practice, and the mean `s5` of those who are alike.
    """
    source = job.sources["graph"]
    described = yaml.safe_load(source.local(job.scratch).read_text())
    tables = {
        name: _columns(source.local(job.scratch, entry["file"]))
        for part in ("nodes", "edges")
        for name, entry in described[part].items()
    }
    patients, practices = tables["patient"], tables["practice"]
    if job.params.target not in patients:
        raise UserError("no such column", where=source.uri, value=job.params.target, remedy=f"Valid: {list(patients)}")
    columns = {name: values for name, values in patients.items() if name not in ("id", job.params.target)}
    visits, resembles = tables["visits"], tables["resembles"]
    staff = practices["staff"][_places(practices["id"], visits["practice"])]
    columns["staff"] = _mean(_places(patients["id"], visits["patient"]), staff, len(patients["id"]))
    alike = columns["s5"][_places(patients["id"], resembles["other"])]
    columns["alike_s5"] = _mean(_places(patients["id"], resembles["patient"]), alike, len(patients["id"]))
    values = np.column_stack(list(columns.values()))
    mean, spread = values.mean(axis=0), values.std(axis=0)
    job.output.array("features.npy", (values - mean) / spread)
    job.output.array("target.npy", patients[job.params.target])
    job.output.json("columns.json", {"names": list(columns), "mean": mean.tolist(), "spread": spread.tolist()})
    return Output(rows=len(values), stats={"rows": len(values)})


def _columns(path: Path) -> dict[str, Vector]:
    """Columns of numbers by their names."""
    with path.open(newline="") as stream:
        header, *rows = list(csv.reader(stream))
    return dict(zip(header, np.array(rows, dtype=np.float64).T, strict=True))


def _places(ids: Vector, wanted: Vector) -> NDArray[np.intp]:
    """Where each wanted id is among the ids, which are sorted."""
    return np.searchsorted(ids, wanted)


def _mean(places: NDArray[np.intp], values: Vector, count: int) -> Vector:
    """Mean of the values at each place."""
    return np.bincount(places, values, count) / np.bincount(places, minlength=count)


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
