"""Bayesian tensor factorization: factors of users, items and slices of time are drawn, and predictions averaged.

The model is that of Xiong et al. ("Temporal Collaborative Filtering with Bayesian Probabilistic Tensor Factorization",
SDM 2010): a rating is normal around the sum of the products of the factors of its user, its item and its slice of time.
The factors of a side are normal, those of a slice are normal around those of the slice before it, and means and
precisions have Gaussian-Wishart priors, the first slice around 1. The precision of ratings has a Wishart prior. With a
single slice, whose factors are 1, it is the matrix factorization of Salakhutdinov and Mnih ("Bayesian Probabilistic
Matrix Factorization using Markov Chain Monte Carlo", ICML 2008). Ratings are taken less their mean and by their
deviation, so that priors mean the same on any scale.

Each step draws all users given the items, then all items given the users: a sequential Gibbs scan, since users and
items have a colour each. A sync between the steps draws the parameters of both sides and the slices. What is kept are
`draws` of the draws after the burn-in, side by side, so that a product of rows is their average prediction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from superworkflow.tasks.als.normal_equations import add_ratings, decompose, solve_upper
from superworkflow.tasks.als.program import rmse
from superworkflow.tasks.bptf.posterior import draw_chain, draw_side, draw_slices
from superworkflow.tasks.lib.vertex.program import ProgramParams, Sync, SyncRun, VertexProgram

_FACTS = 4
"""Numbers before those of the sides: mean and deviation of ratings, precision of the rest, and 0."""


class BptfParams(ProgramParams):
    """Parameters of Bayesian factorization."""

    scheduler: Literal["sweep"] = Field(default="sweep", description="All vertices in each step.")
    execution: Literal["consistent"] = Field(
        default="consistent", description="Users and items that change together would not keep the distribution."
    )
    tolerance: Literal[0] = Field(default=0, description="Draws do not converge: the run ends at max_steps.")
    factors: int = Field(
        default=16, ge=1, le=512, description="Factors of each user and item, 1 to 512.",
        json_schema_extra={"search": {"type": "int", "low": 5, "high": 60}},
    )  # fmt: skip
    max_steps: int = Field(default=250, ge=2, le=10**9, description="Draws of each user and item, 2 to 10⁹.")
    burn_in: int = Field(default=50, ge=0, description="Draws at the beginning that are not used, 0 or more.")
    slices: int = Field(
        default=1, ge=1, le=1000,
        description="Slices of time, each with as many ratings, 1 to 1000; from 2 on each has factors of its own, and "
        "`index.time` names the column of times.",
    )  # fmt: skip
    draws: int = Field(
        default=50, ge=1, le=10**4,
        description="Draws that are kept, evenly over those after burn_in, 1 to 10000; predictions are their averages. "
        "Each user and item has `draws` times `factors` numbers.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _check_kept(self) -> BptfParams:
        if self.max_steps - self.burn_in < self.draws:
            raise ValueError("fewer draws come after burn_in than are kept: raise max_steps, or lower draws")
        return self


def normal(scope: Any, k: int) -> float:
    """A standard normal number by Box and Muller, from the random numbers 2k and 2k + 1."""
    radius = math.sqrt(-2.0 * math.log(1.0 - scope.random(2 * k)))
    return radius * math.cos(2.0 * math.pi * scope.random(2 * k + 1))


def kept_as(step: int, params: Any) -> int:
    """Number of the kept draw that a step gives, unless a later one does too; below 0 in the burn-in."""
    if step <= params.burn_in:
        return -1
    return int((step - params.burn_in - 1) * params.draws // (params.max_steps - params.burn_in))


def slice_factors(scope: Any, params: Any) -> Any:
    """Factors of the slices of time, float64 [slices, factors]."""
    size = params.factors
    begin = _FACTS + 2 * (size + size * size)
    return scope.model[begin : begin + params.slices * size].reshape((params.slices, size))


def init(scope: Any, params: Any) -> None:
    """Small random numbers."""
    for k in range(len(scope.factor)):
        scope.factor[k] = 0.1 * normal(scope, k)


def update(scope: Any, params: Any) -> None:
    """Draw the factors given those of the neighbours."""
    factor, size, model = scope.factor, len(scope.factor), scope.model
    begin = _FACTS + scope.side * (size + size * size)
    gram, right = np.zeros((size, size)), np.zeros(size)
    add_ratings(scope, gram, right, model[0], model[1], slice_factors(scope, params), scope.slice)
    for a in range(size):
        right[a] *= model[2]
        for b in range(size):
            right[a] += model[begin + size + a * size + b] * model[begin + b]
        for b in range(a + 1):
            gram[a, b] = model[2] * gram[a, b] + model[begin + size + a * size + b]
    decompose(gram, right)
    for k in range(size):
        right[k] += normal(scope, k)
    solve_upper(gram, right)
    kept = kept_as(scope.step, params)
    for k in range(size):
        factor[k] = right[k]
        if kept >= 0:
            scope.drawn[kept * size + k] = right[k]
    scope.mean, scope.deviation = model[0], model[1]


def squared_error(scope: Any, params: Any) -> float:
    """Squared errors for a user's ratings by the present draw."""
    return scope.deviation**2 * errors(scope, params, scope.mean, scope.deviation) if scope.deviation > 0.0 else 0.0


