"""Area under the ROC curve, and average precision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def area_under_curve(positives: NDArray[np.floating], negatives: NDArray[np.floating]) -> float:
    """Probability that a positive scores above a negative, equal scores counted half (Mann and Whitney)."""
    ordered = np.sort(negatives)
    below = np.searchsorted(ordered, positives, side="left").sum(dtype=np.float64)
    equal = np.searchsorted(ordered, positives, side="right").sum(dtype=np.float64) - below
    return float((below + equal / 2) / (len(positives) * len(negatives)))


def average_precision(positives: NDArray[np.floating], negatives: NDArray[np.floating]) -> float:
    """Mean over the positives of the precision at their score; equal scores are one threshold."""
    scores = np.concatenate([positives, negatives])
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(order < len(positives))
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    gained = np.diff(hits[ends], prepend=0)
    return float((gained * hits[ends] / (ends + 1)).sum() / len(positives))
