"""Packing of table rows into the factors of products."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from superworkflow.tasks.lib.kernels.product_words import ORDER, TILES, WORD, round_factors, store_pairs, words_along
from superworkflow.tasks.lib.kernels.products import PRODUCTS
from superworkflow.tasks.lib.kernels.vectors import (
    INT64,
    LANES,
    VECTOR,
    cgutils,
    data,
    fields,
    fma,
    load,
    load_part,
    pick,
    splat,
    store,
    sum_lanes,
    transpose,
)

STEP = 32 if TILES else LANES
"""Floats of a row of factors or gradients are a multiple of this."""


def _pack(transposed: bool) -> Any:
    """Intrinsic of `pack_left` or `pack_right`."""

    def pack(
        typing_context: Any, table: Any, rows: Any, words: Any, pairs: Any, norms: Any, row: Any
    ) -> Any:  # fmt: skip
        return types.void(table, rows, words, pairs, norms, types.int64), generate

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, length, zeros = fields(context, builder, signature, arguments, 0)
        rows, first, low, high = fields(context, builder, signature, arguments, 1)
        words, step = fields(context, builder, signature, arguments, 2)
        pairs, norms = (data(context, builder, signature, arguments, n) for n in (3, 4))
        row = arguments[5]
        count = builder.sub(high, low)
        if not transposed:
            step = builder.mul(step, INT64(WORD))
        stride = builder.and_(builder.add(length, INT64(STEP - 1)), INT64(-STEP))
        sources = []
        for r in range(LANES):
            index = builder.add(first, INT64(r))
            there = builder.icmp_unsigned("<", builder.sub(index, low), count)
            number = builder.load(builder.gep(rows, [builder.select(there, index, low)]))
            sources.append(builder.select(there, builder.gep(table, [builder.mul(number, length)]), zeros))
        half_row = builder.sdiv(builder.mul(row, INT64(WORD)), INT64(2))
        pairs = builder.gep(pairs, [builder.mul(half_row, stride)])
        words = builder.gep(words, [row if transposed else builder.mul(row, step)])
        sums = [cgutils.alloca_once_value(builder, splat(0)) for _ in range(LANES)]

        def read(k: Any, whole: bool) -> list[Any]:
            """Column `k` to `k` + 16 of every row, rounded."""
            rounded = []
            for source, total in zip(sources, sums, strict=True):
                place = builder.gep(source, [k])
                vector = load(builder, place) if whole else load_part(builder, place, builder.sub(length, k))
                builder.store(fma(builder, vector, vector, builder.load(total)), total)
                rounded.append(round_factors(builder, vector))
            return rounded

        def write(k: Any, parts: list[list[Any]]) -> None:
            """Those columns as pairs, and along rows or transposed."""
            for n, part in enumerate(parts):
                store_pairs(builder, part, pairs, stride, builder.add(k, INT64(n * LANES)))
            along = builder.sdiv(builder.mul(k, INT64(WORD)), INT64(2))
            if not transposed:
                for r, vector in enumerate(parts[0]):
                    place = builder.add(builder.mul(step, INT64(r)), along)
                    store(builder, words_along(builder, vector), builder.gep(words, [place]))
                return
            if WORD == 1:
                every = ORDER + [LANES + term for term in ORDER]
                lines = [pick(builder, low, every, high) for low, high in zip(parts[0], parts[-1], strict=True)]
                lines = [builder.bitcast(line, VECTOR) for line in lines]
            else:
                lines = [pick(builder, line, ORDER) for line in parts[0]]
            for r, vector in enumerate(transpose(builder, lines)[: LANES * len(parts) * WORD // 2]):
                store(builder, vector, builder.gep(words, [builder.mul(builder.add(along, INT64(r)), step)]))

        together = 2 if transposed and WORD == 1 else 1
        whole = builder.and_(length, INT64(-LANES * together))
        with cgutils.for_range_slice(builder, INT64(0), whole, INT64(LANES * together), INT64) as (k, _):
            write(k, [read(builder.add(k, INT64(n * LANES)), True) for n in range(together)])
        with cgutils.for_range_slice(builder, whole, stride, INT64(LANES), INT64) as (k, _):
            write(k, [read(k, False)])
        store(builder, sum_lanes(builder, [builder.load(total) for total in sums]), builder.gep(norms, [row]))
        return context.get_dummy_value()

    return intrinsic(pack)


pack_left = PRODUCTS.marks(_pack(transposed=False))
"""pack_left((table, length, zeros), (rows, first, low, high), (words, step), pairs, norms, row): 16 rows of factors on
the left, the rows `row` to `row` + 15 of a matrix x: x[row + r] is row rows[first + r] of `table`, of `length` floats,
or zeros (from `zeros`, a row of them) where first + r is below `low` or not below `high`.

words[(row + r) step + t] is word t of x[row + r]; pairs[(row / 2 + t) stride + k] is word t of the 16 rows' x[., k],
with `stride` the next multiple of 16 (tiles: 32) of `length`; and norms[row + r] is the squared norm of x[row + r]."""
pack_right = PRODUCTS.marks(_pack(transposed=True))
"""As `pack_left`, with factors on the right: transposed, words[t step + row + r] is word t of x[row + r]."""
