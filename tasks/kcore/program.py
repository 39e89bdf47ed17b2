"""Coreness: the largest k such that a vertex is in a subgraph in which each vertex has k neighbours.

A vertex takes the h-index of its neighbours' values, from the degrees on, which ends at the coreness (Lü et al., "The
H-index of a network node and its relation to degree and coreness", Nature Communications 2016). One process peels the
graph instead, unless `execution` names the program: the values are the same.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from superworkflow.tasks.lib.vertex.program import ProgramParams, Sync, VertexProgram, check_verified

PEELING = "peeling"


class KcoreParams(ProgramParams):
    """Parameters of coreness."""

    execution: Literal["peeling", "consistent", "synchronous"] = Field(  # type: ignore[assignment]
        default="peeling",
        description="One process peels vertices off, lowest degree first; trace.parquet has a row for each coreness. "
        "The others run the vertex program, on workers too, with the same values: see pagerank.",
    )

    @model_validator(mode="after")
    def _check_verified(self) -> KcoreParams:
        check_verified(self, PEELING)
        return self


def init(scope: Any, params: Any) -> None:
    """The degree is the first bound."""
    scope.core = scope.degree


def update(scope: Any, params: Any) -> float:
    """The largest h such that h neighbours have h at least; neighbours that counted on more are next."""
    before = scope.core
    core, above, tried = 0, before + 1, before
    while core + 1 < above:  # at least `core`, and less than `above`
        count = 0
        for i in range(scope.degree):
            count += scope.neighbour(i).core >= tried
        if count >= tried:
            core = tried
        else:
            core, above = max(core, count), tried
        tried = (core + above) // 2
    scope.core = core
    if core < before:
        for i in range(scope.degree):
            other = scope.neighbour(i)
            if core < other.core <= before:
                scope.signal(other)
    return float(before - core)


def core_of(scope: Any, params: Any) -> float:
    """Coreness, of which the largest is the graph's degeneracy."""
    return float(scope.core)


PROGRAM = VertexProgram(
    name="kcore", fields={"core": "int64"}, init=init, update=update, params=KcoreParams,
    syncs={"degeneracy": Sync(core_of, merge="max", every=0)}, help="coreness of each node",
)  # fmt: skip
