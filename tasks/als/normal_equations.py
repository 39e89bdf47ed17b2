"""Normal equations of a vertex's ratings, which updates of factors solve; sums and decomposition are of float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_FEW = 32
"""Factors up to which loops of known length are worth needless products."""


def add_ratings(
    scope: Any, gram: Any, right: Any, mean: float, scale: float, times: Any = None, slices: Any = None,
    sums: Any = None,
) -> None:  # fmt: skip
    """Add up products of the neighbours' factors, four by four, and the ratings times them.

    Args:
        scope: of the vertex.
        gram: float64 [factors, factors], zeros; becomes the sum of the products.
        right: float64 [factors], zeros; becomes the sum of (rating - mean) / scale times factors.
        mean, scale: of ratings.
        times: float64 [slices, factors], by whose row of the rating's slice the neighbour's factors are multiplied;
            None for none.
        slices: int32 [ratings]; [0] if all are of slice 0.
        sums: float64 [factors + 1], zeros; becomes the sums of factors and of ratings less the neighbours' biases,
            which are subtracted from the ratings. None if there are no biases.
    """
    size = len(right)
    near, given = np.empty((4, size)), np.empty(4)
    for first in range(0, scope.degree, 4):
        if first + 4 > scope.degree:
            near[:] = given[:] = 0.0
        for i in range(first, min(first + 4, scope.degree)):
            other, rating = scope.neighbour(i).factor, (scope.weight(i) - mean) / scale
            if sums is not None:
                rating -= scope.neighbour(i).bias
                sums[size] += rating
            for a in range(size):
                near[i - first, a] = other[a]
            if times is not None:
                row = times[slices[i] if len(slices) else 0]
                for a in range(size):
                    near[i - first, a] *= row[a]
            given[i - first] = rating
        add_products(gram, near)
        for a in range(size):
            w, x, y, z = near[0, a], near[1, a], near[2, a], near[3, a]
            right[a] += given[0] * w + given[1] * x + given[2] * y + given[3] * z
            if sums is not None:
                sums[a] += w + x + y + z


def add_products(gram: Any, near: Any) -> None:
    """Add up products of four vectors' numbers, those of the lower triangle and some above it.

    Compilers vectorize loops of known length: few factors are added in squares, which is sooner done than rows of all
    lengths one number at a time.

    Args:
        gram: float64 [factors, factors].
        near: float64 [4, factors].
    """
    size = len(gram)
    add_rows(gram, near, 0, min(8, size), min(8, size))
    add_rows(gram, near, min(8, size), min(16, size), min(16, size))
    add_rows(gram, near, min(16, size), min(_FEW, size), min(_FEW, size))
    for a in range(_FEW, size):
        add_rows(gram, near, a, a + 1, a + 1)


def add_rows(gram: Any, near: Any, low: int, high: int, width: int) -> None:
    """Add the products of rows from `low` to `high`, as many in each as `width`; see `add_products`."""
    for a in range(low, high):
        w, x, y, z = near[0, a], near[1, a], near[2, a], near[3, a]
        for b in range(width):
            gram[a, b] += w * near[0, b] + x * near[1, b] + y * near[2, b] + z * near[3, b]


def decompose(gram: Any, right: Any = None) -> None:
    """Cholesky's decomposition: the lower triangle of a matrix becomes that of L, where L Lᵀ is the matrix.

    Columns are subtracted from all that follow; of few factors whole rows, whose loops are vectorized, so that what
    comes above the diagonal means nothing.

    Args:
        gram: float64 [n, n].
        right: float64 [n], becomes x of L x = right; None for none.
    """
    size = len(gram)
    column = np.zeros(size)
    for k in range(size):
        root = math.sqrt(gram[k, k])
        inverse = 1.0 / root
        gram[k, k] = root
        column[k] = 0.0
        for a in range(k + 1, size):
            gram[a, k] *= inverse
            column[a] = gram[a, k]
        if right is not None:
            found = right[k] * inverse
            for a in range(size):
                right[a] -= found * column[a]
            right[k] = found
        for a in range(k + 1, size):
            scale = column[a]
            if size <= _FEW:  # a loop of its own: its length is known to the compiler
                for b in range(size):
                    gram[a, b] -= scale * column[b]
            else:
                for b in range(k + 1, a + 1):
                    gram[a, b] -= scale * column[b]


def solve_upper(lower: Any, right: Any) -> None:
    """Solve Lᵀ x = right; `right` becomes x.

    Rows of L are subtracted from what is left of `right`, whole ones: beyond the diagonal they mean nothing, and there
    nothing is read any more.
    """
    size = len(right)
    inverse, found = np.empty(size), np.empty(size)
    for a in range(size):
        inverse[a] = 1.0 / lower[a, a]
    for a in range(size - 1, -1, -1):
        value = right[a] * inverse[a]
        found[a] = value
        for b in range(size if size <= _FEW else a):
            right[b] -= value * lower[a, b]
    for a in range(size):
        right[a] = found[a]
