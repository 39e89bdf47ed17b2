"""Rows of float16 and bfloat16, which compiled code reads as bits and widens where it reads a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba as nb
import numpy as np
from numba.core import types
from numba.extending import overload
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.bfloat16 import number_of


def as_read(table: NDArray[Any]) -> NDArray[Any]:
    """A table of float32 or of the bits of bfloat16, int16, as it is; the bits, uint16, of one of float16."""
    return table.view(np.uint16) if table.dtype == np.float16 else table


@nb.njit(inline="always")
def widened(bits: Any) -> Any:
    """A finite float16 as float32: sign, exponent and mantissa moved in place and scaled, which is exact."""
    word = np.uint32(bits)
    moved = (word & np.uint32(0x7FFF)) << np.uint32(13) | (word & np.uint32(0x8000)) << np.uint32(16)
    return np.uint32(moved).view(np.float32) * np.float32(2.0**112)


def value_of(number: Any) -> Any:
    """Value of a table's number as kernels get it: see `as_read`."""
    raise NotImplementedError("kernels alone call it")


@overload(value_of, strict=False)  # it would have annotations of types in both, or in none
def _value_of(number: Any) -> Callable[[Any], Any]:
    if isinstance(number, types.Integer):
        return (lambda number: number_of(number)) if number == types.int16 else (lambda number: widened(number))
    return lambda number: number
