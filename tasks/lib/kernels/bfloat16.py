"""Rows of bfloat16, which compiled code reads as bits: float32 with the upper half of its bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba as nb
import numpy as np
from numba.core import types
from numba.extending import overload

FLOAT32, BFLOAT16 = "float32", "bfloat16"
DTYPES: dict[str, np.dtype[Any]] = {FLOAT32: np.dtype(np.float32), BFLOAT16: np.dtype(np.uint16)}
"""Type of a table's numbers as kernels get them, by precision."""


def number_of(stored: Any) -> Any:
    """Value of a table's number, float32 or the bits of a bfloat16."""
    raise NotImplementedError("kernels alone call it")


@overload(number_of, strict=False)
def _number_of(stored: Any) -> Callable[[Any], Any]:
    if isinstance(stored, types.Integer):
        return lambda stored: np.uint32(np.uint32(stored) << np.uint32(16)).view(np.float32)
    return lambda stored: stored


@nb.njit(inline="always")
def rounded(value: Any) -> Any:
    """Bits of the bfloat16 that is nearest to a float32 that is not NaN, ties to even."""
    bits = np.float32(value).view(np.uint32)
    return np.uint16((bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16))


@nb.njit(nogil=True, cache=True)
def round_rows(rows: Any, out: Any, column: int) -> None:
    """Store rows rounded to bfloat16.

    Args:
        rows: float32 [r, d], no NaN.
        out: their bits, int16 or uint16 [r, at least column + d], filled from `column` on.
    """
    for i in range(len(rows)):
        row, filled = rows[i], out[i, column:]  # an index with a sum in it is not vectorized
        for c in range(len(row)):
            filled[c] = rounded(row[c])


def as_stored(table: Any, value: Any) -> Any:
    """A float32 as a table of this type stores it."""
    raise NotImplementedError("kernels alone call it")


@overload(as_stored, strict=False)
def _as_stored(table: Any, value: Any) -> Callable[[Any, Any], Any]:
    if isinstance(table.dtype, types.Integer):
        return lambda table, value: rounded(value)
    return lambda table, value: np.float32(value)
