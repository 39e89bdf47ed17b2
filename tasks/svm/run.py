"""The work of stage `svm`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, log_warnings, warning_stats
from superworkflow.tasks.lib.graph.updated_rows import SAMPLES, updated_rows
from superworkflow.tasks.svm.program import PROGRAM, SvmParams

_GAP = 0.01
"""Gap, as a share of the objective, above which a warning says that coefficients are not the best ones."""


def run(job: StageRun[SvmParams]) -> Output:
    """Run the program, and judge its coefficients by the data; see `tasks.svm.program`.

    Raises:
        UserError: the graph is not one of samples with classes.
    """
    graph = job.inputs["graph"]
    rows, samples = updated_rows(graph, SAMPLES, PROGRAM.name), int(graph.stats["samples"] or 0)
    labels, intercept = graph.array("label.npy")[:samples], bool(graph.stats["intercept"])
    stats: dict[str, float] = {}
    intercepts: list[float] = []

    def finish(fields: Mapping[str, Any], params: Any) -> Mapping[str, Any]:
        coefficient, multiplier = fields["coefficient"], fields["multiplier"][:samples]
        stats.update(judged(rows, labels, coefficient[samples:], multiplier, params))
        intercepts.extend(coefficient[-1].tolist() if intercept else [0.0] * coefficient.shape[1])
        return {"coefficient": coefficient}

    output = replace(PROGRAM, finish=finish)(job)
    job.output.json("model.json", {"program": PROGRAM.name, "intercept": intercepts, **stats})
    job.progress.log(f"objective {stats['objective']:.6g}, gap {stats['relative_gap']:.2g} of it; "
                     f"{stats['vectors']} of {samples} samples support a margin")  # fmt: skip
    far = InputWarning(
        "the coefficients are not the best ones", "svm.max_steps",
        f"a gap of {stats['relative_gap']:.2g} of the objective after {output.stats['steps']} steps",
        "Set feature_graph.scale=true, svm.cost lower or svm.max_steps higher",
    )  # fmt: skip
    found = [far] if stats["relative_gap"] > max(_GAP, job.params.tolerance) else []
    log_warnings(job.progress, found)
    return replace(output, stats={**output.stats, **stats, **warning_stats(found)})


def judged(
    rows: sp.csr_array, labels: NDArray[np.int32], coefficient: NDArray[np.float64], multiplier: NDArray[np.float64],
    params: SvmParams,
) -> dict[str, float]:  # fmt: skip
    """Objective and duality gap over all problems, and the support vectors.

    Args:
        rows: [samples, features].
        labels: int32 [samples], class numbers.
        coefficient: [features, problems].
        multiplier: [samples, problems], of the dual problems.
        params: of the run.
    """
    regularization = 0.5 * float(np.sum(coefficient**2))
    losses, conjugate = 0.0, 0.0
    for problem, (weights, multipliers) in enumerate(zip(coefficient.T, multiplier.T, strict=True)):
        signs = np.where(labels == (problem if coefficient.shape[1] > 1 else 1), 1.0, -1.0)
        loss = np.maximum(0.0, 1.0 - signs * (rows @ weights))
        losses += float(np.sum(loss**2 if params.squared else loss))
        conjugate += float(np.sum(multipliers))
        if params.squared:
            conjugate -= 0.25 / params.cost * float(np.sum(multipliers**2))
    primal = regularization + params.cost * losses
    gap = max(0.0, primal - (conjugate - regularization))
    return {
        "objective": primal, "gap": gap, "relative_gap": gap / primal,
        "vectors": int(np.count_nonzero(multiplier.any(axis=1))),
    }  # fmt: skip