def errors(scope: Any, params: Any, mean: float, deviation: float) -> float:
    """Squared errors, in units of the deviation, of a user's ratings."""
    total, times = 0.0, slice_factors(scope, params)
    for i in range(scope.degree if scope.side == 0 else 0):
        other, error = scope.neighbour(i).factor, (scope.weight(i) - mean) / deviation
        row = times[scope.slice[i] if len(scope.slice) else 0]
        for k in range(len(other)):
            error -= np.float64(scope.factor[k]) * other[k] * row[k]
        total += error * error
    return total


def statistics(scope: Any, params: Any, values: Any) -> None:
    """Sums of which the sync draws.

    The number of a user's ratings and their squared errors, or before the first step sums and squares; for each side
    the number, sums and products of factors; for each slice, if there are several, ratings times the products of the
    factors of their user and item, and products of these.
    """
    factor, size, model = scope.factor, len(scope.factor), scope.model
    if scope.side == 0:
        values[0] = scope.degree
        if model[1] > 0.0:
            values[1] = errors(scope, params, model[0], model[1])
            if params.slices > 1:
                add_slices(scope, values[_FACTS + 2 * (1 + size + size * size) :])
        else:
            for i in range(scope.degree):
                values[1] += scope.weight(i)
                values[2] += np.float64(scope.weight(i)) ** 2
    begin = _FACTS + scope.side * (1 + size + size * size)
    values[begin] = 1.0
    for a in range(size):
        values[begin + 1 + a] = factor[a]
        for b in range(a + 1):
            values[begin + 1 + size + a * size + b] = np.float64(factor[a]) * factor[b]


def add_slices(scope: Any, values: Any) -> None:
    """Add what a user's ratings say of their slices, [slices * (factors + factors²)]."""
    size, model = len(scope.factor), scope.model
    both = np.empty(size)
    for i in range(scope.degree):
        other, rating = scope.neighbour(i).factor, (scope.weight(i) - model[0]) / model[1]
        for a in range(size):
            both[a] = np.float64(scope.factor[a]) * other[a]
        begin = scope.slice[i] * (size + size * size)
        for a in range(size):
            values[begin + a] += rating * both[a]
            for b in range(a + 1):
                values[begin + size + a * size + b] += both[a] * both[b]


