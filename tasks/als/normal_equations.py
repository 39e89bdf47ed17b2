"""Normal equations of a vertex's ratings, which updates of factors solve; sums and decomposition are of float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def add_ratings(
    scope: Any, gram: Any, right: Any, mean: float, scale: float, times: Any = None, slices: Any = None
) -> None:  # fmt: skip
    """Add up products of the neighbours' factors, four by four, and the ratings times them.

    Args:
        scope: of the vertex.
        gram: float64 [factors, factors], zeros; its lower triangle becomes the sum of the products.
        right: float64 [factors], zeros; becomes the sum of (rating - mean) / scale times factors.
        mean, scale: of ratings.
        times: float64 [slices, factors], by whose row of the rating's slice the neighbour's factors are multiplied;
            None for none.
        slices: int32 [ratings]; [0] if all are of slice 0.
    """
    size = len(right)
    near = np.empty((4, size))
    for first in range(0, scope.degree, 4):
        near[:] = 0.0
        for i in range(first, min(first + 4, scope.degree)):
            other, rating = scope.neighbour(i).factor, (scope.weight(i) - mean) / scale
            for a in range(size):
                near[i - first, a] = other[a]
            if times is not None:
                row = times[slices[i] if len(slices) else 0]
                for a in range(size):
                    near[i - first, a] *= row[a]
            for a in range(size):
                right[a] += rating * near[i - first, a]
        for a in range(size):
            w, x, y, z = near[0, a], near[1, a], near[2, a], near[3, a]
            for b in range(a + 1):
                gram[a, b] += w * near[0, b] + x * near[1, b] + y * near[2, b] + z * near[3, b]


def decompose(gram: Any) -> None:
    """Cholesky's decomposition: the lower triangle of a matrix becomes that of L, where L Lᵀ is the matrix."""
    for a in range(len(gram)):
        for b in range(a + 1):
            total = gram[a, b]
            for k in range(b):
                total -= gram[a, k] * gram[b, k]
            gram[a, b] = math.sqrt(total) if a == b else total / gram[b, b]


def solve_lower(lower: Any, right: Any) -> None:
    """Solve L x = right; `right` becomes x."""
    for a in range(len(right)):
        total = right[a]
        for k in range(a):
            total -= lower[a, k] * right[k]
        right[a] = total / lower[a, a]


def solve_upper(lower: Any, right: Any) -> None:
    """Solve Lᵀ x = right; `right` becomes x."""
    for a in range(len(right) - 1, -1, -1):
        total = right[a]
        for k in range(a + 1, len(right)):
            total -= lower[k, a] * right[k]
        right[a] = total / lower[a, a]
