"""Estimate of a column's distinct values from a sample of its rows: for plans, not for results."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_COUNTED = 40
"""Values that occur more often than this in the sample are as many in the whole, and need no estimate."""
_DEGREES = 60
_SMOOTH, _TOTAL = 0.1, 1000.0
"""Weights of smoothness and of the known total; chosen on power-law and uniform random graphs (see the tests)."""


def estimate_distinct(counts: NDArray[np.int64], share: float, total: float) -> float:
    """Different values in the whole.

    Values that the sample lacks are estimated from how often the others occur in it (Efron and Thisted, 1976): with
    h(d) values of d occurrences, a sample of a share s of all rows sees k occurrences of Σ h(d) Binomial(k; d, s)
    values. This is solved for h >= 0 by least squares over a grid of degrees d. Two facts help where few rows were
    sampled: Σ d h(d) is known, and h is smooth.

    Args:
        counts: occurrences in the sample of each value seen.
        share: of the whole that is in the sample, above 0.
        total: occurrences in the whole of all values together.
    """
    if share >= 1 or not len(counts):
        return float(len(counts))
    from scipy.optimize import nnls  # half a second, which plans of short files do without
    from scipy.stats import binom

    frequent = counts > _COUNTED
    seen = np.bincount(counts[~frequent], minlength=_COUNTED + 1)[1:].astype(float)
    left = total - counts[frequent].sum() / share
    if not seen.sum() or left <= 0:
        return float(len(counts))
    degrees = np.unique(np.round(np.geomspace(1, max(2.0, 2 * _COUNTED / share), _DEGREES)))
    chance = binom.pmf(np.arange(1, _COUNTED + 1)[:, None], degrees, share)
    weight = 1 / np.sqrt(seen + 1)
    bends = np.diff(np.eye(len(degrees)), 2, axis=0) * _SMOOTH / np.sqrt(seen.sum())
    rows = np.vstack([chance * weight[:, None], degrees * _TOTAL / left, bends])
    wanted = np.concatenate([seen * weight, [_TOTAL], np.zeros(len(bends))])
    found, _ = nnls(rows, wanted, maxiter=5000)
    return float(max(len(counts), found.sum() + frequent.sum()))
