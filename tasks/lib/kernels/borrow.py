"""Arrays without reference counts, for kernels whose phases are functions of their own."""

from __future__ import annotations

from typing import Any

from numba import types

from superworkflow.tasks.lib.kernels.intrinsics import kernel_intrinsic


def _borrowed(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo, array.parent = array.meminfo.type(None), array.parent.type(None)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        members: Any = kind
        items = [_borrowed(context, builder, item, builder.extract_value(value, i)) for i, item in enumerate(members)]
        return context.make_tuple(builder, kind, items)
    return value


@kernel_intrinsic
def borrow(typing_context: Any, value: Any) -> Any:
    """Array, or tuple with arrays, without an owner, so that handing it to inlined functions counts no references.

    Counting takes an atomic instruction for each array and call, about as long as a step of a walk. A kernel may
    borrow its arguments, which its caller keeps alive, and must not return them; it must not borrow arrays of its own.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _borrowed(context, builder, signature.args[0], arguments[0])

    return value(value), generate
