"""The work of stage `lasso`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.lasso.program import PROGRAM, LassoParams, PreparedParams
from superworkflow.tasks.lib.graph.updated_rows import FEATURES, updated_rows


def run(job: StageRun[LassoParams]) -> Output:
    """Run the program with what the labels say; see `tasks.lasso.program`.

    Raises:
        UserError: the graph is not one of samples with numbers, or the labels do not differ.
    """
    graph = job.inputs["graph"]
    rows, samples = updated_rows(graph, FEATURES, PROGRAM.name), int(graph.stats["samples"] or 0)
    labels, intercept = graph.array("label.npy")[:samples], bool(graph.stats["intercept"])
    centre = float(labels.mean()) if intercept else 0.0
    deviation = float(np.sum((labels - centre) ** 2))
    if deviation <= 1e-24 * samples * centre**2:
        raise UserError("the labels do not differ", where=graph.uri, value=centre, remedy="Give others")
    features = int(graph.stats["features"] or 0)
    rows = rows[:features]
    largest = float(np.abs(rows @ (labels - centre)).max()) / samples
    alpha = job.params.alpha or max(job.params.strength * largest, np.finfo(float).tiny)
    job.progress.log(f"alpha {alpha:.6g}; from {largest:.6g} on all coefficients are 0")
    params = PreparedParams(**{
        **job.params.model_dump(), "alpha": alpha, "samples": samples, "intercept": intercept, "centre": centre,
        "deviation": deviation, "penalty": alpha * samples,
    })  # fmt: skip
    stats: dict[str, float] = {}

    def finish(fields: Mapping[str, Any], _: Any) -> Mapping[str, Any]:
        coefficient, of_features = np.array(fields["coefficient"]), slice(samples, samples + features)
        weights, constants = coefficient[of_features], coefficient[samples + features :]
        if intercept:
            total = centre + float(constants.sum()) - float(weights @ fields["shift"][of_features])
            constants[:] = 0.0
            constants[-1] = total
        stats.update(judged(rows, labels, weights, float(constants.sum()), params))
        return {"coefficient": coefficient}

    output = replace(PROGRAM, finish=finish)(replace(job, params=params))
    job.output.json("model.json", {"program": PROGRAM.name, **stats})
    job.progress.log(f"{stats['nonzero']} of {features} coefficients are not 0; gap {stats['relative_gap']:.2g}")
    return replace(output, stats={**output.stats, **stats})


def judged(
    rows: sp.csr_array,
    labels: NDArray[np.float64],
    weights: NDArray[np.float64],
    intercept: float,
    params: PreparedParams,
) -> dict[str, float]:
    """Objective, duality gap and what else is said of coefficients.

    Args:
        rows: [features, samples].
        labels: [samples].
        weights: [features], coefficients.
        intercept: 0 if there is none.
        params: of the run.
    """
    residual = labels - rows.T @ weights - intercept
    primal = 0.5 * residual @ residual + params.penalty * np.abs(weights).sum()
    dual = residual - residual.mean() if params.intercept else residual
    dual = dual * min(1.0, params.penalty / max(float(np.abs(rows @ dual).max()), 1e-300))
    gap = max(0.0, float(primal - dual @ labels + 0.5 * dual @ dual))
    return {
        "alpha": params.penalty / params.samples, "intercept": intercept,
        "objective": float(primal) / params.samples, "gap": gap / params.samples,
        "relative_gap": gap / params.deviation, "nonzero": int(np.count_nonzero(weights)),
    }  # fmt: skip
