"""Sums whose order is written down, so that the same figures come out of every processor.

A BLAS adds in an order of its own for each processor and number of threads, and NumPy's exponentials have other last
bits on other processors. What ranks scores must not depend on that: here every sum goes from the first term to the
last, in vectors over columns, without fused multiplications, and the functions are made of additions and
multiplications, which IEEE 754 fixes to the last bit.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_LOG2E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10
_SMALLEST = -700.0
"""Exponent under which e^x is taken as e^-700."""


_BLOCK = 1024


@nb.njit(cache=True, nogil=True)
def _add_four(out: Array, a: Array, b: Array, c: Array, d: Array, w: Any, x: Any, y: Any, z: Any) -> None:
    """out += w a + x b + y c + z d, term by term; the sum stays in a register."""
    for i in range(len(out)):
        out[i] = (((out[i] + a[i] * w) + b[i] * x) + c[i] * y) + d[i] * z


@nb.njit(cache=True, nogil=True)
def _add_one(out: Array, a: Array, w: Any) -> None:
    """out += w a."""
    for i in range(len(out)):
        out[i] = out[i] + a[i] * w


@nb.njit(cache=True, nogil=True)
def _sums(rows: Array, factors: Array) -> Array:
    """[m, length] sums over k of factors[k, m] rows[k], in order of k; rows [k, length]."""
    count, length = rows.shape
    out = np.zeros((factors.shape[1], length), rows.dtype)
    for low in range(0, length, _BLOCK):
        high = min(length, low + _BLOCK)
        for m in range(factors.shape[1]):
            to = out[m, low:high]
            whole = count // 4 * 4
            for k in range(0, whole, 4):
                _add_four(
                    to, rows[k, low:high], rows[k + 1, low:high], rows[k + 2, low:high], rows[k + 3, low:high],
                    factors[k, m], factors[k + 1, m], factors[k + 2, m], factors[k + 3, m],
                )  # fmt: skip
            for k in range(whole, count):
                _add_one(to, rows[k, low:high], factors[k, m])
    return out


@nb.njit(cache=True, nogil=True)
def _long_sums(rows: Array, factors: Array) -> Array:
    """As `_sums`, for many short rows: each is read once."""
    count, length = rows.shape
    out = np.zeros((factors.shape[1], length), rows.dtype)
    whole = count // 4 * 4
    for k in range(0, whole, 4):
        for m in range(factors.shape[1]):
            _add_four(
                out[m], rows[k], rows[k + 1], rows[k + 2], rows[k + 3],
                factors[k, m], factors[k + 1, m], factors[k + 2, m], factors[k + 3, m],
            )  # fmt: skip
    for k in range(whole, count):
        for m in range(factors.shape[1]):
            _add_one(out[m], rows[k], factors[k, m])
    return out


def product(a_columns: Array, b: Array) -> Array:
    """a b, [n, m], for a given by its columns [k, n], and b [k, m]; each entry is summed over k in order."""
    return np.ascontiguousarray(_sums(a_columns, b).T)


def transposed_product(a: Array, b: Array) -> Array:
    """aᵀ b, [k, m], for a [n, k] and b [n, m]; each entry is summed over n in order."""
    return np.ascontiguousarray(_long_sums(a, b).T)


@nb.njit(cache=True, nogil=True)
def inverse(matrix: Array) -> Array:
    """Inverse of a symmetric positive definite matrix, by Gauss-Jordan elimination, which needs no pivots then."""
    out = matrix.copy()
    for k in range(len(out)):
        scale = 1.0 / out[k, k]
        out[k, k] = 1.0
        for j in range(len(out)):
            out[k, j] *= scale
        for i in range(len(out)):
            if i != k:
                factor = -out[i, k]
                out[i, k] = 0.0
                _add_one(out[i], out[k], factor)
    return out


@nb.njit(cache=True, nogil=True)
def column_dots(a: Array, b: Array) -> Array:
    """Products of the columns of a and b, [n, m] each."""
    out = np.zeros(a.shape[1], a.dtype)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[j] += a[i, j] * b[i, j]
    return out


@nb.njit(cache=True, nogil=True)
def row_dots(a: Array, b: Array) -> NDArray[np.float64]:
    """Products of the rows of a and b, [n, d] each, in float64."""
    out = np.zeros(a.shape[0])
    for i in range(a.shape[0]):
        total = 0.0
        for k in range(a.shape[1]):
            total += np.float64(a[i, k]) * np.float64(b[i, k])
        out[i] = total
    return out


@nb.njit(cache=True, nogil=True)
def exponential(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """e^x for x <= 0, flat; to about 1e-15 of its value."""
    out = np.empty_like(x)
    power = np.empty(x.shape, np.int64)
    for i in range(len(x)):
        value = max(x[i], _SMALLEST)
        whole = np.floor(value * _LOG2E + 0.5)
        r = (value - whole * _LN2_HIGH) - whole * _LN2_LOW
        series = 1.0
        for k in range(13, 0, -1):
            series = 1.0 + series * r / k
        out[i] = series
        power[i] = (np.int64(whole) + 1023) << 52
    scale = power.view(np.float64)
    for i in range(len(x)):
        out[i] *= scale[i]
    return out


@nb.njit(cache=True, nogil=True)
def log1p_of(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(1 + y) for 0 <= y <= 1, flat, by 2 artanh(y / (2 + y)); to about 1e-15 of its value."""
    out = np.empty_like(y)
    for i in range(len(y)):
        z = y[i] / (2.0 + y[i])
        square = z * z
        series = 0.0
        for k in range(33, 0, -2):
            series = series * square + 1.0 / k
        out[i] = 2.0 * z * series
    return out
