"""A compiled copy of bytes between arrays, as fast as the processor moves them: what lies in them is not looked at."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

STREAMED = 32
"""Bytes that `stream_bytes` copies."""


def _copy_bytes(typing_context: Any, target: Any, position: Any, source: Any, first: Any, count: Any) -> Any:
    """Type and code, for Numba."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def place(array: int) -> Any:
            data = context.make_array(signature.args[array])(context, builder, arguments[array]).data
            return builder.gep(data, [arguments[array + 1]])

        copy: Any = cgutils.raw_memcpy
        copy(builder, place(0), place(2), arguments[4], 1)
        return context.get_dummy_value()

    long = types.int64
    return types.void(target, long, source, long, long), generate


def _copy_from(typing_context: Any, target: Any, position: Any, address: Any, count: Any) -> Any:
    """Type and code, for Numba."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(data, [arguments[1]])
        copy: Any = cgutils.raw_memcpy
        copy(builder, place, builder.inttoptr(arguments[2], place.type), arguments[3], 1)
        return context.get_dummy_value()

    long = types.int64
    return types.void(target, long, long, long), generate


def _stream_bytes(typing_context: Any, target: Any, position: Any, source: Any, first: Any) -> Any:
    """Type and code, for Numba."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def place(array: int) -> Any:
            data = context.make_array(signature.args[array])(context, builder, arguments[array]).data
            return builder.bitcast(builder.gep(data, [arguments[array + 1]]), lanes.as_pointer())

        word = ir.IntType(32)
        lanes: Any = ir.VectorType(word, STREAMED // 4)
        loaded = builder.load(place(2), align=1)
        stored = builder.store(loaded, place(0), align=STREAMED)
        stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(word, 1)]))
        return context.get_dummy_value()

    long = types.int64
    return types.void(target, long, source, long), generate


def _streamed(typing_context: Any) -> Any:
    """Type and code, for Numba."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


copy_from: Any = intrinsic(_copy_from)
"""``copy_from(target, at, address, count)``: ``target[at:at + count]``, uint8, becomes what is at an address."""
copy_bytes: Any = intrinsic(_copy_bytes)
"""``copy_bytes(target, at, source, first, count)``: ``target[at:at + count] = source[first:first + count]``, of two
uint8 arrays, 1-D and contiguous, that do not overlap."""
stream_bytes: Any = intrinsic(_stream_bytes)
"""``stream_bytes(target, at, source, first)``: `STREAMED` bytes of one uint8 array to another, past the caches,
so that the line that is written to is not read before. ``target[at]`` must be `STREAMED`-aligned in memory."""
streamed: Any = intrinsic(_streamed)
"""``streamed()``: what was written by `stream_bytes` is there for other threads."""
