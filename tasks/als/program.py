"""Alternating least squares: factors of users and items whose products are the ratings.

Users and items have a colour each, so that a step solves all users for the items' factors, then all items for the new
factors of users. A vertex's factors are those of least squared error over its own ratings, with a penalty of
`regularization` times their squared length for each of the ratings: the weighted-λ regularization of Zhou, Wilkinson,
Schreiber and Pan ("Large-Scale Parallel Collaborative Filtering for the Netflix Prize", AAIM 2008), as are the first
factors, the mean rating and small random numbers. Sums and Cholesky's decomposition are of float64.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from pydantic import Field

from superworkflow.tasks.als.normal_equations import add_ratings, decompose, solve_lower, solve_upper
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
        description="Penalty λ on the squared length of a vertex's factors for each of its ratings, above 0.",
        json_schema_extra={"search": {"type": "float", "low": 0.01, "high": 1.0, "log": True}},
    )  # fmt: skip
    max_steps: int = Field(
        default=20, ge=1, le=10**9, description="Most steps, each of all users and all items, 1 to 10⁹."
    )


def init(scope: Any, params: Any) -> None:
    """The mean rating, and numbers of a tenth of it at most."""
    mean = 0.0
    for i in range(scope.degree):
        mean += scope.weight(i) / scope.degree
    factor = scope.factor
    for k in range(len(factor)):
        factor[k] = mean * (0.2 * scope.random(k) - 0.1)
    factor[0] = mean


def update(scope: Any, params: Any) -> float:
    """Solve the normal equations of the vertex's own ratings."""
    factor, size = scope.factor, len(scope.factor)
    if scope.degree == 0:
        return 0.0
    gram, right = np.zeros((size, size)), np.zeros(size)
    add_ratings(scope, gram, right, 0.0, 1.0)
    for a in range(size):
        gram[a, a] += params.regularization * scope.degree
    decompose(gram)
    solve_lower(gram, right)
    solve_upper(gram, right)
    change = 0.0
    for a in range(size - 1, -1, -1):
        change += abs(right[a] - factor[a])
        factor[a] = right[a]
    return change


def squared_error(scope: Any, params: Any) -> float:
    """Squared errors of a user's ratings."""
    total = 0.0
    for i in range(scope.degree if scope.side == 0 else 0):
        other, error = scope.neighbour(i).factor, np.float64(scope.weight(i))
        for k in range(len(other)):
            error -= np.float64(scope.factor[k]) * other[k]
        total += error * error
    return total


def rmse(total: float, vertices: int, arcs: int) -> float:
    """Root of the mean squared error; each rating is an arc of its user and one of its item."""
    return math.sqrt(2 * total / max(1, arcs))


PROGRAM = VertexProgram(
    name="als", fields={"side": "int32", "factor": ("float32", "factors")}, init=init, update=update, params=AlsParams,
    graph_fields=("side",), signed=True, finish=lambda fields, params: {"factor": fields["factor"]},
    syncs={"rmse": Sync(squared_error, finalize=rmse)},
    help="factors of users and items from ratings, by alternating least squares",
)  # fmt: skip
