"""The work of the second superworkflow's stages."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.workers.session import worker_group
from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.infra.storage.dataset import Dataset
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
    """Positions of the wanted ids in the sorted ids."""
    return np.searchsorted(ids, wanted)


def _mean(places: NDArray[np.intp], values: Vector, count: int) -> Vector:
    """Mean of the values at each place."""
    return np.bincount(places, values, count) / np.bincount(places, minlength=count)


def powers(features: Matrix, degree: int) -> Matrix:
    """Columns to the powers 1 to `degree`, and ones: `[n, 1 + degree d]`."""
    return np.hstack([np.ones((len(features), 1)), *(features**power for power in range(1, degree + 1))])


@dataclass(frozen=True)
class Regression:
    """The fits of one dataset, which know nothing of each other: one without each fold, the last one of all rows."""

    params: FitParams
    x: Matrix
    y: Vector
    scale: Vector
    folds: NDArray[np.intp]

    @classmethod
    def of(cls, data: Dataset, params: FitParams) -> Regression:
        x, y = powers(data.array("features.npy"), params.degree), np.asarray(data.array("target.npy"))
        folds = np.random.default_rng(params.seed).permutation(len(y)) % params.folds
        scale = np.abs(x).max(axis=0)
        return cls(params, x / scale, y, scale, folds)

    @property
    def fits(self) -> int:
        return self.params.folds + 1

    def descend(self, fit: int, weights: Vector) -> None:
        """A round of gradient descent, in place."""
        rows = self.folds != fit
        x, y, penalty = self.x[rows], self.y[rows], self.params.penalty
        rate = 1.9 / (np.linalg.norm(x, 2) ** 2 / len(y) + penalty)
        for _ in range(STEPS):
            weights -= rate * (x.T @ (x @ weights - y) / len(y) + penalty * weights)

    def judge(self, weights: Matrix) -> tuple[Vector, Vector]:
        """Prediction for each row by the fit that did not see it, and the error of each of these fits."""
        predicted = np.einsum("rc,rc->r", self.x, weights[self.folds])
        wrong = (predicted - self.y) ** 2
        return predicted, np.array([np.sqrt(wrong[self.folds == fold].mean()) for fold in range(self.params.folds)])


def fit(job: StageRun[FitParams]) -> Output:
    """`weights.npy` of all rows, `predicted.npy` and `target.npy` of each row."""
    regression = Regression.of(job.inputs["data"], job.params)
    weights = np.zeros((regression.fits, regression.x.shape[1]))
    for step in range(1, job.params.rounds + 1):
        for number in range(regression.fits):
            regression.descend(number, weights[number])
        rmse = float(regression.judge(weights)[1].mean())
        job.progress.report(step, job.params.rounds, -rmse)
        job.progress.update(step, job.params.rounds, "rounds", rmse=rmse)
    return _write(job, regression, weights)


def fit_in_group(job: StageRun[FitParams]) -> Output:
    """The same, each fit by one worker."""
    with worker_group(job) as group:
        results = group.run(fits_of_worker, job.inputs["data"].uri, job.params.model_dump(mode="json"))
    fitted = {int(number): weights for each in results for number, weights in each.items()}
    weights = np.array([fitted[number] for number in range(len(fitted))])
    return _write(job, Regression.of(job.inputs["data"], job.params), weights)


def fits_of_worker(worker: Worker, data: str, params: dict[str, Any]) -> dict[int, list[float]]:
    """Weights of the fits that are this worker's, by their numbers."""
    regression = Regression.of(Dataset.open(data), FitParams.model_validate(params))
    fitted = {number: np.zeros(regression.x.shape[1]) for number in range(worker.rank, regression.fits, worker.size)}
    for number, weights in fitted.items():
        for _ in range(regression.params.rounds):
            regression.descend(number, weights)
    return {number: weights.tolist() for number, weights in fitted.items()}


def _write(job: StageRun[FitParams], regression: Regression, weights: Matrix) -> Output:
    predicted, rmse = regression.judge(weights)
    job.output.array("weights.npy", weights[-1] / regression.scale)
    job.output.array("predicted.npy", predicted)
    job.output.array("target.npy", regression.y)
    job.output.json("columns.json", {**job.inputs["data"].json("columns.json"), "degree": job.params.degree})
    metrics = {"rmse": float(rmse.mean()), "rmse_std": float(rmse.std())}
    rows = len(predicted)
    return Output(rows=rows, stats={"rows": rows, "degree": job.params.degree}, metrics=metrics)


def choose(job: StageRun[ChooseParams]) -> Output:
    """The files of the better fit, and its figures."""
    best = min(job.inputs.values(), key=lambda each: each.metrics["rmse"])
    for name in ("weights.npy", "predicted.npy", "target.npy"):
        job.output.array(name, best.array(name))
    job.output.json("columns.json", best.json("columns.json"))
    return Output(rows=best.manifest.rows, stats={"degree": best.stats["degree"]}, metrics=best.metrics)
