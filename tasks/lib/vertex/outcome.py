"""Results of a run of a vertex program, and sums of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass
class ProgramOutcome:
    """Result of a run.

    Args:
        fields: by name, [vertices] or [vertices, length].
        globals: values of the syncs at the end.
        trace: of each step its number, updates, arcs, residual and globals.
        ended: empty, steps, tolerance, or sweeps.
        messages: by name, [2 * edges] or [2 * edges, length].
    """

    fields: Mapping[str, NDArray[Any]]
    globals: dict[str, Any]
    trace: list[dict[str, float]] = field(default_factory=list)
    ended: str = "empty"
    messages: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass
class StepFigures:
    """Sums of a step over all vertices.

    Args:
        sums: int64 [1 + syncs, WORDS], exact sums: the residuals, and the folds of the syncs.
        largest: float64 [syncs], largest values of the folds.
        updates, arcs: of the step.
        top: bits of the largest signal after it.
        save, stop: a snapshot is due, and the run is to stop after it.
    """

    sums: NDArray[np.int64]
    largest: NDArray[np.float64]
    updates: int = 0
    arcs: int = 0
    top: int = 0
    save: int = 0
    stop: int = 0


class Reporter(Protocol):
    """Receiver of progress: that of a stage, or a worker."""

    def update(self, done: float, total: float, unit: str, **facts: Any) -> None:
        """See `Progress`."""
