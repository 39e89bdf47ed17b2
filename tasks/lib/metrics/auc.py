"""Area under the ROC curve."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def area_under_curve(positives: NDArray[np.floating], negatives: NDArray[np.floating]) -> float:
    """Probability that a positive scores above a negative, equal scores counted half (Mann and Whitney)."""
    ordered = np.sort(negatives)
    below = np.searchsorted(ordered, positives, side="left").sum(dtype=np.float64)
    equal = np.searchsorted(ordered, positives, side="right").sum(dtype=np.float64) - below
    return float((below + equal / 2) / (len(positives) * len(negatives)))
