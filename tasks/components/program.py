"""Connected components: the smallest vertex that can be reached, whatever the direction of edges.

One process joins the ends of edges by union-find, unless `execution` names the program: the values are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from superworkflow.tasks.lib.vertex.program import ProgramParams, Sync, VertexProgram, check_verified

UNIONS = "union_find"


class ComponentsParams(ProgramParams):
    """Parameters of connected components."""

    scheduler: Literal["sweep", "fifo", "priority"] = Field(
        default="priority", description="As of every vertex program; priority spreads the smallest components first."
    )
    execution: Literal["union_find", "consistent", "synchronous"] = Field(  # type: ignore[assignment]
        default="union_find",
        description="One process joins the ends of edges. The others run the vertex program, on workers too, with the "
        "same values: see pagerank.",
    )

    @model_validator(mode="after")
    def _check_verified(self) -> ComponentsParams:
        check_verified(self, UNIONS)
        return self


def init(scope: Any, params: Any) -> None:
    """Every vertex is a component of its own."""
    scope.component = scope.vertex
    scope.first = True


def update(scope: Any, params: Any) -> float:
    """The smallest component around; if that is another, neighbours in a larger one are next.

    The first update of a vertex leaves that to the second, which all have: most are in their component by then.
    """
    smallest = scope.component
    for i in range(scope.degree):
        smallest = min(smallest, scope.neighbour(i).component)
        if smallest == 0:
            break
    changed = smallest < scope.component
    scope.component = smallest
    if scope.first:
        scope.first = False
        scope.signal(scope, 1.0 / (1.0 + smallest))
    elif changed:
        for i in range(scope.degree):
            other = scope.neighbour(i)
            if other.component > smallest:
                scope.signal(other, 1.0 / (1.0 + smallest))
    return 1.0 if changed else 0.0


def is_first(scope: Any, params: Any) -> float:
    """1 for the vertex that a component is named after."""
    return 1.0 if scope.component == scope.vertex else 0.0


def restart(values: Mapping[str, Any], earlier: Any) -> None:
    """Earlier components, but those that have lost an edge: their vertices begin anew."""
    component, there = earlier.fields["component"], earlier.number >= 0
    broken = np.zeros(len(component), bool)
    broken[component[earlier.rows[earlier.lost]]] = broken[component[~there]] = True
    stays, reset = there & ~broken[component], there & broken[component]
    first = np.full(len(component), len(earlier.kept), np.int64)
    np.minimum.at(first, component[stays], earlier.number[stays])
    values["component"][earlier.number[stays]] = first[component[stays]]
    earlier.changed[earlier.number[reset]] = True
    values["first"][:] = False


PROGRAM = VertexProgram(
    name="components", fields={"component": "int64", "first": "bool"}, init=init, update=update,
    params=ComponentsParams, finish=lambda fields, params: {"component": fields["component"]},
    syncs={"components": Sync(is_first, every=0)}, restart=restart,
    help="connected component of each node",
)  # fmt: skip
