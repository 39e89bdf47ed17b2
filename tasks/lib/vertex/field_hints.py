"""Hints for what updates read of neighbours: fields of a vertex, before others are updated that read them."""

# mypy: ignore-errors, since Numba's extension API has no types.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba.core import types
from numba.extending import intrinsic

from superworkflow.tasks.lib.kernels.prefetch import SECOND, hint
from superworkflow.tasks.lib.vertex.scope import Schema, State


def field_bringer(schema: Schema, names: Sequence[str]) -> Any:
    """Intrinsic `bring(state, vertex)`, which prefetches the numbers of a vertex that others read.

    Args:
        schema: of the program.
        names: fields; vectors are prefetched where a neighbour of a later number is known, see `_neighbour_of`.
    """
    numbers = [number for number, (name, _, length) in enumerate(schema.fields) if name in names and not length]

    @intrinsic
    def bring(typing: Any, state: Any, vertex: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            seen, place = state.types[State._fields.index("seen")], State._fields.index("seen")
            for number in numbers:
                value = builder.extract_value(builder.extract_value(args[0], place), number)
                pointer = context.make_array(seen[number])(context, builder, value).data
                hint(builder, builder.gep(pointer, [args[1]]), SECOND)
            return context.get_dummy_value()

        return types.void(state, types.int64), generate

    return bring
