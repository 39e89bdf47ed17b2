"""Draws from the posterior of Bayesian factorization that are made for all vertices at once.

No BLAS is called, whose sums differ by machine.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.als.normal_equations import decompose, solve_upper

_PRIOR = 2.0
"""Observations that the prior of a mean counts as, β₀ of the papers."""
_FIRST = 1.0
"""Mean of the prior of the first slice's factors, ρ₀: factors of 1 are those of a matrix."""

Array = NDArray[np.float64]


def draw_side(count: float, sums: Array, products: Array, random: np.random.Generator) -> Array:
    """Mean and precision of a side's factors, by equation 14 of Salakhutdinov and Mnih; the prior has mean 0, W₀ = I.

    Args:
        count: vertices of the side.
        sums: float64 [factors].
        products: float64 [factors, factors], lower triangle of the sums of products.
        random: source of numbers.

    Returns:
        float64 [factors + factors²].
    """
    size, mean = len(sums), sums / max(1.0, count)
    inverse = np.eye(size) + products - count * np.outer(mean, mean)
    inverse += _PRIOR * count / (_PRIOR + count) * np.outer(mean, mean)
    drawn = _draw_normal(inverse, size + count, count * mean / (_PRIOR + count), _PRIOR + count, random)
    return np.concatenate([drawn[0], drawn[1].reshape(-1)])


def draw_chain(factors: Array, random: np.random.Generator) -> tuple[Array, Array]:
    """Mean of the first slice's factors, and precision of the steps between slices; the prior has mean 1, W₀ = I.

    Args:
        factors: float64 [slices, factors].
        random: source of numbers.
    """
    slices, size = factors.shape
    change, first = np.diff(factors, axis=0), factors[0] - _FIRST
    inverse = np.eye(size) + (change[:, :, None] * change[:, None, :]).sum(axis=0)
    inverse += _PRIOR / (_PRIOR + 1) * np.outer(first, first)
    mean = (_PRIOR * _FIRST + factors[0]) / (_PRIOR + 1)
    return _draw_normal(inverse, size + slices, mean, _PRIOR + 1, random)


def draw_slices(
    factors: Array, chain: tuple[Array, Array], sums: Array, products: Array, precision: float,
    random: np.random.Generator,
) -> Array:  # fmt: skip
    """Factors of the slices of time, one after the other given those before and after it.

    Args:
        factors: float64 [slices, factors], the last draw.
        chain: as `draw_chain` returns it.
        sums: float64 [slices, factors], ratings times the products of the factors of their user and item.
        products: float64 [slices, factors, factors], lower triangles of the sums of these products' products.
        precision: of ratings.
        random: source of numbers.

    Returns:
        float64 [slices, factors].
    """
    made, (mean, steps) = factors.copy(), chain
    for k in range(len(made)):
        last = k + 1 == len(made)
        near = (made[k - 1] if k else mean) + (0.0 if last else made[k + 1])
        lower = precision * products[k] + (1 if last else 2) * steps
        right = precision * sums[k] + (steps * near).sum(axis=1)
        decompose(lower, right)
        right += random.standard_normal(len(right))
        solve_upper(lower, right)
        made[k] = right
    return made


def _draw_normal(
    inverse: Array, freedom: float, mean: Array, strength: float, random: np.random.Generator
) -> tuple[Array, Array]:  # fmt: skip
    """Mean and precision of a normal distribution from their Gaussian-Wishart posterior.

    A Wishart matrix is drawn by Bartlett's decomposition.

    Args:
        inverse: float64 [n, n], lower triangle of the inverse scale; is used up.
        freedom: degrees of freedom.
        mean: float64 [n], mean of the mean.
        strength: observations that it counts as.
        random: source of numbers.
    """
    size = len(mean)
    decompose(inverse)
    root: Array = np.zeros((size, size))
    normals: Any = random.standard_normal((size, size))
    chis = np.sqrt(random.chisquare(freedom - np.arange(size)))
    for a in range(size):  # the column of Bartlett's factor, then of the precision's root, L⁻ᵀ of it
        root[a + 1 :, a], root[a, a] = normals[a + 1 :, a], chis[a]
    bartlett = root.copy()
    for a in range(size):
        solve_upper(inverse, root[:, a])
    precision: Array = (root[:, None, :] * root[None, :, :]).sum(axis=2)
    offset = random.standard_normal(size)
    solve_upper(bartlett, offset)
    return mean + (np.tril(inverse) * offset).sum(axis=1) / math.sqrt(strength), precision
