"""Calibration: whether predictions are right as often as their probabilities say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

BINS = 15


def calibration_bins(likely: NDArray[np.floating[Any]], right: NDArray[np.bool_]) -> pa.Table:
    """Bins (low, high] of equal width that have predictions.

    Args:
        likely: probability of each predicted class, [n].
        right: whether it is the true one, bool [n].

    Returns:
        Columns `low`, `high`, `nodes`, `probability` (mean) and `accuracy`.
    """
    number = np.clip(np.ceil(likely.astype(np.float64) * BINS).astype(np.int64) - 1, 0, BINS - 1)
    counts = np.bincount(number, minlength=BINS)
    there = np.flatnonzero(counts)
    means = [np.bincount(number, values, BINS)[there] / counts[there] for values in (likely, right)]
    return pa.table({
        "low": there / BINS, "high": (there + 1) / BINS, "nodes": counts[there], "probability": means[0],
        "accuracy": means[1],
    })  # fmt: skip


def calibration_error(bins: pa.Table) -> float:
    """Expected calibration error (Guo et al., ICML 2017): mean gap of the bins, by their nodes."""
    nodes, likely, right = (bins[name].to_numpy() for name in ("nodes", "probability", "accuracy"))
    return float((nodes * np.abs(likely - right)).sum() / nodes.sum())
