"""Sums of a table's rows in registers: up to 128 columns at a time over all rows of the sum.

Tables are float32, bits of float16 as uint16 (see `float16.as_read`), or bits of bfloat16 as int16; results are float32
or bits of bfloat16. Sums are float32 from 0 on, in the order of the rows; only what is written is rounded.

While a row is added another one is prefetched, line by line: `AHEAD` further in the list of rows, which for that has as
many entries behind its end. Where all lines of some rows were asked for at once, additions waited for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types

from superworkflow.tasks.lib.kernels.intrinsics import kernel_intrinsic
from superworkflow.tasks.lib.kernels.prefetch import SECOND, hint
from superworkflow.tasks.lib.kernels.vectors import (
    FLOAT,
    INT64,
    INT_VECTOR,
    LANES,
    VECTOR,
    cgutils,
    data,
    load,
    load_part,
    splat,
    splat_int,
    spread,
    store,
    store_part,
)

AHEAD = 32
"""Rows by which a row is prefetched: of 400 bytes 16 keep an Intel Xeon of 2023 waiting for memory."""
_TOGETHER = 8
"""Vectors that are summed in one pass over the rows."""
_LINE_BYTES = 64
_SHORTS = ir.VectorType(ir.IntType(16), LANES)


def _is_short(kind: Any) -> bool:
    """True of the type of an array of bits of bfloat16."""
    return bool(kind.dtype == types.int16)


def _widen(builder: Any, bits: Any, kind: Any) -> Any:
    """float32 values of bits of bfloat16, or of finite float16 as `float16.widened` makes them."""
    words = builder.zext(bits, INT_VECTOR)
    if kind.dtype == types.int16:
        return builder.bitcast(builder.shl(words, splat_int(16)), VECTOR)
    size = builder.shl(builder.and_(words, splat_int(0x7FFF)), splat_int(13))
    sign = builder.shl(builder.and_(words, splat_int(0x8000)), splat_int(16))
    return builder.fmul(builder.bitcast(builder.or_(size, sign), VECTOR), splat(2.0**112))


def _shorten(builder: Any, vector: Any) -> Any:
    """Bits of the bfloat16 nearest to each float32, ties to even; infinities stay, of NaN the bits are any NaN's."""
    bits = builder.bitcast(vector, INT_VECTOR)
    odd = builder.and_(builder.lshr(bits, splat_int(16)), splat_int(1))
    rounded = builder.lshr(builder.add(bits, builder.add(odd, splat_int(0x7FFF))), splat_int(16))
    quiet = builder.or_(builder.lshr(bits, splat_int(16)), splat_int(0x40))
    return builder.trunc(builder.select(builder.fcmp_unordered("uno", vector, vector), quiet, rounded), _SHORTS)


def _load(builder: Any, pointer: Any, kind: Any, left: Any = None) -> Any:
    if isinstance(kind.dtype, types.Integer):
        return _widen(builder, _load_shorts(builder, pointer, left), kind)
    return load(builder, pointer) if left is None else load_part(builder, pointer, left)


def _load_shorts(builder: Any, pointer: Any, left: Any = None) -> Any:
    if left is not None:
        return load_part(builder, pointer, left, _SHORTS)
    bits = builder.load(builder.bitcast(pointer, _SHORTS.as_pointer()))
    bits.align = 2
    return bits


def _store(builder: Any, vector: Any, pointer: Any, short: bool, left: Any = None) -> None:
    written = _shorten(builder, vector) if short else vector
    if left is not None:
        store_part(builder, written, pointer, left)
    elif short:
        builder.store(written, builder.bitcast(pointer, _SHORTS.as_pointer())).align = 2
    else:
        store(builder, written, pointer)


def _by_vectors(builder: Any, width: Any, part: Callable[[Any, int, Any], None]) -> None:
    """Code of `part(first column, vectors, columns in the last one)` for all of `width` columns, at least 1."""
    whole = builder.sdiv(builder.sub(width, INT64(1)), INT64(LANES * _TOGETHER))
    edge = builder.mul(whole, INT64(LANES * _TOGETHER))
    with cgutils.for_range_slice(builder, INT64(0), edge, INT64(LANES * _TOGETHER), INT64) as (column, _):
        part(column, _TOGETHER, None)
    vectors = builder.sdiv(builder.add(builder.sub(width, edge), INT64(LANES - 1)), INT64(LANES))
    for count in range(1, _TOGETHER + 1):
        with builder.if_then(builder.icmp_signed("==", vectors, INT64(count))):
            left = builder.sub(width, builder.add(edge, INT64(LANES * (count - 1))))
            part(edge, count, left)


def _prefetched(builder: Any, rows: Any, begins: Any, j: Any, column: Any) -> Callable[[int, Any], None]:
    """Gives code that prefetches vector n of the row `AHEAD` after row j, and of a last vector the end."""
    begin = builder.load(builder.gep(begins, [builder.add(j, INT64(AHEAD))]))
    start, step = builder.add(begin, column), _LINE_BYTES // _bytes_of(rows.type.pointee)

    def prefetched(n: int, end: Any) -> None:
        first = builder.add(start, INT64(LANES * n))
        if LANES * n % step == 0:
            hint(builder, builder.gep(rows, [first]), SECOND)
        if end is not None:
            hint(builder, builder.gep(rows, [builder.add(first, builder.sub(end, INT64(1)))]), SECOND)

    return prefetched


