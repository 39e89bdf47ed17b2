"""Packing of table rows into the factors of products."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from superworkflow.tasks.lib.kernels.prefetch import FIRST, hint
from superworkflow.tasks.lib.kernels.product_words import ORDER, TILES, WORD, round_rows
from superworkflow.tasks.lib.kernels.products import PRODUCTS
from superworkflow.tasks.lib.kernels.vectors import (
    INT64,
    LANES,
    cgutils,
    data,
    fields,
    fma,
    load,
    load_part,
    splat,
    store,
    sum_lanes,
    transpose,
)

STEP = 32 if TILES else LANES
"""Floats of a row of factors or gradients are a multiple of this."""


def _turn(builder: Any, rows: Any, step: Any, target: Any, target_step: Any) -> None:
    """Code that writes 16 rows of `step` floats, a multiple of 8, as columns."""

    def columns(k: Any, count: int) -> None:
        lines = [load(builder, builder.gep(rows, [builder.add(k, builder.mul(step, INT64(r)))])) for r in range(LANES)]
        for t, vector in enumerate(transpose(builder, lines)[:count]):
            store(builder, vector, builder.gep(target, [builder.mul(builder.add(k, INT64(t)), target_step)]))

    whole = builder.and_(step, INT64(-LANES))
    with cgutils.for_range_slice(builder, INT64(0), whole, INT64(LANES), INT64) as (k, _):
        columns(k, LANES)
    if STEP * WORD // 2 < LANES:
        with cgutils.for_range_slice(builder, whole, step, INT64(LANES), INT64) as (k, _):
            columns(k, LANES // 2)


def _pack(transposed: bool) -> Any:
    """Intrinsic of `pack_left` or `pack_right`."""

    def pack_left(
        typing_context: Any, table: Any, rows: Any, words: Any, pairs: Any, norms: Any, row: Any, ahead: Any
    ) -> Any:  # fmt: skip
        return types.void(table, rows, words, pairs, norms, types.int64, ahead), generate

    def pack_right(
        typing_context: Any, table: Any, rows: Any, words: Any, pairs: Any, norms: Any, row: Any, ahead: Any, room: Any
    ) -> Any:  # fmt: skip
        return types.void(table, rows, words, pairs, norms, types.int64, ahead, room), generate

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, length, zeros = fields(context, builder, signature, arguments, 0)
        rows, first, low, high = fields(context, builder, signature, arguments, 1)
        words, step = fields(context, builder, signature, arguments, 2)
        pairs, norms = (data(context, builder, signature, arguments, n) for n in (3, 4))
        row = arguments[5]
        stride = builder.and_(builder.add(length, INT64(STEP - 1)), INT64(-STEP))
        if transposed:
            along = data(context, builder, signature, arguments, 7)
            along_step = builder.sdiv(builder.mul(stride, INT64(WORD)), INT64(2))
        else:
            along_step = builder.mul(step, INT64(WORD))
            along = builder.gep(words, [builder.mul(row, along_step)])

        def places(table: Any, rows: Any, first: Any, low: Any, high: Any) -> list[Any]:
            """Pointers to 16 rows of the table, to `zeros` for those that are not there."""
            found = []
            for r in range(LANES):
                index = builder.add(first, INT64(r))
                there = builder.icmp_unsigned("<", builder.sub(index, low), builder.sub(high, low))
                number = builder.load(builder.gep(rows, [builder.select(there, index, low)]))
                found.append(builder.select(there, builder.gep(table, [builder.mul(number, length)]), zeros))
            return found

        sources = places(table, rows, first, low, high)
        following = places(*fields(context, builder, signature, arguments, 6))
        half_row = builder.sdiv(builder.mul(row, INT64(WORD)), INT64(2))
        pairs = builder.gep(pairs, [builder.mul(half_row, stride)])
        sums = [cgutils.alloca_once_value(builder, splat(0)) for _ in range(LANES)]
        whole = builder.and_(length, INT64(-LANES))

        def read(r: int, k: Any, all_lanes: bool) -> Any:
            """Column `k` to `k` + 16 of row `r`; its square is added up."""
            place = builder.gep(sources[r], [k])
            vector = load(builder, place) if all_lanes else load_part(builder, place, builder.sub(length, k))
            builder.store(fma(builder, vector, vector, builder.load(sums[r])), sums[r])
            return vector

        for n in range(LANES // 2):
            two = ORDER[2 * n : 2 * n + 2]
            lines = [builder.gep(along, [builder.mul(along_step, INT64(r))]) for r in two]
            pair = builder.gep(pairs, [builder.mul(stride, INT64(n * WORD))])
            for begin, end in ((INT64(0), whole), (whole, stride)):
                with cgutils.for_range_slice(builder, begin, end, INT64(LANES), INT64) as (k, _):
                    upper, lower = (read(r, k, end is whole) for r in two)
                    if end is whole:
                        for r in two:
                            hint(builder, builder.gep(following[r], [k]), FIRST)
                    words_of_rows, words_of_columns = round_rows(builder, upper, lower, right=True)
                    place = builder.sdiv(builder.mul(k, INT64(WORD)), INT64(2))
                    for line, vector in zip(lines, words_of_rows, strict=True):
                        store(builder, vector, builder.gep(line, [place]))
                    for t, vector in enumerate(words_of_columns):
                        place = builder.add(k, builder.mul(stride, INT64(t)))
                        store(builder, vector, builder.gep(pair, [place]))
        store(builder, sum_lanes(builder, [builder.load(total) for total in sums]), builder.gep(norms, [row]))
        if transposed:
            _turn(builder, along, along_step, builder.gep(words, [row]), step)
        return context.get_dummy_value()

    return intrinsic(pack_right if transposed else pack_left)


pack_left = PRODUCTS.marks(_pack(transposed=False))
"""pack_left((table, length, zeros), (rows, first, low, high), (words, step), pairs, norms, row, ahead): 16 rows of
factors on the left, the rows `row` to `row` + 15 of a matrix x: x[row + r] is row rows[first + r] of `table`, of
`length` floats, or zeros (from `zeros`, a row of them) where first + r is below `low` or not below `high`.

words[(row + r) step + t] is word t of x[row + r]; pairs[(row / 2 + t) stride + k] is word t of the 16 rows' x[., k],
with `stride` the next multiple of 16 (tiles: 32) of `length`; and norms[row + r] is the squared norm of x[row + r].
At the same time the 16 rows of `ahead`, (table, rows, first, low, high), are brought into the first-level cache."""
pack_right = PRODUCTS.marks(_pack(transposed=True))
"""As `pack_left`, with factors on the right: transposed, words[t step + row + r] is word t of x[row + r]. The last
argument is room for 16 rows of gradients."""
