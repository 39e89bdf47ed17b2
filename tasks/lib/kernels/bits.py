"""Compiled look at the bits of a word, one instruction each."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types

from superworkflow.tasks.lib.kernels.intrinsics import kernel_intrinsic


@kernel_intrinsic
def trailing_zeros(typing: Any, word: Any) -> Any:
    """Zeros below the lowest one of a uint64; 64 where it is 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@kernel_intrinsic
def count_ones(typing: Any, word: Any) -> Any:
    """Ones of a uint64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate
