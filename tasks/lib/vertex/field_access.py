"""Values of fields as compiled updates read and write them: numbers, and arrays over the state's own memory."""

# mypy: ignore-errors, since Numba's extension API has no types.

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.np.arrayobj import populate_array

from superworkflow.tasks.lib.kernels.prefetch import SECOND, hint

_LINE_BYTES = 64
"""Of a cache line."""


def element_of(dtype: str) -> Any:
    """Numba's type of a number of a field."""
    return getattr(types, "boolean" if dtype == "bool" else np.dtype(dtype).name)


def field_type(field: tuple[str, str, int], writes: bool) -> Any:
    """Numba's type of a field's value: a number, or an array that may be read-only."""
    _, dtype, length = field
    return types.Array(element_of(dtype), 1, "C", readonly=not writes) if length else element_of(dtype)


def bring_field(builder: Any, field: tuple[str, str, int], pointer: Any, place: Any) -> None:
    """Bring a vector into the cache."""
    _, dtype, length = field
    begin, each = builder.gep(pointer, [builder.mul(place, ir.IntType(64)(length))]), np.dtype(dtype).itemsize
    for number in {*range(0, length, max(1, _LINE_BYTES // each)), length - 1}:
        hint(builder, builder.gep(begin, [ir.IntType(64)(number)]), SECOND)


def load_field(context: Any, builder: Any, field: tuple[str, str, int], pointer: Any, place: Any, writes: bool) -> Any:
    """Value of a field at a place: the number, or the array in the state's own memory."""
    _, dtype, length = field
    if not length:
        return context.unpack_value(builder, element_of(dtype), builder.gep(pointer, [place]))
    width = ir.IntType(64)(length)
    begin = builder.gep(pointer, [builder.mul(place, width)])
    return array_at(context, builder, field_type(field, writes), begin, width)


def array_at(context: Any, builder: Any, kind: Any, begin: Any, length: Any) -> Any:
    """Array of one dimension over memory that is another's."""
    size, array = ir.IntType(64)(context.get_abi_sizeof(context.get_data_type(kind.dtype))), context.make_array(kind)
    made = array(context, builder)
    populate_array(made, begin, shape=[length], strides=[size], itemsize=size, meminfo=None)
    return made._getvalue()


def store_field(context: Any, builder: Any, field: tuple[str, str, int], address: Any, value: Any, given: Any) -> None:
    """Write a number of some type to the place of a field.

    Args:
        address: pair of pointer and place.
    """
    element = element_of(field[1])
    context.pack_value(builder, element, context.cast(builder, value, given, element), builder.gep(*address))
