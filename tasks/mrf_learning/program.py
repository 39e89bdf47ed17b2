"""Parameters of a lattice's model from an observed labelling, by maximum likelihood or pseudo-likelihood.

The model is that of `tasks.bp.program` without noise: neighbours have one label `smoothing` times likelier than two
given others, and each label has a weight. Its likelihood is largest where the expected numbers of equal neighbours and
of each label are the observed ones (Wainwright and Jordan, 2008, section 3). Belief propagation finds the expected,
and whenever messages rest a sync adds them up and takes a step along the difference, of the length of Barzilai and
Borwein (1988): GraphLab's parameter learning (Low et al., UAI 2010).

On lattices with cycles those are not the expected numbers, and for labellings whose regions are large far too weak a
smoothing is learned from them. There the product of each vertex's chance given its neighbours is the largest
(Besag, "Statistical analysis of non-lattice data", 1975): the same differences, with expected numbers given the
observed labels of the neighbours, which need no messages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from superworkflow.tasks.bp.program import send
from superworkflow.tasks.lib.vertex.program import AT_REST, ProgramParams, Sync, SyncRun, VertexProgram

_LONGEST = 0.5
"""Most that a logarithm of a parameter changes in a step."""


class MrfLearningParams(ProgramParams):
    """Parameters of learning."""

    objective: Literal["auto", "likelihood", "pseudo_likelihood"] = Field(
        default="auto",
        description="likelihood: expected statistics are those of belief propagation, exact without cycles. "
        "pseudo_likelihood: those of each vertex given its neighbours' labels. auto: likelihood without cycles, else "
        "pseudo_likelihood.",
    )

    scheduler: Literal["sweep", "fifo", "priority"] = Field(
        default="priority", description="As of every vertex program."
    )
    damping: float = Field(
        default=0.0, ge=0, lt=1, description="Share of the old message that a new one keeps, 0 to below 1."
    )
    precision: float = Field(
        default=1e-7, gt=0, lt=1, description="Largest change of a message that is not sent, above 0 and below 1."
    )
    match: float = Field(
        default=1e-6, gt=0, description="Ends when expected and observed statistics differ by this at most for each "
        "vertex, above 0.",
    )  # fmt: skip
    max_sweeps: float = Field(default=5000.0, ge=0, description="Most updates, in sweeps of all vertices; 0: no bound.")


def init(scope: Any, params: Any) -> None:
    """Labels that are equally likely; messages say nothing."""
    scope.belief[:] = 1.0 / len(scope.belief)
    for i in range(scope.degree):
        message = scope.edge(i).out_message
        message[:] = 1.0 / len(message)


def update(scope: Any, params: Any) -> float:
    """Belief from the weights of the labels and all messages."""
    for x in range(len(scope.belief)):
        scope.belief[x] = math.exp(scope.model[1 + x])
    return send(scope, params, math.exp(scope.model[0]), False)


def statistics(scope: Any, params: Any, values: Any) -> None:
    """Half of the neighbours that have the vertex's label, and its label: as expected, then as observed."""
    belief, labels, smoothing = scope.belief, len(scope.belief), math.exp(scope.model[0])
    for i in range(scope.degree):
        edge, other = scope.edge(i), scope.neighbour(i)
        same, own, others = 0.0, 0.0, 0.0
        for x in range(labels):
            here, there = belief[x] / edge.in_message[x], other.belief[x] / edge.out_message[x]
            same += here * there
            own += here
            others += there
        values[0] += 0.5 * smoothing * same / (own * others + (smoothing - 1.0) * same)
        values[1 + labels] += 0.5 * (other.observed == scope.observed)
    for x in range(labels):
        values[1 + x] = belief[x]
    values[2 + labels + scope.observed] = 1.0


def given_neighbours(scope: Any, params: Any) -> float:
    """Belief from the weights of the labels and those that the neighbours have."""
    belief, labels, largest, total = scope.belief, len(scope.belief), -np.inf, 0.0
    for x in range(labels):
        belief[x] = scope.model[1 + x]
    for i in range(scope.degree):
        belief[scope.neighbour(i).observed] += scope.model[0]
    for x in range(labels):
        largest = max(largest, belief[x])
    for x in range(labels):
        belief[x] = math.exp(belief[x] - largest)
        total += belief[x]
    for x in range(labels):
        belief[x] /= total
    return 0.0


def statistics_given_neighbours(scope: Any, params: Any, values: Any) -> None:
    """The same as `statistics`, where neighbours have their observed labels."""
    labels = len(scope.belief)
    for i in range(scope.degree):
        other = scope.neighbour(i).observed
        values[0] += 0.5 * scope.belief[other]
        values[1 + labels] += 0.5 * (other == scope.observed)
    for x in range(labels):
        values[1 + x] = scope.belief[x]
    values[2 + labels + scope.observed] = 1.0


def step(totals: Any, run: SyncRun) -> Any:
    """Logarithms of the parameters, the differences and parameters of the last step, and the statistics.

    Args:
        totals: float64 [2 * count], expected and observed statistics, where `count` is 1 and the labels.
        run: its value is float64 [5 * count]: parameters, last parameters, last differences, expected, observed.
    """
    count = 1 + run.sizes["labels"]
    expected, observed = totals.reshape(2, count) / run.sizes["vertices"]
    differences = observed - expected
    differences[1] = 0.0  # weights are in proportion to the first label's
    now, before, last = run.value[: 3 * count].reshape(3, count)
    if run.step and np.abs(observed - expected).max() <= run.params.match:
        return np.concatenate([now, before, last, run.value[3 * count :]])
    moved, turned = now - before, last - differences
    length = 1.0
    if moved.any() and (curvature := float(moved @ turned)) > 0:
        length = min(max(float(moved @ moved) / curvature, 0.05), 50.0)
    change = length * differences
    change *= min(1.0, _LONGEST / max(1e-300, float(np.abs(change).max())))
    if not run.step:
        change[:] = 0.0  # no message has been sent yet
    return np.concatenate([now + change, now, differences, expected, observed])


def report(values: Mapping[str, Any], params: Any) -> dict[str, Any]:
    """The parameters, and the statistics for each vertex."""
    now, _, _, expected, observed = np.array(values["model"]).reshape(5, -1)
    return {
        "smoothing": math.exp(now[0]), "weights": np.exp(now[1:]).tolist(), "expected": expected.tolist(),
        "observed": observed.tolist(),
    }  # fmt: skip


def _program(update: Any, fold: Any, **more: Any) -> VertexProgram:
    model = Sync(
        fold, every=AT_REST, finalize=step, length=lambda sizes: 2 * (1 + sizes["labels"]),
        size=lambda sizes: 5 * (1 + sizes["labels"]),
    )  # fmt: skip
    return VertexProgram(
        name="mrf_learning", fields={"observed": "int32", "belief": ("float64", "labels")}, update=update,
        graph_fields=("observed",), params=MrfLearningParams, report=report, syncs={"model": model},
        finish=lambda fields, params: {"belief": fields["belief"]},
        help="parameters of a lattice's model from a labelling: smoothing, and weights of the labels", **more,
    )  # fmt: skip


PROGRAM = _program(update, statistics, init=init, messages={"message": ("float64", "labels")})
OF_NEIGHBOURS = _program(given_neighbours, statistics_given_neighbours)
