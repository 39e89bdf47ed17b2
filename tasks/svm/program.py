"""Linear support vector machine: coefficients that separate classes by the widest margin.

Minimised is ½‖w‖² + C Σ max(0, 1 - y wx)² over coefficients w, that of a constant feature among them; the objective of
scikit-learn's LinearSVC. With `squared=false` losses are not squared. Several classes are a problem each, against all
others. Dual coordinate descent (Hsieh, Chang, Lin, Keerthi and Sundararajan, "A Dual Coordinate Descent Method for
Large-scale Linear SVM", ICML 2008): a sample takes its best multiplier and writes the coefficients of its features,
which is why samples of one colour share no feature. A multiplier that stays at a bound is tried again in one of ten
steps only. Steps take the samples in different orders: in always the same one, as all samples share the constant
feature, they would need a hundred times as many. The run ends by the duality gap.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field

from superworkflow.tasks.lib.vertex.program import ProgramParams, Sync, VertexProgram

EVERY = 10
"""Steps after which all samples are tried, and the gap is computed."""


class SvmParams(ProgramParams):
    """Parameters of the support vector machine."""

    scheduler: Literal["sweep"] = Field(default="sweep", description="All vertices in each step.")
    cost: float = Field(
        default=1.0, gt=0, description="Weight C of the losses, above 0.",
        json_schema_extra={"search": {"type": "float", "low": 0.001, "high": 100.0, "log": True}},
    )  # fmt: skip
    squared: bool = Field(default=True, description="Whether losses are squared.")
    tolerance: float = Field(
        default=1e-6, ge=0, description="Duality gap at which the run ends, as a share of the objective, 0 or more."
    )
    max_steps: int = Field(default=10_000, ge=1, le=10**9, description="Most steps, 1 to 10⁹.")


def init(scope: Any, params: Any) -> None:
    """All multipliers and coefficients are 0."""
    value, square = scope.value, 0.0
    for i in range(len(value)):
        square += value[i] * value[i]
    scope.square = square


def update(scope: Any, params: Any) -> float:
    """The sample's best multiplier in each problem while the others stay; the first sample's residual is the gap."""
    gap = max(0.0, scope.primal - scope.dual) / scope.primal
    if scope.side != 0 or gap <= params.tolerance:
        return gap if scope.vertex == 0 else 0.0
    multiplier, idle, value = scope.multiplier, scope.idle, scope.value
    problems, diagonal = len(multiplier), 0.5 / params.cost if params.squared else 0.0
    most = math.inf if params.squared else params.cost
    tried, products, count = scope.tried, scope.products, 0
    for k in range(problems):
        if idle[k] == 0 or scope.step % 10 == 1:
            tried[count] = k
            products[count] = 0.0
            count += 1
    for i in range(len(value) if count > 0 else 0):
        near = scope.neighbour(i).coefficient
        for j in range(count):
            products[j] += value[i] * near[tried[j]]
    changed = 0
    for j in range(count):
        k = tried[j]
        sign = 1.0 if scope.label == (k if problems > 1 else 1) else -1.0
        slope = sign * products[j] - 1.0 + diagonal * multiplier[k]
        before, curvature = multiplier[k], scope.square + diagonal
        after = most if curvature == 0.0 else min(most, max(0.0, before - slope / curvature))
        idle[k] = (after == 0.0 and slope > 0.0) or (after == most and slope < 0.0)
        if after != before:
            multiplier[k] = after
            tried[changed] = k
            products[changed] = (after - before) * sign
            changed += 1
    for i in range(len(value) if changed > 0 else 0):
        near = scope.neighbour(i).coefficient
        for j in range(changed):
            near[tried[j]] += products[j] * value[i]
    return gap if scope.vertex == 0 else 0.0


def primal(scope: Any, params: Any) -> float:
    """A vertex's part of the objective, over all problems."""
    coefficient, value, total = scope.coefficient, scope.value, 0.0
    for k in range(len(coefficient)):
        if scope.side != 0:
            total += 0.5 * coefficient[k] * coefficient[k]
        else:
            sign = 1.0 if scope.label == (k if len(coefficient) > 1 else 1) else -1.0
            loss = 1.0
            for i in range(len(value)):
                loss -= sign * value[i] * scope.neighbour(i).coefficient[k]
            loss = max(0.0, loss)
            total += params.cost * (loss * loss if params.squared else loss)
    return total


def dual(scope: Any, params: Any) -> float:
    """A vertex's part of the dual objective, over all problems."""
    coefficient, multiplier, total = scope.coefficient, scope.multiplier, 0.0
    for k in range(len(coefficient)):
        if scope.side != 0:
            total -= 0.5 * coefficient[k] * coefficient[k]
        else:
            total += multiplier[k]
            if params.squared:
                total -= 0.25 / params.cost * multiplier[k] * multiplier[k]
    return total


PROGRAM = VertexProgram(
    name="svm",
    fields={
        "side": "int32", "label": "int32", "coefficient": ("float64", "problems"), "square": "float64",
        "multiplier": ("float64", "problems"), "products": ("float64", "problems"), "tried": ("int32", "problems"),
        "idle": ("bool", "problems"),
    },
    init=init, update=update, params=SvmParams, consistency="full", graph_fields=("side", "label"),
    graph_rows={"value": "float64"}, syncs={"primal": Sync(primal, every=EVERY), "dual": Sync(dual, every=EVERY)},
    shuffled=True, help="linear support vector machine: classes of samples from their features",
)  # fmt: skip
