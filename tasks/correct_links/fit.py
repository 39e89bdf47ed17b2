"""Weights of what a pair's score is the sum of, by which links are as likely as can be among other pairs."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from superworkflow.tasks.lib.graph.short_paths import Floats

FOLDS = 5
_RIDGE = 1.0
"""Weight of the squared distance of standardized weights from the network's score alone."""


def fitted(columns: Floats) -> Floats:
    """Weights of the columns, float64 [columns].

    Args:
        columns: [links, 1 + others, columns], of each link and the pairs that it is compared with; NaN in the rows of
            pairs that are none. The network's score is the first column.
    """
    flat = columns.reshape(-1, columns.shape[2])
    means, spread = np.nanmean(flat, axis=0), np.nanstd(flat, axis=0) + 1e-9
    scaled = (columns - means) / spread
    none = np.isnan(scaled[..., 0])
    scaled[none] = 0
    start = np.zeros(columns.shape[2])
    start[0] = spread[0]

    def loss(weights: Floats) -> tuple[float, Floats]:
        chances, logs = _chances(scaled @ weights, none)
        chances[:, 0] -= 1
        own = _RIDGE * (weights - start)
        slope = np.einsum("lp,lpc->c", chances, scaled) + own
        return float(-logs.sum() + own @ (weights - start) / 2), slope

    weights: Floats = minimize(loss, start, jac=True, method="L-BFGS-B").x / spread
    return weights


def log_likelihoods(columns: Floats, weights: Floats) -> Floats:
    """Logarithm of each link's share among the pairs that it is compared with, [links]; see `fitted`."""
    none = np.isnan(columns[..., 0])
    return _chances(np.where(none[..., None], 0, columns) @ weights, none)[1]


def _chances(scores: Floats, none: Floats) -> tuple[Floats, Floats]:
    """Softmax of scores [links, 1 + others] over their rows, and the logarithms of its first column."""
    scores = np.where(none, -np.inf, scores)
    scores -= scores.max(axis=1, keepdims=True)
    exponentials = np.exp(scores)
    sums = exponentials.sum(axis=1)
    return exponentials / sums[:, None], scores[:, 0] - np.log(sums)


def gains(columns: Floats) -> tuple[Floats, Floats]:
    """Log-likelihoods of links by the first column alone, and by all, of weights fitted without them, each [links]."""
    links = len(columns)
    folds = np.arange(links) * FOLDS // max(1, links)
    found = np.zeros((2, links))
    for fold in range(FOLDS):
        own = folds == fold
        for place, part in enumerate((columns[..., :1], columns)):
            found[place, own] = log_likelihoods(part[own], fitted(part[~own]))
    return found[0], found[1]


def odds(links: Floats, others: Floats) -> tuple[float, float]:
    """Factor and constant by which scores are logarithms of odds: logistic regression of one column (Platt, 1999)."""
    scores = np.concatenate([links, others])
    signs = np.concatenate([np.ones(len(links)), -np.ones(len(others))])

    def loss(weights: Floats) -> tuple[float, Floats]:
        margins = signs * (weights[0] * scores + weights[1])
        slope = -signs / (1 + np.exp(np.minimum(margins, 500)))
        own = 1e-3 * weights
        return (
            float(np.logaddexp(0, -margins).sum() + own @ weights / 2), np.array([slope @ scores, slope.sum()]) + own
        )  # fmt: skip

    factor, constant = minimize(loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B").x
    return float(factor), float(constant)
