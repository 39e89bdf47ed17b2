"""Alternating least squares: factors of users and items, and biases, by which the ratings are predicted.

A rating is predicted by the mean of all, the biases of user and item, and the product of their factors. Users and items
have a colour each, so that a step solves all users for what the items have, then all items for the new values of users.
A vertex's factors and bias are those of least squared error over its own ratings, with a penalty of `regularization`
times their squared length for each of the ratings: the weighted-λ regularization of Zhou, Wilkinson, Schreiber and Pan
("Large-Scale Parallel Collaborative Filtering for the Netflix Prize", AAIM 2008). Ratings are taken less their mean and
by their deviation, so that λ means the same on any scale. The first factors are small random numbers. Sums and
Cholesky's decomposition are of float64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from superworkflow.tasks.als.normal_equations import add_ratings, decompose, solve_upper
from superworkflow.tasks.lib.vertex.program import ProgramParams, Sync, VertexProgram


class AlsParams(ProgramParams):
    """Parameters of alternating least squares."""

    scheduler: Literal["sweep"] = Field(default="sweep", description="All vertices in each step.")
    factors: int = Field(
        default=20, ge=1, le=512, description="Factors of each user and item, 1 to 512.",
        json_schema_extra={"search": {"type": "int", "low": 5, "high": 60}},
    )  # fmt: skip
    regularization: float = Field(
        default=0.1, gt=0,
        description="Penalty λ on the squared length of a vertex's factors and bias for each of its ratings, above 0, "
        "in units of the ratings' deviation.",
        json_schema_extra={"search": {"type": "float", "low": 0.01, "high": 1.0, "log": True}},
    )  # fmt: skip
    max_steps: int = Field(
        default=20, ge=1, le=10**9, description="Most steps, each of all users and all items, 1 to 10⁹."
    )


def init(scope: Any, params: Any) -> None:
    """Small random numbers."""
    for k in range(len(scope.factor)):
        scope.factor[k] = 0.4 * scope.random(k) - 0.2


def update(scope: Any, params: Any) -> float:
    """Solve the normal equations of the vertex's own ratings.

    With b the bias, n (1 + λ) b = t - sᵀ f where s and t are sums of factors and ratings; that leaves those of f.
    """
    factor, size = scope.factor, len(scope.factor)
    if scope.degree == 0:
        return 0.0
    scope.mean, scope.deviation = scope.ratings[0], scope.ratings[1]
    gram, right, sums = np.zeros((size, size)), np.zeros(size), np.zeros(size + 1)
    add_ratings(scope, gram, right, scope.mean, scope.deviation, None, None, sums)
    weight = scope.degree * (1.0 + params.regularization)
    for a in range(size):
        share = sums[a] / weight
        for b in range(size):
            gram[a, b] -= share * sums[b]
        gram[a, a] += params.regularization * scope.degree
        right[a] -= share * sums[size]
    decompose(gram, right)
    solve_upper(gram, right)
    bias = sums[size] / weight
    for a in range(size):
        bias -= sums[a] / weight * right[a]
    change: float = abs(bias - scope.bias)
    scope.bias = bias
    for a in range(size - 1, -1, -1):
        change += abs(right[a] - factor[a])
        factor[a] = right[a]
    return change


def sums(scope: Any, params: Any, values: Any) -> None:
    """Ratings and their squares."""
    for i in range(scope.degree if scope.side == 0 else 0):
        values[0] += 1.0
        values[1] += scope.weight(i)
        values[2] += np.float64(scope.weight(i)) ** 2


def mean_and_deviation(totals: Any, run: Any) -> Any:
    """Mean and deviation of the ratings; a deviation of 1 if all are equal."""
    mean = totals[1] / max(1.0, totals[0])
    square = max(0.0, totals[2] / max(1.0, totals[0]) - mean * mean)
    return np.array([mean, math.sqrt(square) if square > 1e-12 * mean * mean else 1.0])


def product(one: Any, other: Any) -> float:
    """Product of two vectors, of which every fourth number is added up: additions wait for those before them."""
    size, w, x, y, z = len(one), 0.0, 0.0, 0.0, 0.0
    for k in range(0, size - 3, 4):
        w += np.float64(one[k]) * other[k]
        x += np.float64(one[k + 1]) * other[k + 1]
        y += np.float64(one[k + 2]) * other[k + 2]
        z += np.float64(one[k + 3]) * other[k + 3]
    for k in range(size - size % 4, size):
        w += np.float64(one[k]) * other[k]
    return (w + x) + (y + z)


def squared_error(scope: Any, params: Any) -> float:
    """Squared errors of a user's ratings."""
    if scope.deviation == 0.0:
        return 0.0
    total = 0.0
    for i in range(scope.degree if scope.side == 0 else 0):
        other = scope.neighbour(i)
        error = (scope.weight(i) - scope.mean) / scope.deviation - scope.bias - other.bias
        error -= product(scope.factor, other.factor)
        total += error * error
    squared: float = total * scope.deviation**2
    return squared


def rmse(total: float, vertices: int, arcs: int) -> float:
    """Root of the mean squared error; each rating is an arc of its user and one of its item."""
    return math.sqrt(2 * total / max(1, arcs))


def finish(fields: Mapping[str, Any], params: AlsParams) -> dict[str, Any]:
    """Rows whose products are predictions: factors in units of ratings, and for the biases a column of each side."""
    items = fields["side"] > 0
    bias = fields["bias"] * fields["deviation"]
    columns = np.stack([np.where(items, 1.0, bias + fields["mean"]), np.where(items, bias, 1.0)], axis=1)
    factor = fields["factor"] * np.sqrt(fields["deviation"])[:, None]
    return {"factor": np.concatenate([factor, columns], axis=1).astype(np.float32)}


PROGRAM = VertexProgram(
    name="als",
    fields={
        "side": "int32", "factor": ("float32", "factors"), "bias": "float64", "mean": "float64", "deviation": "float64",
    },
    init=init, update=update, params=AlsParams, graph_fields=("side",), signed=True, finish=finish,
    syncs={
        "ratings": Sync(sums, every=10**9, finalize=mean_and_deviation, length=lambda sizes: 3, size=lambda sizes: 2),
        "rmse": Sync(squared_error, finalize=rmse),
    },
    help="factors of users and items from ratings, by alternating least squares",
)  # fmt: skip
