"""Sums of a step, on which the next one depends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
