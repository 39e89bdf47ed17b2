"""Errors of predicted numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.metrics import NUMBER_FIGURES


def number_errors(truth: NDArray[Any], found: NDArray[Any]) -> dict[str, float]:
    """RMSE, MAE and R² of predictions, both [n] with n > 0; without R² where all true numbers are the same."""
    errors = found.astype(np.float64) - truth
    squares, spread = float(np.square(errors).mean()), float(truth.astype(np.float64).var())
    values = [math.sqrt(squares), float(np.abs(errors).mean())] + ([1 - squares / spread] if spread else [])
    return dict(zip(NUMBER_FIGURES, values, strict=False))
