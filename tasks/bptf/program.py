"""Bayesian matrix factorization: factors of users and items are drawn, and predictions averaged over draws.

The model is that of Salakhutdinov and Mnih ("Bayesian Probabilistic Matrix Factorization using Markov Chain Monte
Carlo", ICML 2008): a rating is normal around the product of the factors of its user and item, the factors of a side are
normal, and their mean and precision have a Gaussian-Wishart prior. The precision of ratings has a Wishart prior too, as
in Xiong et al. ("Temporal Collaborative Filtering with Bayesian Probabilistic Tensor Factorization", SDM 2010), of
which this is the case of a single time. Ratings are taken less their mean and by their deviation, so that priors mean
the same on any scale.

Each step draws all users given the items, then all items given the users: a sequential Gibbs scan, since users and
items have a colour each. A sync between the steps draws the parameters of both sides. What is kept are `draws` of the
draws after the burn-in, side by side, so that a product of two rows is their average prediction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from superworkflow.tasks.als.normal_equations import add_ratings, decompose, solve_lower, solve_upper
from superworkflow.tasks.als.program import rmse
from superworkflow.tasks.lib.vertex.program import ProgramParams, Sync, SyncRun, VertexProgram

_PRIOR = 2.0
"""Observations that the prior of a side's mean counts as, β₀ of the paper."""
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


def init(scope: Any, params: Any) -> None:
    """Small random numbers."""
    for k in range(len(scope.factor)):
        scope.factor[k] = 0.1 * normal(scope, k)


def update(scope: Any, params: Any) -> None:
    """Draw the factors given those of the neighbours."""
    factor, size, model = scope.factor, len(scope.factor), scope.model
    begin = _FACTS + scope.side * (size + size * size)
    gram, right = np.zeros((size, size)), np.zeros(size)
    add_ratings(scope, gram, right, model[0], model[1])
    for a in range(size):
        right[a] *= model[2]
        for b in range(size):
            right[a] += model[begin + size + a * size + b] * model[begin + b]
        for b in range(a + 1):
            gram[a, b] = model[2] * gram[a, b] + model[begin + size + a * size + b]
    decompose(gram)
    solve_lower(gram, right)
    for k in range(size):
        right[k] += normal(scope, k)
    solve_upper(gram, right)
    kept = (scope.step - params.burn_in - 1) * params.draws // (params.max_steps - params.burn_in)
    for k in range(size):
        factor[k] = right[k]
        if scope.step > params.burn_in:
            scope.drawn[kept * size + k] = right[k]
    scope.mean, scope.deviation = model[0], model[1]


def squared_error(scope: Any, params: Any) -> float:
    """Squared errors for a user's ratings by the present draw."""
    return scope.deviation**2 * errors(scope, scope.mean, max(scope.deviation, 1e-300)) if scope.side == 0 else 0.0


def errors(scope: Any, mean: float, deviation: float) -> float:
    """Squared errors, in units of the deviation, of a vertex's ratings."""
    total = 0.0
    for i in range(scope.degree):
        other, error = scope.neighbour(i).factor, (scope.weight(i) - mean) / deviation
        for k in range(len(other)):
            error -= np.float64(scope.factor[k]) * other[k]
        total += error * error
    return total


def statistics(scope: Any, params: Any, values: Any) -> None:
    """Number of a user's ratings and their squared errors, or before the first step sums and squares; for each side
    the number, sums and products of factors."""
    factor, size = scope.factor, len(scope.factor)
    if scope.side == 0:
        values[0] = scope.degree
        if scope.model[1] > 0.0:
            values[1] = errors(scope, scope.model[0], scope.model[1])
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


