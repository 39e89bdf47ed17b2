"""Gibbs sampling of the variables of a factor graph (Geman and Geman, 1984), in the scan of `tasks.gibbs.program`.

A factor keeps the place in its table of its variables' present states, which they write: variables that share one
differ in colour. Where a state makes tables 0, the chain first takes the states that make the fewest so; once none is,
it never leaves the possible assignments. Zeros may divide these into parts between which it does not move.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.gibbs.program import FACTOR_STEPS, GibbsParams
from superworkflow.tasks.lib.vertex.program import VertexProgram


def init(scope: Any, params: Any) -> None:
    """Begin with state 0 of all; each edge has the step in the factor's table from one state to the next."""
    stride = 1
    for back in range(1, scope.degree + 1 if scope.factor else 1):
        scope.edge(scope.degree - back).stride = stride
        stride *= len(scope.neighbour(scope.degree - back).table)


def update(scope: Any, params: Any) -> None:
    """Draw a variable's state given those of the others."""
    if scope.factor:
        return
    table, chance, zeros, states = scope.table, scope.chance, scope.zeros, len(scope.table)
    for x in range(states):
        zeros[x] = table[x] <= 0.0
        chance[x] = table[x] if table[x] > 0.0 else 1.0
    for i in range(scope.degree):
        factor, stride, most = scope.neighbour(i), scope.edge(i).stride, 0.0
        first = factor.place - scope.drawn * stride
        for x in range(states):
            value = factor.table[first + x * stride]
            zeros[x] += value <= 0.0
            chance[x] *= value if value > 0.0 else 1.0
            most = max(most, chance[x])
        for x in range(states):
            chance[x] /= most
    fewest, total = zeros[0], 0.0
    for x in range(states):
        fewest = min(fewest, zeros[x])
    for x in range(states):
        chance[x] *= zeros[x] == fewest
        total += chance[x]
    left, drawn = scope.random(0) * total, -1
    for x in range(states):
        if chance[x] > 0.0 and (drawn < 0 or left >= 0.0):
            drawn = x
        left -= chance[x]
    for i in range(scope.degree):
        factor = scope.neighbour(i)
        factor.place = factor.place + (drawn - scope.drawn) * scope.edge(i).stride
    scope.drawn = drawn
    if scope.step > params.burn_in and fewest == 0:
        scope.counts[drawn] += 1


def finish(fields: Mapping[str, Any], params: GibbsParams) -> dict[str, Any]:
    """The state most often drawn, and the shares of draws.

    Raises:
        UserError: an assignment after the burn-in was impossible.
    """
    counts, variables = fields["counts"], ~fields["factor"]
    assert params.max_steps is not None
    assert params.burn_in is not None
    draws = params.max_steps - params.burn_in
    lacking = variables & (counts.sum(axis=1) < draws)
    if lacking.any():
        raise UserError("after the burn-in the chain had still not found an assignment whose probability is above 0",
                        where="gibbs.burn_in", value=f"{params.burn_in}, variable {int(lacking.argmax())}",
                        remedy="Raise it, check the evidence, or run bp")  # fmt: skip
    return {"label": counts.argmax(axis=1).astype(np.int32), "belief": counts / draws}


PROGRAM = VertexProgram(
    name="gibbs",
    fields={
        "factor": "bool", "place": "int64", "drawn": "int32", "chance": ("float64", "states"),
        "zeros": ("int32", "states"), "counts": ("int32", "states"),
    },
    edge_fields={"stride": "int64"}, init=init, update=update, graph_fields=("factor",),
    graph_rows={"table": "float64"}, consistency="full", finish=finish, params=GibbsParams,
    defaults={"max_steps": FACTOR_STEPS},
    help="Gibbs sampling of the variables of a factor graph",
)  # fmt: skip
