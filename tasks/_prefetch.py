"""A compiled hint: bring a cache line into the first-level cache, without waiting for it. It never faults."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic


def hint(builder: Any, pointer: Any) -> None:
    """Add the hint for the line at `pointer` to the code of an intrinsic: a read, of data used again soon."""
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    insert: Any = cgutils.get_or_insert_function
    function = insert(builder.module, kind, "llvm.prefetch.p0i8")
    builder.call(function, [builder.bitcast(pointer, byte), word(0), word(3), word(1)])


def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Type and code, for Numba."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        hint(builder, builder.gep(data, [arguments[1]]))
        return context.get_dummy_value()

    return types.void(array, index), generate


prefetch: Any = intrinsic(_prefetch)
"""``prefetch(array, index)``: the hint for ``array[index]``; array 1-D contiguous, index a 64-bit integer."""
