"""PageRank: the share of time that a walker spends at each vertex, who follows an edge or jumps anywhere.

Page et al., 1999. Edges are followed in proportion to their weights, if the graph has some. A vertex takes its
neighbours' newest ranks, so that fewer sweeps are needed than with those of the last sweep. Vertices without out-edges
are as if these had edges to all. How many walkers jump is a value of the whole graph, computed after each sweep:
without it, the sum of ranks would converge last, by the damping alone. It is a step of aggregation (Stewart,
"Introduction to the Numerical Solution of Markov Chains", 1994, chapter 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from superworkflow.tasks.lib.vertex.program import ProgramParams, Sync, VertexProgram


class PagerankParams(ProgramParams):
    """Parameters of PageRank."""

    scheduler: Literal["sweep"] = Field(default="sweep", description="All vertices in each step.")
    damping: float = Field(default=0.85, gt=0, lt=1, description="Chance to follow an edge, above 0 and below 1.")
    tolerance: float = Field(
        default=1e-10, ge=0,
        description="Ends when the ranks, which add up to 1, change by this at most in a sweep, 0 or more.",
    )  # fmt: skip


def init(scope: Any, params: Any) -> None:
    """Every vertex has the same rank."""
    scope.rank = 1.0 / scope.vertices
    for i in range(scope.out_degree):
        scope.strength += scope.weight(i)
    if scope.out_degree > 0:
        scope.share = scope.rank / scope.strength


def update(scope: Any, params: Any) -> float:
    """Rank from the shares that neighbours pass on."""
    total = 0.0
    for i in range(scope.in_degree):
        total += scope.in_neighbour(i).share * scope.in_weight(i)
    rank = scope.jumping / scope.vertices + params.damping * total
    change: float = abs(rank - scope.rank)
    scope.rank = rank
    if scope.out_degree > 0:
        scope.share = rank / scope.strength
    return change


def jumps(scope: Any, params: Any) -> float:
    """Share of walkers who are at this vertex and jump anywhere next."""
    share: float = scope.rank * (1.0 - params.damping if scope.out_degree > 0 else 1.0)
    return share


def finish(fields: Mapping[str, Any], params: PagerankParams) -> dict[str, Any]:
    """Ranks that add up to 1."""
    return {"rank": fields["rank"] / fields["rank"].sum()}


def restart(values: Mapping[str, Any], earlier: Any) -> None:
    """Earlier ranks, and of new vertices the mean."""
    earlier.keep(values, "rank")
    rank, strength = values["rank"], values["strength"]
    rank /= rank.sum()
    values["share"][:] = np.divide(rank, strength, out=np.zeros(len(rank)), where=strength > 0)


PROGRAM = VertexProgram(
    name="pagerank", fields={"rank": "float64", "share": "float64", "strength": "float64"}, init=init, update=update,
    finish=finish, params=PagerankParams, syncs={"jumping": Sync(jumps)}, restart=restart, help="PageRank of each node",
)  # fmt: skip
