"""Sums of 16, 32 or 64 float32 side by side, which a kernel holds in registers over a loop.

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
"""Columns of the narrowest sum: rows that are read have a multiple of it."""
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


zeros16, zeros32, zeros64 = _zeros(16), _zeros(32), _zeros(64)


def _place(context: Any, builder: Any, flat_type: Any, flat: Any, first: Any, count: int) -> Any:
    """Address of the first of `count` numbers of a flat array; where kernels are compiled with bounds checks, so are
    these."""
    view = context.make_array(flat_type)(context, builder, flat)
    if context.enable_boundscheck:
        length = builder.extract_value(view.shape, 0)
        _check(context, builder, first, length)
        _check(context, builder, builder.add(first, first.type(count - 1)), length)
    return builder.gep(view.data, [first])


@kernel_intrinsic
def plus_row(typing_context: Any, total: Any, flat: Any, first: Any) -> Any:
    """``plus_row(total, flat, first)``: total + the numbers of a flat array from `first` on, float32 or the bits of
    bfloat16."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        before, array, place = arguments
        vector, count = before.type, total.count
        pointer = _place(context, builder, flat, array, place, count)
        if not isinstance(flat.dtype, types.Integer):
            values = builder.load(builder.bitcast(pointer, vector.as_pointer()), align=4)
        else:
            shorts, words = ir.VectorType(_SHORT, count), ir.VectorType(_WORD, count)
            bits = builder.zext(builder.load(builder.bitcast(pointer, shorts.as_pointer()), align=2), words)
            values = builder.bitcast(builder.shl(bits, ir.Constant(words, [16] * count)), vector)
        return builder.fadd(before, values)

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
        one = builder.insert_element(ir.Constant(value.type, ir.Undefined), factor, _WORD(0))
        lanes = ir.Constant(ir.VectorType(_WORD, total.count), [0] * total.count)
        factors = builder.shuffle_vector(one, ir.Constant(value.type, ir.Undefined), lanes)
        pointer = _place(context, builder, flat, array, place, total.count)
        builder.store(builder.fmul(value, factors), builder.bitcast(pointer, value.type.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(total, types.float32, flat, types.uint64), generate


def table_of(rows: int, width: int, dtype: Any) -> NDArray[Any]:
    """A table of zeros [rows, width rounded up to a multiple of `LEAST`], whose rows begin at cache lines if they are
    as long as some."""
    padded, size = -(-width // LEAST) * LEAST, np.dtype(dtype).itemsize
    room = np.zeros(rows * padded + _LINE_BYTES // size, dtype)
    first = -room.ctypes.data % _LINE_BYTES // size
    return room[first : first + rows * padded].reshape(rows, padded)
