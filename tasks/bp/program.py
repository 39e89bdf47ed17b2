"""Loopy belief propagation on a lattice whose labels are noisy, with neighbours that tend to have the same (Potts).

A vertex has observed its label, or with probability `noise` one that is drawn from all. Messages are those of Pearl,
1988; on a graph with cycles the beliefs are approximate. The update of largest change first is residual scheduling
(Elidan, McGraw and Koller, UAI 2006), which GraphLab has as its own (Low et al., UAI 2010). A message is sent where it
differs by more than `precision` from the one that the neighbour has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from superworkflow.infra.contract.estimate import Stats
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.vertex.program import ProgramParams, VertexProgram, keep_fields

MOST_SWEEPS = 500.0
_FEW_EQUAL = 0.1
"""Share of neighbours with one label, by the model, up to which a warning says that little is smoothed."""


class PottsParams(ProgramParams):
    """Parameters of a lattice's model."""

    noise: float = Field(
        default=0.3, gt=0, le=1, description="Share of vertices whose label is drawn from all, above 0, at most 1."
    )
    smoothing: float = Field(
        default=4.0, gt=0, description="How many times likelier two neighbours have one label than two given other "
        "ones, above 0; 1 for independent neighbours.",
    )  # fmt: skip


class BpParams(PottsParams):
    """Parameters of belief propagation."""

    scheduler: Literal["sweep", "fifo", "priority"] = Field(
        default="priority", description="As of every vertex program."
    )
    max_product: bool = Field(
        default=False, description="Whether beliefs are those of the likeliest labelling of all vertices together "
        "(max-product) instead of each vertex's own marginals (sum-product).",
    )  # fmt: skip
    damping: float = Field(
        default=0.0, ge=0, lt=1, description="Share of the old message that a new one keeps, 0 to below 1."
    )
    max_sweeps: float | None = Field(
        default=None, ge=0, description="Most updates, in sweeps of all vertices; 0: no bound. By default 500 where "
        "the graph has cycles, on which messages may change for ever, else 0.",
    )  # fmt: skip
    precision: float | None = Field(
        default=None, gt=0, lt=1, description="Largest change of a message that is not sent, above 0 and below 1; by "
        "default 0.001 on a lattice, 10⁻⁹, in proportion, on factors.",
    )  # fmt: skip


def few_equal_neighbours(graph: Stats, params: PottsParams) -> list[InputWarning]:
    """A warning where a lattice has too many labels for its model to smooth much.

    Args:
        graph: stats of a grid; of another graph there is no warning.
        params: of the model.
    """
    labels = int(graph.get("labels") or 0)
    share = params.smoothing / (params.smoothing + labels - 1) if labels else 1.0
    if not params.smoothing > 1.0 or share > _FEW_EQUAL:
        return []
    return [InputWarning(
        "labels have no order, and the model expects few neighbours to be equal: little is smoothed",
        "labels of the lattice", f"{labels}; {share:.1%} of neighbours are equal",
        "Write greys as PNG, which is cut into grid.levels, or round them to few values; or raise smoothing",
    )]  # fmt: skip


def init(scope: Any, params: Any) -> None:
    """Messages say nothing."""
    for i in range(scope.degree):
        message = scope.edge(i).out_message
        message[:] = 1.0 / len(message)


def update(scope: Any, params: Any) -> float:
    """Belief from what was observed and from all messages; to each neighbour goes what the others say."""
    belief, labels = scope.belief, len(scope.belief)
    for x in range(labels):
        belief[x] = params.noise / labels
    belief[scope.observed] += 1.0 - params.noise
    return send(scope, params, params.smoothing, params.max_product)


def send(scope: Any, params: Any, smoothing: float, max_product: bool) -> float:
    """Multiply all messages into the belief, and send each neighbour what the others say; the sum of changes.

    Args:
        scope: has in `belief` what the vertex says by itself.
        params: has `damping` and `precision`.
        smoothing: how many times likelier neighbours have one label than two given other ones.
        max_product: send the largest of the products, instead of their sum.
    """
    belief, labels = scope.belief, len(scope.belief)
    for i in range(scope.degree):
        received, total = scope.edge(i).in_message, 0.0
        for x in range(labels):
            belief[x] *= received[x]
            total += belief[x]
        for x in range(labels):
            belief[x] /= total
    residual = 0.0
    for i in range(scope.degree):
        edge = scope.edge(i)
        received, sent, total, most = edge.in_message, edge.out_message, 0.0, 0.0
        for x in range(labels):
            total += belief[x] / received[x]
            most = max(most, belief[x] / received[x])
        same, other = smoothing - 1.0, total
        norm = total * (smoothing - 1.0 + labels)
        if max_product:
            norm = 0.0
            for x in range(labels):
                norm += max(smoothing * belief[x] / received[x], most)
        change = 0.0
        for x in range(labels):
            cavity = belief[x] / received[x]
            value = max(smoothing * cavity, most) if max_product else same * cavity + other
            change = max(change, abs(value / norm - sent[x]))
        change *= 1.0 - params.damping
        if change > params.precision:
            for x in range(labels):
                cavity = belief[x] / received[x]
                value = max(smoothing * cavity, most) if max_product else same * cavity + other
                sent[x] += (1.0 - params.damping) * (value / norm - sent[x])
            scope.signal(scope.neighbour(i), change)
            residual += change
            if params.damping > 0.0:
                scope.signal(scope, change * params.damping)
    return residual


def finish(fields: Mapping[str, Any], params: BpParams) -> dict[str, Any]:
    """The likeliest labels, and the beliefs."""
    return {"label": fields["belief"].argmax(axis=1).astype(np.int32), "belief": fields["belief"]}


PROGRAM = VertexProgram(
    name="bp", fields={"observed": "int32", "belief": ("float32", "labels")}, init=init, update=update,
    messages={"message": ("float32", "labels")}, graph_fields=("observed",), finish=finish, params=BpParams,
    restart=keep_fields, defaults={"precision": 1e-3, "max_sweeps": MOST_SWEEPS},
    help="belief propagation: labels of a noisy image or volume, or the variables of a model of factors",
)  # fmt: skip