def _bytes_of(kind: Any) -> int:
    return 4 if kind == FLOAT else int(kind.width) // 8


@kernel_intrinsic
def mean_of_rows(
    typing_context: Any, table: Any, begins: Any, first: Any, last: Any, width: Any, share: Any, out: Any, place: Any
) -> Any:  # fmt: skip
    """out[place + c] = share * (sum of table[begins[j] + c] over first <= j < last), for c < width.

    All arrays have one dimension; begins are int64 [last + AHEAD], share is a float32.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, begins, out = (data(context, builder, signature, arguments, n) for n in (0, 1, 6))
        first, last, width, place = (arguments[n] for n in (2, 3, 4, 7))
        share = spread(builder, arguments[5])

        def part(column: Any, count: int, left: Any) -> None:
            sums = [cgutils.alloca_once(builder, VECTOR) for _ in range(count)]
            ends = [None] * (count - 1) + [left]
            for total in sums:
                builder.store(splat(0), total)
            with cgutils.for_range_slice(builder, first, last, INT64(1), INT64) as (j, _):
                start = builder.add(builder.load(builder.gep(begins, [j])), column)
                next_row = _prefetched(builder, rows, begins, j, column)
                for n, (total, end) in enumerate(zip(sums, ends, strict=True)):
                    next_row(n, end)
                    value = _load(builder, builder.gep(rows, [builder.add(start, INT64(LANES * n))]), table, end)
                    builder.store(builder.fadd(builder.load(total), value), total)
            start = builder.add(place, column)
            for n, (total, end) in enumerate(zip(sums, ends, strict=True)):
                pointer = builder.gep(out, [builder.add(start, INT64(LANES * n))])
                _store(builder, builder.fmul(builder.load(total), share), pointer, writes, end)

        _by_vectors(builder, width, part)
        return context.get_dummy_value()

    writes, number = _is_short(out), types.int64
    return types.void(table, begins, number, number, number, types.float32, out, number), generate


@kernel_intrinsic
def add_scaled_rows(
    typing_context: Any, table: Any, begins: Any, shares: Any, first: Any, last: Any, width: Any, values: Any, row: Any,
    more: Any, out: Any, place: Any,
) -> Any:  # fmt: skip
    """out[place + c] = sum of shares[j] * table[begins[j] + c] over first <= j < last, for c < width.

    The sum is 0 where values[row + c] is not greater than 0, unless row is negative. With `more` it begins at what
    `out` has, else at 0. begins are int64 [last + AHEAD], shares float32, values and out of one type, not of float16.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, begins, shares, limits, out = (data(context, builder, signature, arguments, n) for n in (0, 1, 2, 6, 9))
        first, last, width, row, more, place = (arguments[n] for n in (3, 4, 5, 7, 8, 10))

        def part(column: Any, count: int, left: Any) -> None:
            sums = [cgutils.alloca_once(builder, VECTOR) for _ in range(count)]
            ends = [None] * (count - 1) + [left]
            lanes = [builder.add(column, INT64(LANES * n)) for n in range(count)]
            places = [builder.gep(out, [builder.add(place, lane)]) for lane in lanes]
            for total in sums:
                builder.store(splat(0), total)
            with builder.if_then(more, likely=False):
                for total, pointer, end in zip(sums, places, ends, strict=True):
                    builder.store(_load(builder, pointer, written, end), total)
            with cgutils.for_range_slice(builder, first, last, INT64(1), INT64) as (j, _):
                start = builder.add(builder.load(builder.gep(begins, [j])), column)
                share = spread(builder, builder.load(builder.gep(shares, [j])))
                next_row = _prefetched(builder, rows, begins, j, column)
                for n, (total, end) in enumerate(zip(sums, ends, strict=True)):
                    next_row(n, end)
                    value = _load(builder, builder.gep(rows, [builder.add(start, INT64(LANES * n))]), table, end)
                    builder.store(builder.fadd(builder.load(total), builder.fmul(value, share)), total)
            with builder.if_then(builder.icmp_signed(">=", row, INT64(0)), likely=True):
                for total, lane, end in zip(sums, lanes, ends, strict=True):
                    value = _load(builder, builder.gep(limits, [builder.add(row, lane)]), values, end)
                    positive = builder.fcmp_ordered(">", value, splat(0))
                    builder.store(builder.select(positive, builder.load(total), splat(0)), total)
            for total, pointer, end in zip(sums, places, ends, strict=True):
                _store(builder, builder.load(total), pointer, _is_short(written), end)

        _by_vectors(builder, width, part)
        return context.get_dummy_value()

    written, number = out, types.int64
    taken = table, begins, shares, number, number, number, values, number, types.boolean, out, number
    return types.void(*taken), generate