def draw_model(totals: NDArray[np.float64], run: SyncRun) -> NDArray[np.float64]:
    """Mean and deviation of ratings, precision; of each side the mean of factors and their precision; factors of the
    slices, all drawn; and the kept draws of slices, [draws, slices, factors], if there are several.

    Args:
        totals: sums of `statistics`.
        run: seed and step give the random numbers.
    """
    size, slices = run.params.factors, run.params.slices
    random = np.random.Generator(np.random.Philox(key=[run.params.seed, run.step]))
    facts, begin = run.value[:_FACTS].copy(), _FACTS + 2 * (size + size * size)
    times, kept = run.value[begin : begin + slices * size].copy(), run.value[begin + slices * size :].copy()
    first = not facts[1]
    if first:
        mean = totals[1] / max(1.0, totals[0])
        variance = totals[2] / max(1.0, totals[0]) - mean**2
        facts[:3] = mean, math.sqrt(variance) if variance > 1e-12 * mean**2 else 1.0, 1.0
        times[:] = 1.0
    else:
        facts[2] = random.chisquare(1.0 + totals[0]) / (1.0 + totals[1])
    end = _FACTS + 2 * (1 + size + size * size)
    sides = totals[_FACTS:end].reshape(2, 1 + size + size * size)
    drawn = [draw_side(row[0], row[1 : 1 + size], row[1 + size :].reshape(size, size), random) for row in sides]
    if slices > 1 and not first:
        if (number := kept_as(run.step, run.params)) >= 0:  # the step's users and items were drawn given these
            kept.reshape(-1, slices * size)[number] = times
        sums = totals[end:].reshape(slices, size + size * size)
        products = sums[:, size:].reshape(slices, size, size)
        now = times.reshape(slices, size)
        times = draw_slices(now, draw_chain(now, random), sums[:, :size], products, facts[2], random).ravel()
    return np.concatenate([facts, *drawn, times, kept])


def finish(fields: Mapping[str, Any], params: BptfParams) -> dict[str, Any]:
    """Rows whose products are average predictions: the mean rating, and the draws in its units."""
    drawn, items = fields["drawn"], fields["side"] > 0
    first = np.where(items, np.float32(1), fields["mean"].astype(np.float32))
    scale = np.sqrt(fields["deviation"] / params.draws).astype(np.float32)
    return {"factor": np.concatenate([first[:, None], drawn * scale[:, None]], axis=1).astype(np.float32)}


def report(values: Mapping[str, Any], params: BptfParams) -> dict[str, Any]:
    """The values, and of several slices `slice_factors`, [slices, 1 + draws * factors]: a rating is the sum of the
    products of its user's, item's and slice's row."""
    kept = params.draws * params.slices * params.factors if params.slices > 1 else 0
    model = np.array(values["model"])
    made: dict[str, Any] = {**values, "model": model[: len(model) - kept].tolist()}
    if kept:
        drawn = model[-kept:].reshape(params.draws, params.slices, params.factors).transpose(1, 0, 2)
        made["slice_factors"] = [[1.0, *row.ravel().tolist()] for row in drawn]
    return made


def _sums(sizes: Mapping[str, int]) -> int:
    factors, slices = sizes["factors"], sizes["slices"]
    return _FACTS + 2 * (1 + factors + factors**2) + (slices * (factors + factors**2) if slices > 1 else 0)


def _values(sizes: Mapping[str, int]) -> int:
    factors, slices = sizes["factors"], sizes["slices"]
    return _FACTS + 2 * (factors + factors**2) + slices * factors * (1 + (sizes["draws"] if slices > 1 else 0))


PROGRAM = VertexProgram(
    name="bptf",
    fields={
        "side": "int32", "factor": ("float32", "factors"), "drawn": ("float32", "draws*factors"), "mean": "float64",
        "deviation": "float64",
    },
    init=init, update=update, params=BptfParams, graph_fields=("side",), signed=True, finish=finish, report=report,
    arc_fields={"slice": "int32"},
    syncs={
        "model": Sync(statistics, finalize=draw_model, length=_sums, size=_values),
        "rmse": Sync(squared_error, finalize=rmse),
    },
    help="factors of users, items and perhaps times from ratings, by Bayesian factorization",
)  # fmt: skip
