"""L2-regularised logistic regression, one-vs-rest for all labels at once.

Every label shares the features, so that the passes over them become matrix products: truncated Newton steps for
all labels together, with conjugate gradients as inner solver. The inverse of I + mean(D)·AᵀA, the mean over rows and
labels, is near that of each label's Hessian I + AᵀDA, and as a preconditioner leaves few inner iterations.
All sums are in a fixed order (`tasks.lib.kernels.ordered_sums`): the same weights on every machine, to the last bit.

39 labels of 5,000 rows with 128 features take 0.33 CPU seconds at the default tolerance of 1e-6. scikit-learn 1.9.1,
label by label, takes 1.8 by LIBLINEAR at 1e-6, 1.5 at its own 1e-4, and 0.27 by L-BFGS at 1e-4, in BLAS's order of sums
(one thread, least of 3 turns, Intel Xeon).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.ordered_sums import (
    column_dots,
    exponential,
    inverse,
    log1p_of,
    product,
    transposed_product,
)

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]

TOLERANCE = 1e-6
MAX_NEWTON_STEPS = 60
MAX_INNER_STEPS = 40
LABEL_BLOCK = 64
"""Labels solved together; bounds the n × labels temporaries."""


def fit_one_vs_rest(
    features: NDArray[np.floating[Any]], targets: NDArray[np.bool_], *, C: float = 1.0, tolerance: float = TOLERANCE
) -> Floats:
    """Weights of one binary classifier per column of `targets`.

    Minimises, for each label with signs y ∈ {-1, 1} and rows x extended by a constant 1,

        ½‖w‖² + C · Σᵢ log(1 + exp(-yᵢ w·xᵢ))

    which is the objective of LIBLINEAR's solver 0 with bias 1 (Fan et al., JMLR 9, 2008): the intercept is
    penalised too. Stops by its rule, ‖∇‖ ≤ tolerance · min(n₊, n₋) / n · ‖∇₀‖, more tightly than with its 1e-4, so that
    rounding on another machine hardly ever changes an order of scores.

    Args:
        features: `[n, d]`.
        targets: `[n, labels]`.
        C: inverse strength of the penalty.
        tolerance: relative norm of the gradient at which a label is done.

    Returns:
        `[d + 1, labels]`, the intercepts last. A label without positive rows has intercept -inf, one with only
        positive rows +inf, and weights 0.
    """
    n, d = features.shape
    A = np.empty((n, d + 1))
    A[:, :d], A[:, d] = features, 1.0
    weights = np.zeros((d + 1, targets.shape[1]))
    positives = targets.sum(axis=0)
    weights[d, positives == 0] = -np.inf
    weights[d, positives == n] = np.inf
    proper = np.flatnonzero((positives > 0) & (positives < n))
    for first in range(0, len(proper), LABEL_BLOCK):
        block = proper[first : first + LABEL_BLOCK]
        weights[:, block] = _newton(A, targets[:, block], C, tolerance)
    return weights


def decision_function(features: NDArray[np.floating[Any]], weights: Floats) -> Floats:
    """Logits `[n, labels]` of rows under weights `[d + 1, labels]`."""
    columns = np.ascontiguousarray(features.T, np.float64)
    return np.asarray(product(columns, np.ascontiguousarray(weights[:-1])) + weights[-1])


def _newton(A: Floats, targets: NDArray[np.bool_], C: float, tolerance: float) -> Floats:
    n, labels = targets.shape
    A32 = A.astype(np.float32)
    gram = transposed_product(A, A)
    columns, columns32 = np.ascontiguousarray(A.T), np.ascontiguousarray(A32.T)
    signs = np.where(targets, 1.0, -1.0)
    W, Z = np.zeros((A.shape[1], labels)), np.zeros((n, labels))
    first = np.zeros(labels)
    share = np.minimum(targets.sum(axis=0), n - targets.sum(axis=0)) / n
    active = np.arange(labels)
    near, inverted_mean = np.empty((0, 0)), 0.0
    for step in range(MAX_NEWTON_STEPS):
        S, w, z = signs[:, active], W[:, active], Z[:, active]
        miss = _sigmoid(-S * z)
        gradient = w - C * transposed_product(A, S * miss)
        norms = np.sqrt(column_dots(gradient, gradient))
        if step == 0:
            first[:] = norms
        left = norms > tolerance * share[active] * first[active]
        if not left.any():
            break
        if not left.all():
            active = active[left]
            S, w, z, miss = S[:, left], w[:, left], z[:, left], miss[:, left]
            gradient, norms = gradient[:, left], norms[left]
        curvature = C * miss * (1 - miss)
        forcing = np.clip(np.sqrt(norms / first[active]), 1e-3, 0.25)
        curved = curvature.astype(np.float32)
        mean = float(column_dots(curvature, np.ones_like(curvature)).sum()) / curvature.size
        if not inverted_mean / 2 <= mean <= inverted_mean * 2:
            near, inverted_mean = inverse(np.eye(len(gram)) + mean * gram), mean
        scaled = _solve(
            A32, columns32, curved, near,
            (-gradient / norms).astype(np.float32), forcing.astype(np.float32),
        )  # fmt: skip
        direction = np.asarray(scaled * norms, np.float64)
        along = product(columns, direction)
        length = _line_search(w, z, S, gradient, direction, along, C)
        W[:, active] = w + length * direction
        Z[:, active] = z + length * along
    return W


def _solve(A: Singles, columns: Singles, curvature: Singles, near: Floats, right: Singles, goal: Singles) -> Singles:
    """Conjugate gradients on (I + AᵀDA) x = right, one D per column, until residual norms are below `goal`.

    ``columns`` is Aᵀ, and ``near`` the inverse of a matrix near all of these, in float64: of columns of which some
    are sums of others, with a weak penalty, the eigenvalues span more than float32 has digits.
    """
    tiny = np.finfo(np.float32).tiny
    x, residual = np.zeros_like(right), right.copy()
    search = product(near, residual.astype(np.float64)).astype(np.float32)
    rho = column_dots(residual, search)
    for _ in range(MAX_INNER_STEPS):
        weighted = product(columns, search)
        weighted *= curvature
        image = transposed_product(A, weighted)
        image += search
        alpha = rho / np.maximum(column_dots(search, image), tiny)
        x += alpha * search
        residual -= alpha * image
        if (np.sqrt(column_dots(residual, residual)) <= goal).all():
            break
        scaled = product(near, residual.astype(np.float64)).astype(np.float32)
        following = column_dots(residual, scaled)
        search = np.asarray(scaled + (following / np.maximum(rho, tiny)) * search, np.float32)
        rho = following
    return x


def _line_search(
    w: Floats, z: Floats, S: Floats, gradient: Floats, direction: Floats, along: Floats, C: float
) -> Floats:
    """Step lengths that meet Armijo's rule, halved from 1, one per label."""
    slope = column_dots(gradient, direction)
    start = _objective(w, z, S, C)
    length = np.ones(w.shape[1])
    failing = np.arange(len(length))
    for _ in range(30):
        t = length[failing]
        value = _objective(
            w[:, failing] + t * direction[:, failing], z[:, failing] + t * along[:, failing], S[:, failing], C
        )
        # The last term forgives rounding where the objective is flat.
        bad = value > start[failing] + 1e-4 * t * slope[failing] + 1e-12 * start[failing]
        failing = failing[bad]
        if not len(failing):
            break
        length[failing] /= 2
    return length


def _objective(w: Floats, z: Floats, S: Floats, C: float) -> Floats:
    margins = S * z
    logs = log1p_of(exponential(-np.abs(margins).reshape(-1))).reshape(margins.shape)
    losses = np.maximum(-margins, 0) + logs
    return np.asarray(0.5 * column_dots(w, w) + C * column_dots(losses, np.ones_like(losses)))


def _sigmoid(x: Floats) -> Floats:
    small = exponential(-np.abs(x).reshape(-1)).reshape(x.shape)
    return np.where(x < 0, small, 1.0) / (1 + small)
