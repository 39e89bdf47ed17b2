"""Lasso: coefficients that predict numbers, most of them 0; also sparse solutions of too few equations.

Minimised is 1/(2n) ‖y - b - Xw‖² + α ‖w‖₁ over coefficients w and, of a graph with a constant feature, the intercept b.
Coordinate descent (the "shooting" of Fu, "Penalized Regressions: The Bridge versus the Lasso", 1998), as in GraphLab
(Low et al., UAI 2010): a feature takes its best coefficient and writes the residuals of its samples, which is why
features of one colour share no sample. Values of a feature that all samples have are centred. The intercept is the mean
label and the coefficients of several constant features, which have their turns at even places of a step: with one alone
a run takes several times as many steps. A feature whose coefficient stays at 0 is tried again in one of five steps
only. The run ends by the duality gap, of which `tasks.lasso.run` computes the last value from the data.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from superworkflow.tasks.lib.vertex.program import ProgramParams, Sync, VertexProgram

EVERY = 5
"""Steps after which all features are tried, and the gap is computed."""


class LassoParams(ProgramParams):
    """Parameters of the lasso."""

    scheduler: Literal["sweep"] = Field(default="sweep", description="All vertices in each step.")
    alpha: float | None = Field(
        default=None, gt=0, description="Penalty α on each coefficient's absolute value, above 0; by default "
        "`strength` times the smallest that leaves all coefficients at 0.",
    )  # fmt: skip
    strength: float = Field(
        default=0.03, gt=0, le=1, description="α as a share of the smallest that leaves all coefficients at 0, above "
        "0, at most 1; without effect where `alpha` is given.",
        json_schema_extra={"search": {"type": "float", "low": 0.001, "high": 0.5, "log": True}},
    )  # fmt: skip
    tolerance: float = Field(
        default=1e-6, ge=0, description="Duality gap at which the run ends, as a share of the labels' squared "
        "deviation from their mean (as `tol` of scikit-learn), 0 or more.",
    )  # fmt: skip
    max_steps: int = Field(default=10_000, ge=1, le=10**9, description="Most steps, 1 to 10⁹.")


class PreparedParams(LassoParams):
    """Parameters with what `tasks.lasso.run` takes from the data: `penalty` is α times the samples."""

    samples: int
    intercept: bool
    centre: float
    deviation: float
    penalty: float


def _product(scope: Any) -> float:
    """Product of a feature's centred values and the residuals, in four sums that do not wait for each other."""
    value, shift = scope.value, scope.shift
    a = b = c = d = 0.0
    for i in range(0, len(value) - 3, 4):
        a += (value[i] - shift) * scope.neighbour(i).residual
        b += (value[i + 1] - shift) * scope.neighbour(i + 1).residual
        c += (value[i + 2] - shift) * scope.neighbour(i + 2).residual
        d += (value[i + 3] - shift) * scope.neighbour(i + 3).residual
    for i in range(len(value) // 4 * 4, len(value)):
        a += (value[i] - shift) * scope.neighbour(i).residual
    return (a + b) + (c + d)


def init(scope: Any, params: Any) -> None:
    """All coefficients are 0; residuals are from the mean label."""
    if scope.side == 0:
        scope.residual = scope.label - params.centre
    value, total, square = scope.value, 0.0, 0.0
    if scope.side == 1 and params.intercept and scope.degree == params.samples:
        for i in range(len(value)):
            total += value[i]
        scope.shift = total / len(value)
    for i in range(len(value)):
        square += (value[i] - scope.shift) ** 2
    scope.square = square


def update(scope: Any, params: Any) -> float:
    """The feature's best coefficient while the others stay; the first sample's residual is the gap."""
    scale = min(1.0, params.penalty / max(scope.correlation, 1e-300))
    dual = scale * scope.product - 0.5 * scale * scale * scope.squared
    gap = max(0.0, 0.5 * scope.squared + params.penalty * scope.length - dual) / params.deviation
    if scope.side == 0 or gap <= params.tolerance:
        return gap if scope.vertex == 0 else 0.0
    if scope.square == 0.0 or (scope.idle != 0 and scope.step % EVERY != 1):
        return 0.0
    value, shift, before = scope.value, scope.shift, scope.coefficient
    product = scope.square * before + _product(scope)
    excess = abs(product) - (params.penalty if scope.side == 1 else 0.0)
    after = 0.0
    if excess > 0.0:
        after = excess / scope.square if product > 0.0 else -excess / scope.square
    scope.idle = scope.side == 1 and after == 0.0
    if after != before:
        scope.coefficient = after
        for i in range(len(value)):
            other = scope.neighbour(i)
            other.residual = other.residual - (after - before) * (value[i] - shift)
    return 0.0


def squared(scope: Any, params: Any) -> float:
    """Squared residual of a sample."""
    return scope.residual * scope.residual if scope.side == 0 else 0.0


def product(scope: Any, params: Any) -> float:
    """Residual times label of a sample."""
    return scope.residual * (scope.label - params.centre) if scope.side == 0 else 0.0


def correlation(scope: Any, params: Any) -> float:
    """Absolute product of a feature and the residuals."""
    return abs(_product(scope)) if scope.side == 1 else 0.0


def length(scope: Any, params: Any) -> float:
    """Absolute coefficient of a feature."""
    return abs(scope.coefficient) if scope.side == 1 else 0.0


PROGRAM = VertexProgram(
    name="lasso",
    fields={
        "side": "int32", "label": "float64", "coefficient": "float64", "residual": "float64", "shift": "float64",
        "square": "float64", "idle": "bool",
    },
    init=init, update=update, params=LassoParams, consistency="full", graph_fields=("side", "label"),
    graph_rows={"value": "float64"},
    syncs={
        "squared": Sync(squared, every=EVERY), "product": Sync(product, every=EVERY),
        "length": Sync(length, every=EVERY), "correlation": Sync(correlation, "max", every=EVERY),
    },
    help="sparse coefficients that predict numbers, from samples and features",
)  # fmt: skip
