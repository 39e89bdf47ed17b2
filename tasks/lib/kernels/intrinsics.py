"""Declaration of intrinsics: functions that kernels call and that are written in LLVM's instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.extending import intrinsic


def kernel_intrinsic(declare: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's `intrinsic`, as kernels call it: Numba itself gives the first argument."""
    made: Callable[..., Any] = intrinsic(declare)
    return made


def pointer_to(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Address of `array[index]` of a one-dimensional contiguous array, without bounds or sign checks."""
    view = context.make_array(array_type)(context, builder, array)
    return builder.gep(view.data, [index])
