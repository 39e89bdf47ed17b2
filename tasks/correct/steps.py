"""Correction of predictions by errors nearby, then smoothing by labels nearby, as the nodes to validate on ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.correct import SHARES, STEPS, STILL, WEIGHTS
from superworkflow.tasks.correct.neighbor_means import Floats, NeighborMeans

_MOST_SCALE, _CERTAIN = 2.0, 2.0
"""Largest factor of an error, and standard errors by which a step has to lower the mean squared error."""


class PredictedRows(NamedTuple):
    """Predictions of nodes and their labels.

    Args:
        given: predicted rows, [nodes, width].
        truth: rows that the labels say, of the nodes below [nodes, width].
        trained, validated: nodes to train, and to validate on, bool [nodes].
    """

    given: Floats
    truth: Floats
    trained: NDArray[np.bool_]
    validated: NDArray[np.bool_]


class Correction(NamedTuple):
    """The chosen settings, and the rows that they make; see `tasks.correct`.

    Args:
        alpha, scale, beta: of the two steps, None and 0 where one is left out.
        before, after: mean squared errors of the nodes to validate on.
        rows: corrected rows, [nodes, width], of all nodes but those to train.
        terms: of a node that is not in the graph, the corrected row is 1 - β times its own, plus the mean of its
            neighbours' terms [nodes, width].
    """

    alpha: float | None
    scale: float
    beta: float | None
    before: float
    after: float
    rows: Floats
    terms: Floats


def corrected(means: NeighborMeans, rows: PredictedRows, report: Callable[[int, int, str], None]) -> Correction | None:
    """Choose and apply both steps; None if neither lowers the error.

    Args:
        means: of the neighbours of the nodes that are not trained on.
        rows: of the nodes.
        report: takes the number of settings tried, that of all, and their name.
    """
    given, truth, trained, validated = rows
    wanted, settings = truth[validated] - given[validated], len(SHARES) + len(WEIGHTS)
    errors = np.where(trained[:, None], truth - given, np.float32(0))
    first = best = np.square(wanted).sum(axis=1, dtype=np.float64)
    alpha, scale, beta, spread = None, 0.0, None, errors
    for tried, share in enumerate(SHARES, 1):
        found = _spread(means, errors, share, None)
        report(tried, settings, "settings")
        near = found[validated].astype(np.float64)
        size = float(np.square(near).sum())
        factor = min(_MOST_SCALE, max(0.0, float((near * wanted).sum()) / size)) if size else 0.0
        losses = np.square(wanted - factor * near).sum(axis=1)
        if losses.mean() < best.mean():
            alpha, scale, spread, best = share, factor, found, losses
        del found  # rows of all nodes take most of the stage's memory
    if not _is_better(best, first):
        alpha, scale, spread, best = None, 0.0, errors, first
    del errors
    moved = given if alpha is None else np.asarray(given + scale * spread, np.float32)
    start, made, smooth = np.where(trained[:, None], truth, moved), moved, best
    for tried, weight in enumerate(WEIGHTS, len(SHARES) + 1):
        found = _spread(means, start, weight, moved)
        report(tried, settings, "settings")
        losses = np.square(truth[validated] - found[validated], dtype=np.float64).sum(axis=1)
        if losses.mean() < smooth.mean():
            beta, made, smooth = weight, found, losses
        del found
    if not _is_better(smooth, best):
        beta, made, smooth = None, moved, best
    if alpha is None and beta is None:
        return None
    terms = np.float32((1 - (beta or 0)) * scale * (alpha or 0)) * spread
    if beta is not None:
        terms += np.float32(beta) * made
    return Correction(alpha, scale, beta, float(first.mean()), float(smooth.mean()), made, terms)


def _spread(means: NeighborMeans, start: Floats, share: float, base: Floats | None) -> Floats:
    """Rows of the nodes to train, spread over the edges; other nodes' are drawn to a base where there is one."""
    values, nodes = start.copy(), means.nodes
    drawn = None if base is None else np.float32(1 - share) * base[nodes]
    alone = means.degrees == 0
    for _ in range(STEPS):
        made, before = means.of(values), values[nodes]
        made *= np.float32(share)
        if drawn is not None:
            made += drawn
            made[alone] = before[alone]
        values[nodes] = made
        made -= before
        if _squared(made) <= STILL**2 * _squared(before):
            break
    return values


def _squared(rows: Floats) -> float:
    """Squared norm, by no library whose sums depend on its threads; the rows become their squares."""
    return float(np.square(rows, out=rows).sum(dtype=np.float64))


def _is_better(losses: NDArray[Any], than: NDArray[Any]) -> bool:
    """True if losses of nodes are lower by `_CERTAIN` standard errors of their mean difference."""
    gains = than - losses
    return bool(gains.mean() > _CERTAIN * gains.std() / np.sqrt(len(gains)))
