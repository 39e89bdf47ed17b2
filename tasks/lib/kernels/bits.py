"""Compiled look at the bits of a word, one instruction each."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic


def _trailing_zeros(typing_context: Any, word: Any) -> Any:
    """Type and code, for Numba."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


def _count_ones(typing_context: Any, word: Any) -> Any:
    """Type and code, for Numba."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


trailing_zeros: Any = intrinsic(_trailing_zeros)
"""Zeros below the lowest one of a uint64; 64 where it is 0."""
count_ones: Any = intrinsic(_count_ones)
"""Ones of a uint64."""
