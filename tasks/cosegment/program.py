"""Segments of an image or a volume: Gaussians of its values, and neighbours that tend to be in one segment.

Loopy belief propagation with a Potts model, as `tasks.bp.program`, whose vertices say how likely their value is under
each segment's Gaussian; and expectation maximization of these by a sync, whenever messages rest: GraphLab's CoSeg (Low
et al., UAI 2010, after Batra et al., CVPR 2010). A value may also be an outlier, with a share that is learned too,
whose value says nothing of its segment. Segments begin as equally wide ranges of values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from superworkflow.tasks.bp.program import send
from superworkflow.tasks.lib.vertex.program import AT_REST, ProgramParams, Sync, SyncRun, VertexProgram, keep_fields

MOST_SEGMENTS = 5
"""Segments where none are set and the lattice has more values."""
_OUTLIERS = 0.1
"""Share of outliers at first."""


class CosegmentParams(ProgramParams):
    """Parameters of segments."""

    scheduler: Literal["sweep", "fifo", "priority"] = Field(
        default="priority", description="As of every vertex program."
    )
    segments: int | None = Field(
        default=None, ge=2, le=64,
        description="Segments, 2 to 64; by default as many as the lattice has values, at most 5.",
    )  # fmt: skip
    smoothing: float = Field(
        default=4.0, gt=0, description="How many times likelier two neighbours are in one segment than in two given "
        "other ones, above 0; 1 for independent neighbours.",
    )  # fmt: skip
    damping: float = Field(
        default=0.0, ge=0, lt=1, description="Share of the old message that a new one keeps, 0 to below 1."
    )
    precision: float = Field(
        default=1e-3, gt=0, lt=1, description="Largest change of a message that is not sent, above 0 and below 1."
    )
    shift: float = Field(
        default=2e-3, gt=0, lt=1,
        description="Ends when no mean, width or share of outliers changes by more, of the range of values.",
    )  # fmt: skip
    max_sweeps: float = Field(default=500.0, ge=0, description="Most updates, in sweeps of all vertices; 0: no bound.")


def init(scope: Any, params: Any) -> None:
    """Equally wide ranges of values; messages say nothing."""
    belief = scope.belief
    belief[min(len(belief) - 1, int(scope.level * len(belief)))] = 1.0
    for i in range(scope.degree):
        message = scope.edge(i).out_message
        message[:] = 1.0 / len(message)


def likelihood(scope: Any, k: int) -> float:
    """Probability of the vertex's value under a segment's Gaussian, between the middles to the next values."""
    mixture, segments = scope.mixture, len(scope.belief)
    scale = 0.7071067811865476 / mixture[segments + k]
    low = (scope.level - 0.5 * mixture[2 * segments + 1] - mixture[k]) * scale
    high = (scope.level + 0.5 * mixture[2 * segments + 1] - mixture[k]) * scale
    if low > 0.0:
        low, high = -high, -low
    return 0.5 * (math.erfc(-high) - math.erfc(-low))


def outliers(scope: Any) -> float:
    """Probability of the vertex's value as an outlier, which has any value."""
    share, spacing = scope.mixture[2 * len(scope.belief)], scope.mixture[2 * len(scope.belief) + 1]
    chance: float = share * spacing / (1.0 + spacing)
    return chance


def update(scope: Any, params: Any) -> float:
    """Belief from the Gaussians and all messages."""
    belief, segments = scope.belief, len(scope.belief)
    for k in range(segments):
        belief[k] = (1.0 - scope.mixture[2 * segments]) * likelihood(scope, k) + outliers(scope)
    return send(scope, params, params.smoothing, False)


def moments(scope: Any, params: Any, values: Any) -> None:
    """Share of each segment in the vertex, as far as it is no outlier; its value times that, and its square."""
    belief, segments = scope.belief, len(scope.belief)
    outlier = outliers(scope)
    for k in range(segments):
        share = np.float64(belief[k])
        if outlier > 0.0:
            inlier = (1.0 - scope.mixture[2 * segments]) * likelihood(scope, k)
            share *= inlier / (inlier + outlier)
        values[k] = share
        values[segments + k] = share * scope.level
        values[2 * segments + k] = share * scope.level * scope.level


def gaussians(totals: Any, run: SyncRun) -> Any:
    """Means, widths, share of outliers, and the distance of two values; as they were if hardly anything has changed."""
    segments, spacing = run.sizes["segments"], 1.0 / max(1, run.sizes["labels"] - 1)
    before, weights = run.value, totals[:segments]
    there = weights > 1e-9 * run.sizes["vertices"]
    divisor = np.where(there, weights, 1.0)
    means = np.where(there, totals[segments : 2 * segments] / divisor, before[:segments])
    squares = np.where(there, totals[2 * segments :] / divisor - means**2, before[segments : 2 * segments] ** 2)
    widths = np.maximum(np.sqrt(np.maximum(squares, 0.0)), 0.1 * spacing)
    first = not before[2 * segments]
    share = _OUTLIERS if first else min(max(1.0 - weights.sum() / run.sizes["vertices"], 1e-6), 0.99)
    value = np.concatenate([means, widths, [share, spacing]])
    return value if first or np.abs(value - before).max() > run.params.shift else before


def finish(fields: Mapping[str, Any], params: CosegmentParams) -> dict[str, Any]:
    """The likeliest segments, and the beliefs."""
    return {"segment": fields["belief"].argmax(axis=1).astype(np.int32), "belief": fields["belief"]}


def report(values: Mapping[str, Any], params: CosegmentParams) -> dict[str, Any]:
    """Means and widths of the segments, and the share of outliers, of the range of values."""
    *pairs, share, _ = values["mixture"]
    means, widths = np.array(pairs).reshape(2, -1).tolist()
    return {"means": means, "widths": widths, "outliers": share}


PROGRAM = VertexProgram(
    name="cosegment", fields={"level": "float32", "belief": ("float32", "segments")}, init=init, update=update,
    messages={"message": ("float32", "segments")}, graph_fields=("level",), finish=finish, params=CosegmentParams,
    report=report,
    syncs={
        "mixture": Sync(
            moments, every=AT_REST, finalize=gaussians, length=lambda sizes: 3 * sizes["segments"],
            size=lambda sizes: 2 * sizes["segments"] + 2,
        )
    },
    restart=keep_fields, help="segments of an image or a volume, and the Gaussians of their values",
)  # fmt: skip
