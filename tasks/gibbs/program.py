"""Gibbs sampling of a lattice's labels under the model of `tasks.bp.program` (Geman and Geman, 1984).

Each step draws every label anew given its neighbours', colour after colour: the chromatic sampler of Gonzalez et al.
(AISTATS 2011), a sequential scan whose stationary distribution is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from superworkflow.tasks.bp.program import PottsParams
from superworkflow.tasks.lib.vertex.program import VertexProgram

LATTICE_STEPS, FACTOR_STEPS = 200, 10_000
"""Draws of each vertex by default: a model of factors has few variables, each of whose probabilities counts."""


class GibbsParams(PottsParams):
    """Parameters of Gibbs sampling."""

    scheduler: Literal["sweep"] = Field(default="sweep", description="All vertices in each step.")
    execution: Literal["consistent"] = Field(
        default="consistent", description="Neighbours that change together would not keep the distribution."
    )
    max_steps: int | None = Field(  # type: ignore[assignment]
        default=None, ge=2, le=10**9,
        description=f"Draws of each vertex, 2 to 10⁹; by default {LATTICE_STEPS} on a lattice, {FACTOR_STEPS:,} on "
        "factors, at least four times burn_in.",
    )  # fmt: skip
    burn_in: int | None = Field(
        default=None, ge=0, description="Draws at the beginning that are not counted, 0 or more; by default a quarter."
    )

    @model_validator(mode="after")
    def _check_counted(self) -> GibbsParams:
        if self.burn_in is not None and self.max_steps is not None and self.burn_in >= self.max_steps:
            raise ValueError("burn_in is as long as max_steps, so that no draw is counted")
        return self


def draws(params: GibbsParams, steps: int) -> dict[str, int]:
    """Values of `max_steps` and `burn_in` where they are not set; `steps` is the graph's default."""
    steps = params.max_steps or max(steps, 4 * (params.burn_in or 0))
    return {"max_steps": steps, "burn_in": steps // 4}


def init(scope: Any, params: Any) -> None:
    """The observed labels."""
    scope.drawn = scope.observed


def update(scope: Any, params: Any) -> None:
    """Draw the label given those of the neighbours."""
    chance, labels, total = scope.chance, len(scope.chance), 0.0
    for x in range(labels):
        chance[x] = params.noise / labels
    chance[scope.observed] += 1.0 - params.noise
    for i in range(scope.degree):
        chance[scope.neighbour(i).drawn] *= params.smoothing
    for x in range(labels):
        total += chance[x]
    left, drawn = scope.random(0) * total, 0
    while drawn < labels - 1 and left >= chance[drawn]:
        left -= chance[drawn]
        drawn += 1
    scope.drawn = drawn
    if scope.step > params.burn_in:
        scope.counts[drawn] += 1


def finish(fields: Mapping[str, Any], params: GibbsParams) -> dict[str, Any]:
    """The label most often drawn, and the shares of draws."""
    counts = fields["counts"]
    return {"label": counts.argmax(axis=1).astype(np.int32), "belief": counts / counts.sum(axis=1, keepdims=True)}


PROGRAM = VertexProgram(
    name="gibbs",
    fields={"observed": "int32", "drawn": "int32", "chance": ("float64", "labels"), "counts": ("int32", "labels")},
    init=init, update=update, graph_fields=("observed",), finish=finish, params=GibbsParams,
    defaults={"max_steps": LATTICE_STEPS},
    help="Gibbs sampling: labels of a noisy image or volume, or the variables of a model of factors",
)  # fmt: skip
