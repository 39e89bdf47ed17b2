"""Exact sums of float64: whatever the order and the grouping of what is added, the same bits.

A small superaccumulator (Neal, "Fast Exact Summation Using Small and Large Superaccumulators", 2015): a fixed-point
number with a bit for each power of two that a float64 can have, in words of 32 bits. Each word is kept in an int64, so
that 2³⁰ values can be added before carries have to be looked at; sums are added up word by word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types

from superworkflow.tasks.lib.kernels.intrinsics import kernel_intrinsic

WORDS = 72
"""int64 of a sum: 67 of its digits, then how many values were not a number, infinite, and infinite below 0."""
_NAN, _INFINITE, _BELOW = 69, 70, 71
_MANTISSA = np.int64((1 << 52) - 1)
_LOWEST = 1075
"""Digit 0 counts multiples of 2 to the power of minus this."""


@kernel_intrinsic
def _bits_of(typing: Any, value: Any) -> Any:
    """Bits of a float64, as int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), generate


@nb.njit(nogil=True)
def add_exactly(sums, row, value):  # type: ignore[no-untyped-def]
    """Add a number to one of several sums.

    Args:
        sums: int64 [sums, WORDS].
        row: of the sum.
        value: float64.
    """
    if value == 0.0:
        return
    bits = _bits_of(value)
    exponent, mantissa = (bits >> 52) & 2047, bits & _MANTISSA
    if exponent == 2047:
        if mantissa != 0:
            sums[row, _NAN] += 1
        else:
            sums[row, _INFINITE if bits > 0 else _BELOW] += 1
        return
    if exponent == 0:
        exponent = np.int64(1)
    else:
        mantissa |= np.int64(1) << 52
    word, shift = exponent >> 5, exponent & 31
    low, high = (mantissa & 0xFFFFFFFF) << shift, (mantissa >> 32) << shift
    sign = np.int64(1) if bits >= 0 else np.int64(-1)
    sums[row, word] += sign * (low & 0xFFFFFFFF)
    sums[row, word + 1] += sign * ((low >> 32) + (high & 0xFFFFFFFF))
    sums[row, word + 2] += sign * (high >> 32)


def exact_total(words: Sequence[int]) -> float:
    """The float64 that is closest to a sum.

    Args:
        words: [WORDS] of the sum.
    """
    infinite, below = words[_INFINITE], words[_BELOW]
    if words[_NAN] or (infinite and below):
        return math.nan
    if infinite or below:
        return math.inf if infinite else -math.inf
    total = sum(int(word) << (32 * place) for place, word in enumerate(words[:_NAN]) if word)
    try:
        return total / (1 << _LOWEST)
    except OverflowError:
        return math.inf if total > 0 else -math.inf
