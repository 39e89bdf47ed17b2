"""Code for vectors of 16 float32: what intrinsics of products and their factors are made of.

LLVM vectorizes simple loops by itself but does not tile them in registers, and Numba has no prefetch. LLVM splits these
vectors on processors with narrower registers, so that nothing here needs AVX-512. Matrices are flat float32 arrays of
rows of `stride` floats, a multiple of `LANES`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils as numba_cgutils

cgutils: Any = numba_cgutils

LANES = 16
FLOAT, INT32, INT64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
VECTOR, INT_VECTOR = ir.VectorType(FLOAT, LANES), ir.VectorType(INT32, LANES)
_UNDEFINED = ir.Constant(VECTOR, ir.Undefined)


def splat(value: float) -> ir.Constant:
    return ir.Constant(VECTOR, [float(value)] * LANES)


def splat_int(value: int) -> ir.Constant:
    return ir.Constant(INT_VECTOR, [value] * LANES)


def pick(builder: Any, vector: Any, lanes: list[int], other: Any = None) -> Any:
    """The chosen lanes of `vector` (0..15) and `other` (16..31)."""
    second = ir.Constant(vector.type, ir.Undefined) if other is None else other
    return builder.shuffle_vector(vector, second, ir.Constant(ir.VectorType(INT32, len(lanes)), lanes))


def load(builder: Any, pointer: Any) -> Any:
    value = builder.load(builder.bitcast(pointer, VECTOR.as_pointer()))
    value.align = 4
    return value


def load_part(builder: Any, pointer: Any, count: Any, kind: Any = VECTOR) -> Any:
    """The first `count` lanes of a vector of this type, zeros in the others; nothing beyond them is read."""
    pointer_kind, flags = kind.as_pointer(), _first(builder, count, kind)
    function = _masked(builder, "load", kind, ir.FunctionType(kind, [pointer_kind, flags.type, kind]))
    zeros = ir.Constant(kind, [0] * kind.count)
    return builder.call(function, [builder.bitcast(pointer, pointer_kind), flags, zeros])


def store_part(builder: Any, value: Any, pointer: Any, count: Any) -> None:
    """Store the first `count` lanes of a vector; nothing beyond them is written."""
    pointer_kind, flags = value.type.as_pointer(), _first(builder, count, value.type)
    kind = ir.FunctionType(ir.VoidType(), [value.type, pointer_kind, flags.type])
    function = _masked(builder, "store", value.type, kind)
    builder.call(function, [value, builder.bitcast(pointer, pointer_kind), flags])


def _masked(builder: Any, what: str, kind: Any, function: Any) -> Any:
    lane = "f32" if kind.element == FLOAT else str(kind.element)
    return cgutils.get_or_insert_function(builder.module, function, f"llvm.masked.{what}.v{kind.count}{lane}.p0")


def _first(builder: Any, count: Any, kind: Any) -> Any:
    """Flags of the first `count` lanes."""
    numbers = ir.VectorType(INT32, kind.count)
    some = builder.insert_element(ir.Constant(numbers, ir.Undefined), builder.trunc(count, INT32), INT32(0))
    lanes = ir.Constant(numbers, list(range(kind.count)))
    return builder.icmp_signed("<", lanes, pick(builder, some, [0] * kind.count))


def store(builder: Any, value: Any, pointer: Any) -> None:
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer())).align = 4


def call(builder: Any, name: str, *arguments: Any) -> Any:
    kind = ir.FunctionType(VECTOR, [VECTOR] * len(arguments))
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v16f32"), arguments)


def fma(builder: Any, x: Any, y: Any, z: Any) -> Any:
    return call(builder, "fma", x, y, z)


def in_order(builder: Any, x: Any, y: Any) -> Any:
    """x + y, which the compiler does not move to other sums: with a flag of its own, Numba adds none."""
    return builder.fadd(x, y, flags=("nsz",))


def data(context: Any, builder: Any, signature: Any, arguments: Any, index: int) -> Any:
    array = context.make_array(signature.args[index])(context, builder, arguments[index])
    return array.data


def fields(context: Any, builder: Any, signature: Any, arguments: Any, index: int) -> list[Any]:
    """Fields of an argument that is a tuple: pointers of its arrays, and its numbers as 64-bit integers."""
    found = []
    for number, kind in enumerate(signature.args[index].types):
        value = builder.extract_value(arguments[index], number)
        if isinstance(kind, types.Array):
            found.append(context.make_array(kind)(context, builder, value).data)
        else:
            found.append(context.cast(builder, value, kind, types.int64))
    return found


def spread(builder: Any, value: Any) -> Any:
    return pick(builder, builder.insert_element(_UNDEFINED, value, INT32(0)), [0] * LANES)


def sum_lanes(builder: Any, vectors: list[Any]) -> Any:
    """Lane t of the result is the sum of all lanes of `vectors[t]`: a butterfly of 15 additions."""
    width = LANES
    while len(vectors) > 1:
        half = width // 2
        low = [s * LANES + g + lane for s in (0, 1) for g in range(0, LANES, width) for lane in range(half)]
        high = [lane + half for lane in low]
        vectors = [
            builder.fadd(pick(builder, a, low, b), pick(builder, a, high, b))
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
        width = half
    return vectors[0]


def transpose(builder: Any, vectors: list[Any]) -> list[Any]:
    """16 vectors of 16 lanes: lane r of result k is lane k of vector r."""
    width = 1
    while width < LANES:  # exchange off-diagonal squares of this width
        low = [lane if not lane & width else LANES + lane - width for lane in range(LANES)]
        high = [lane + width if not lane & width else LANES + lane for lane in range(LANES)]
        swapped = list(vectors)
        for r in range(LANES):
            if not r & width:
                swapped[r] = pick(builder, vectors[r], low, vectors[r + width])
                swapped[r + width] = pick(builder, vectors[r], high, vectors[r + width])
        vectors = swapped
        width *= 2
    return vectors
