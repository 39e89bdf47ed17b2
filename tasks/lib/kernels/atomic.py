"""Memory operations that Numba does not offer: atomics and unaligned words; for kernels that share a table."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types

from superworkflow.tasks.lib.kernels.intrinsics import kernel_intrinsic, pointer_to


@kernel_intrinsic
def load_acquire(typing: Any, array: Any, index: Any) -> Any:
    """`array[index]`, seeing all that the thread wrote that stored it with `store_release`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = pointer_to(context, builder, signature.args[0], args[0], args[1])
        return builder.load_atomic(pointer, "acquire", 8)

    return array.dtype(array, types.intp), generate


@kernel_intrinsic
def store_release(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Set `array[index]`; a thread that loads it with `load_acquire` sees all earlier writes of this one."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = pointer_to(context, builder, signature.args[0], args[0], args[1])
        builder.store_atomic(args[2], pointer, "release", 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), generate


@kernel_intrinsic
def exchange_if(typing: Any, array: Any, index: Any, expected: Any, value: Any) -> Any:
    """Set `array[index]` to `value` if it is `expected`; true when it was."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = pointer_to(context, builder, signature.args[0], args[0], args[1])
        outcome = builder.cmpxchg(pointer, args[2], args[3], "acq_rel", "monotonic")
        return builder.extract_value(outcome, 1)

    return types.boolean(array, types.intp, array.dtype, array.dtype), generate


@kernel_intrinsic
def fetch_add(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Add `value` to `array[index]`; returns what was there before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = pointer_to(context, builder, signature.args[0], args[0], args[1])
        return builder.atomic_rmw("add", pointer, args[2], "acq_rel")

    return array.dtype(array, types.intp, array.dtype), generate


@kernel_intrinsic
def word_at(typing: Any, data: Any, index: Any) -> Any:
    """The eight bytes at `data[index:index + 8]` of a uint8 array as a little-endian uint64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = pointer_to(context, builder, signature.args[0], args[0], args[1])
        word = builder.bitcast(pointer, ir.IntType(64).as_pointer())
        return builder.load(word, align=1)

    return types.uint64(data, types.intp), generate


@kernel_intrinsic
def positions_of(typing: Any, data: Any, index: Any, byte1: Any, byte2: Any, byte3: Any) -> Any:
    """Bit i is set when `data[index + i]`, 0 <= i < 64, is one of three bytes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = ir.VectorType(ir.IntType(8), 64)
        pointer = builder.bitcast(pointer_to(context, builder, signature.args[0], args[0], args[1]), lanes.as_pointer())
        text = builder.load(pointer, align=1)
        found = None
        for byte in args[2:]:
            same = builder.icmp_unsigned("==", text, _in_all_lanes(builder, lanes, byte))
            found = same if found is None else builder.or_(found, same)
        return builder.bitcast(found, ir.IntType(64))

    return types.uint64(data, types.intp, types.uint8, types.uint8, types.uint8), generate


@kernel_intrinsic
def lane_of_pair(typing: Any, words: Any, index: Any, first: Any, second: Any, mask: Any) -> Any:
    """Smallest even i < 8 with `words[index + i] == first` and `words[index + i + 1] & mask == second`; else 64.

    The eight words are read in no certain order.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        lanes = ir.VectorType(word, 8)
        pointer = builder.bitcast(pointer_to(context, builder, signature.args[0], args[0], args[1]), lanes.as_pointer())
        odd = ir.Constant(ir.VectorType(ir.IntType(32), 8), [0, 8] * 4)
        everything = ir.Constant(lanes, [(1 << 64) - 1] * 8)
        masks = builder.shuffle_vector(everything, _in_all_lanes(builder, lanes, args[4]), odd)
        pair = builder.shuffle_vector(
            _in_all_lanes(builder, lanes, args[2]), _in_all_lanes(builder, lanes, args[3]), odd
        )
        same = builder.icmp_unsigned("==", builder.and_(builder.load(pointer, align=8), masks), pair)
        bits = builder.zext(builder.bitcast(same, ir.IntType(8)), word)
        both = builder.and_(builder.and_(bits, builder.lshr(bits, word(1))), word(0x55))
        return builder.cttz(both, ir.Constant(ir.IntType(1), 0))

    return types.uint64(words, types.intp, types.uint64, types.uint64, types.uint64), generate


def _in_all_lanes(builder: Any, lanes: Any, value: Any) -> Any:
    one = builder.insert_element(ir.Constant(lanes, ir.Undefined), value, ir.IntType(32)(0))
    first = ir.Constant(ir.VectorType(ir.IntType(32), lanes.count), [0] * lanes.count)
    return builder.shuffle_vector(one, one, first)
