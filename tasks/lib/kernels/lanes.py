"""Sums of 8, 16, 32 or 64 float32 side by side, which a kernel holds in registers over a loop.

LLVM keeps the row of an array that a loop adds to in memory, and reads and writes it again for each arc. These values
are vectors: it splits them into as many registers as the processor needs. Additions are in the order in which they are
written, column by column, so that results do not depend on the number of columns that are summed at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import models, register_model
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.intrinsics import kernel_intrinsic
from superworkflow.tasks.lib.kernels.prefetch import SECOND, hint

LEAST = 16
"""Columns of the narrowest sum of rows: rows that are read have a multiple of it."""
GROUP = 8
"""Columns that `plus_scaled` multiplies with one factor."""
_LINE_BYTES = 64
_SHORT, _WORD = ir.IntType(16), ir.IntType(32)
_check: Any = cgutils.do_boundscheck


class Lanes(types.Type):
    """Numba's type of such a sum."""

    def __init__(self, count: int):
        self.count = count
        super().__init__(f"Lanes({count})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Lanes):
        super().__init__(manager, kind, ir.VectorType(ir.FloatType(), kind.count))  # type: ignore[no-untyped-call]


def _zeros(count: int) -> Any:
    def typed(typing_context: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return ir.Constant(context.get_value_type(signature.return_type), [0.0] * count)

        return Lanes(count)(), generate

    return kernel_intrinsic(typed)


zeros8, zeros16, zeros32, zeros64 = _zeros(8), _zeros(16), _zeros(32), _zeros(64)


def _place(context: Any, builder: Any, flat_type: Any, flat: Any, first: Any, count: int) -> Any:
    """Address of the first of `count` numbers of a flat array; where kernels are compiled with bounds checks, so are
    these."""
    view = context.make_array(flat_type)(context, builder, flat)
    if context.enable_boundscheck:
        length = builder.extract_value(view.shape, 0)
        _check(context, builder, first, length)
        _check(context, builder, builder.add(first, first.type(count - 1)), length)
    return builder.gep(view.data, [first])


def _loaded(context: Any, builder: Any, flat_type: Any, flat: Any, first: Any, count: int) -> Any:
    """The `count` numbers of a flat array from the first on, float32 or the bits of bfloat16."""
    pointer, vector = _place(context, builder, flat_type, flat, first, count), ir.VectorType(ir.FloatType(), count)
    if not isinstance(flat_type.dtype, types.Integer):
        return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=4)
    shorts, words = ir.VectorType(_SHORT, count), ir.VectorType(_WORD, count)
    bits = builder.zext(builder.load(builder.bitcast(pointer, shorts.as_pointer()), align=2), words)
    return builder.bitcast(builder.shl(bits, ir.Constant(words, [16] * count)), vector)


def _spread(builder: Any, value: Any, count: int) -> Any:
    """A number in each of `count` lanes."""
    undefined = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    one = builder.insert_element(undefined, value, _WORD(0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(_WORD, count), [0] * count))


@kernel_intrinsic
def plus_row(typing_context: Any, total: Any, flat: Any, first: Any) -> Any:
    """``plus_row(total, flat, first)``: total + the numbers of a flat array from `first` on, float32 or the bits of
    bfloat16."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        before, array, place = arguments
        return builder.fadd(before, _loaded(context, builder, flat, array, place, total.count))

    return total(total, flat, types.uint64), generate


@kernel_intrinsic
def plus_product(typing_context: Any, total: Any, one: Any, first: Any, other: Any, place: Any) -> Any:
    """``plus_product(total, one, first, other, place)``: total + the product of the numbers of two flat arrays."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        before, left, left_place, right, right_place = arguments
        values = _loaded(context, builder, one, left, left_place, total.count)
        others = _loaded(context, builder, other, right, right_place, total.count)
        return builder.fadd(before, builder.fmul(values, others))

    return total(total, one, types.uint64, other, types.uint64), generate


@kernel_intrinsic
def plus_scaled(typing_context: Any, total: Any, factors: Any, begin: Any, step: Any, flat: Any, first: Any) -> Any:
    """``plus_scaled(total, factors, begin, step, flat, first)``: total + the numbers of a flat array from `first` on,
    each `GROUP` times a factor, those at `begin`, `begin` + `step`, … of a flat float32 array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        before, weights, position, stride, array, place = arguments
        values, many = _loaded(context, builder, flat, array, place, total.count), None
        for group in range(total.count // GROUP):
            if group:
                position = builder.add(position, stride)
            pointer = _place(context, builder, factors, weights, position, 1)
            one = _spread(builder, builder.load(pointer), GROUP * max(1, group))
            if many is None:
                many = one
                continue
            lanes = ir.Constant(ir.VectorType(_WORD, GROUP * (group + 1)), [*range(GROUP * (group + 1))])
            many = builder.shuffle_vector(many, one, lanes)
        return builder.fadd(before, builder.fmul(values, many))

    return total(total, factors, types.uint64, types.uint64, flat, types.uint64), generate


@kernel_intrinsic
def highest(typing_context: Any, total: Any, flat: Any, first: Any) -> Any:
    """``highest(total, flat, first)``: in each lane the higher of total and the number of a flat array; total where
    that is NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        before, array, place = arguments
        values = _loaded(context, builder, flat, array, place, total.count)
        return builder.select(builder.fcmp_ordered(">", values, before), values, before)

    return total(total, flat, types.uint64), generate


@kernel_intrinsic
def bring_row(typing_context: Any, total: Any, flat: Any, first: Any) -> Any:
    """``bring_row(total, flat, first)``: the hint of `prefetch.prefetch_far` for what `plus_row` will read."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(flat)(context, builder, arguments[1]).data
        step = _LINE_BYTES * 8 // flat.dtype.bitwidth
        for column in range(0, total.count, step):
            hint(builder, builder.gep(data, [builder.add(arguments[2], arguments[2].type(column))]), SECOND)
        return context.get_dummy_value()

    return types.void(total, flat, types.uint64), generate


@kernel_intrinsic
def put_row(typing_context: Any, total: Any, factor: Any, flat: Any, first: Any) -> Any:
    """``put_row(total, factor, flat, first)``: store total x factor in a flat float32 array from `first` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, factor, array, place = arguments
        factors = _spread(builder, factor, total.count)
        pointer = _place(context, builder, flat, array, place, total.count)
        builder.store(builder.fmul(value, factors), builder.bitcast(pointer, value.type.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(total, types.float32, flat, types.uint64), generate


def table_of(rows: int, width: int, dtype: Any, multiple: int = LEAST) -> NDArray[Any]:
    """A table of zeros [rows, width rounded up to this multiple], whose rows begin at cache lines if they are as long
    as some."""
    padded, size = -(-width // multiple) * multiple, np.dtype(dtype).itemsize
    room = np.zeros(rows * padded + _LINE_BYTES // size, dtype)
    first = -room.ctypes.data % _LINE_BYTES // size
    return room[first : first + rows * padded].reshape(rows, padded)