def draw_model(totals: NDArray[np.float64], run: SyncRun) -> NDArray[np.float64]:
    """Mean and deviation of ratings, precision; of each side the mean of factors and their precision, drawn.

    Args:
        totals: sums of `statistics`.
        run: seed and step give the random numbers.
    """
    size, random = run.params.factors, np.random.Generator(np.random.Philox(key=[run.params.seed, run.step]))
    facts = run.value[:_FACTS].copy()
    if not facts[1]:
        mean = totals[1] / max(1.0, totals[0])
        variance = totals[2] / max(1.0, totals[0]) - mean**2
        facts[:3] = mean, math.sqrt(variance) if variance > 1e-12 * mean**2 else 1.0, 1.0
    else:
        facts[2] = random.chisquare(1.0 + totals[0]) / (1.0 + totals[1])
    sides = totals[_FACTS:].reshape(2, 1 + size + size * size)
    drawn = [draw_side(row[0], row[1 : 1 + size], row[1 + size :].reshape(size, size), random) for row in sides]
    return np.concatenate([facts, *drawn])


def draw_side(
    count: float, sums: NDArray[np.float64], products: NDArray[np.float64], random: np.random.Generator
) -> NDArray[np.float64]:  # fmt: skip
    """Mean and precision of a side's factors, by equation 14 of Salakhutdinov and Mnih; the prior has mean 0, W₀ = I.

    A Wishart matrix is drawn by Bartlett's decomposition. No BLAS is called, whose sums differ by machine.

    Args:
        count: vertices of the side.
        sums: float64 [factors].
        products: float64 [factors, factors], lower triangle of the sums of products.
        random: source of numbers.

    Returns:
        float64 [factors + factors²].
    """
    size, mean = len(sums), sums / max(1.0, count)
    lower = np.eye(size) + products - count * np.outer(mean, mean)
    lower += _PRIOR * count / (_PRIOR + count) * np.outer(mean, mean)
    decompose(lower)
    root, normals = np.zeros((size, size)), random.standard_normal((size, size))
    chis = np.sqrt(random.chisquare(size + count - np.arange(size)))
    for a in range(size):  # the column of Bartlett's factor, then of the precision's root, L⁻ᵀ of it
        root[a + 1 :, a], root[a, a] = normals[a + 1 :, a], chis[a]
    bartlett = root.copy()
    for a in range(size):
        solve_upper(lower, root[:, a])
    precision = (root[:, None, :] * root[None, :, :]).sum(axis=2)
    offset = random.standard_normal(size)
    solve_upper(bartlett, offset)
    spread = (np.tril(lower) * offset).sum(axis=1) / math.sqrt(_PRIOR + count)
    drawn_mean = count * mean / (_PRIOR + count) + spread
    return np.concatenate([drawn_mean, precision.reshape(-1)])


def finish(fields: Mapping[str, Any], params: BptfParams) -> dict[str, Any]:
    """Rows whose products are average predictions: the mean rating, and the draws in its units."""
    drawn, items = fields["drawn"], fields["side"] > 0
    first = np.where(items, np.float32(1), fields["mean"].astype(np.float32))
    scale = np.sqrt(fields["deviation"] / params.draws).astype(np.float32)
    return {"factor": np.concatenate([first[:, None], drawn * scale[:, None]], axis=1).astype(np.float32)}


def _sums(sizes: Mapping[str, int]) -> int:
    return _FACTS + 2 * (1 + sizes["factors"] + sizes["factors"] ** 2)


PROGRAM = VertexProgram(
    name="bptf",
    fields={
        "side": "int32", "factor": ("float32", "factors"), "drawn": ("float32", "draws*factors"), "mean": "float64",
        "deviation": "float64",
    },
    init=init, update=update, params=BptfParams, graph_fields=("side",), signed=True, finish=finish,
    syncs={
        "model": Sync(statistics, finalize=draw_model, length=_sums, size=lambda sizes: _sums(sizes) - 2),
        "rmse": Sync(squared_error, finalize=rmse),
    },
    help="factors of users and items from ratings, by Bayesian factorization",
)  # fmt: skip
