"""A compiled copy of bytes between arrays, as fast as the processor moves them: what lies in them is not looked at."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types

from superworkflow.tasks.lib.kernels.intrinsics import kernel_intrinsic, pointer_to

STREAMED = 32
"""Bytes that `stream_bytes` copies."""
_LONG = types.int64


@kernel_intrinsic
def copy_bytes(typing: Any, target: Any, position: Any, source: Any, first: Any, count: Any) -> Any:
    """Copy ``source[first:first + count]`` to ``target[position:position + count]``: uint8 arrays, 1-D and contiguous,
    that do not overlap."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = pointer_to(context, builder, signature.args[0], args[0], args[1])
        begin = pointer_to(context, builder, signature.args[2], args[2], args[3])
        copy: Any = cgutils.raw_memcpy
        copy(builder, to, begin, args[4], 1)
        return context.get_dummy_value()

    return types.void(target, _LONG, source, _LONG, _LONG), generate


@kernel_intrinsic
def copy_from(typing: Any, target: Any, position: Any, address: Any, count: Any) -> Any:
    """Copy `count` bytes at an address to ``target[position:position + count]``, uint8."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = pointer_to(context, builder, signature.args[0], args[0], args[1])
        copy: Any = cgutils.raw_memcpy
        copy(builder, to, builder.inttoptr(args[2], to.type), args[3], 1)
        return context.get_dummy_value()

    return types.void(target, _LONG, _LONG, _LONG), generate


@kernel_intrinsic
def stream_bytes(typing: Any, target: Any, position: Any, source: Any, first: Any) -> Any:
    """Copy `STREAMED` bytes of one uint8 array to another, past the caches.

    The line that is written to is not read before. ``target[position]`` must be `STREAMED`-aligned in memory.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(32)
        lanes: Any = ir.VectorType(word, STREAMED // 4).as_pointer()
        to, begin = (
            builder.bitcast(pointer_to(context, builder, signature.args[i], args[i], args[i + 1]), lanes)
            for i in (0, 2)
        )
        stored = builder.store(builder.load(begin, align=1), to, align=STREAMED)
        stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(word, 1)]))
        return context.get_dummy_value()

    return types.void(target, _LONG, source, _LONG), generate


@kernel_intrinsic
def streamed(typing: Any) -> Any:
    """Make what was written by `stream_bytes` visible to other threads."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate
