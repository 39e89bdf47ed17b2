"""Products of small matrices of factors, tiled in registers, and the packing of table rows into such matrices."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from superworkflow.tasks.embed._lanes import (
    INT64,
    LANES,
    VECTOR,
    cgutils,
    data,
    fields,
    fma,
    in_order,
    load,
    load_part,
    pick,
    splat,
    spread,
    store,
    sum_lanes,
    transpose,
)
from superworkflow.tasks.embed._words import ORDER, TILES, WORD, multiply_words, round_factors, store_pairs, words_along
from superworkflow.tasks.lib.kernels.cpu_features import has
from superworkflow.tasks.lib.kernels.products import PRODUCTS

STEP = 32 if TILES else LANES
"""Floats of a row of factors or gradients are a multiple of this."""
ROWS = 8
"""Rows that a product advances by."""
_SUMS = (4, 2) if has("avx512f") else (4, 1)
"""Rows and vectors of sums that stay in registers, three of each: 24 of the 32 of AVX-512, 12 of 16 elsewhere. The
order in which one sum is added up does not depend on it."""
_BLOCK_WORDS = 16
"""Words of a block of terms."""


def _product(add: bool) -> Any:
    """Intrinsic of `set_product` or `add_product`."""

    def product(
        typing_context: Any, left: Any, right: Any, out: Any, length: Any, phase: Any, vectors: Any
    ) -> Any:  # fmt: skip
        return types.void(left, right, out, types.int64, types.int64, types.int64), generate

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, *strides = fields(context, builder, signature, arguments, 0)
        a_first, a_row, a_step = (builder.mul(stride, INT64(WORD)) for stride in strides)
        b, b_first, b_step, b_column = fields(context, builder, signature, arguments, 1)
        c, c_first, c_row = fields(context, builder, signature, arguments, 2)
        length, phase, vectors = arguments[3:]
        pair_step = builder.mul(b_step, INT64(WORD))
        b_start = builder.add(builder.mul(b_first, pair_step), b_column)
        rows, wide = _SUMS

        def tile(top: int, vector: Any, count: int) -> None:
            """Sums of `rows` rows from `top` on and `count` vectors from `vector` on."""
            lane = builder.mul(vector, INT64(LANES))
            lefts = [builder.gep(a, [builder.add(a_first, builder.mul(a_row, INT64(top + r)))]) for r in range(rows)]
            right = builder.gep(b, [builder.add(b_start, lane)])
            cells = [(r, v) for r in range(rows) for v in range(count)]
            places = [
                builder.gep(
                    c, [builder.add(builder.add(c_first, builder.mul(c_row, INT64(top + r))),
                                    builder.add(lane, INT64(v * LANES)))]
                )
                for r, v in cells
            ]  # fmt: skip

            def multiply(step: Any, sums: list[Any]) -> list[Any]:
                """`sums` and the products of word `step`."""
                base = builder.gep(right, [builder.mul(step, pair_step)])
                others = []
                for v in range(count):
                    first = builder.gep(base, [INT64(v * LANES)])
                    others.append([load(builder, place) for place in (first, builder.gep(first, [b_step]))[:WORD]])
                index, factors = builder.mul(step, a_step), []
                for r in range(rows):
                    left = builder.gep(lefts[r], [index])
                    factors.append([spread(builder, builder.load(builder.gep(left, [INT64(n)]))) for n in range(WORD)])
                return [
                    multiply_words(builder, factors[r], others[v], total)
                    for (r, v), total in zip(cells, sums, strict=True)
                ]

            totals = [load(builder, place) if add else splat(0) for place in places]
            zeros, block_end = [splat(0)] * len(cells), builder.sub(INT64(_BLOCK_WORDS), phase)
            before, block = builder.block, builder.append_basic_block("block")
            pair, folded, after = (builder.append_basic_block(name) for name in ("pair", "folded", "multiplied"))
            builder.branch(block)
            builder.position_at_end(block)
            begin, end = builder.phi(INT64), builder.phi(INT64)
            total = [builder.phi(VECTOR) for _ in cells]
            last = builder.select(builder.icmp_signed("<", end, length), end, length)
            builder.branch(pair)
            builder.position_at_end(pair)
            step = builder.phi(INT64)
            even, odd = ([builder.phi(VECTOR) for _ in cells] for _ in range(2))
            new_even = multiply(step, even)
            new_odd = multiply(builder.add(step, INT64(1)), odd)
            following = builder.add(step, INT64(2))
            builder.cbranch(builder.icmp_signed("<", following, last), pair, folded)
            builder.position_at_end(folded)
            next_end = builder.add(last, INT64(_BLOCK_WORDS))
            new_total = [
                in_order(builder, t, in_order(builder, e, o)) for t, e, o in zip(total, new_even, new_odd, strict=True)
            ]
            builder.cbranch(builder.icmp_signed("<", last, length), block, after)
            for phi, first, again in [
                (begin, INT64(0), last), (end, block_end, next_end),
                *zip(total, totals, new_total, strict=True),
            ]:  # fmt: skip
                phi.add_incoming(first, before)
                phi.add_incoming(again, folded)
            for phi, first, again in [
                (step, begin, following), *zip(even, zeros, new_even, strict=True),
                *zip(odd, zeros, new_odd, strict=True),
            ]:  # fmt: skip
                phi.add_incoming(first, block)
                phi.add_incoming(again, pair)
            builder.position_at_end(after)
            for value, place in zip(new_total, places, strict=True):
                store(builder, value, place)

        for top in range(0, ROWS, rows):
            whole = builder.sub(vectors, builder.srem(vectors, INT64(wide)))
            with cgutils.for_range_slice(builder, INT64(0), whole, INT64(wide), INT64) as (vector, _):
                tile(top, vector, wide)
            if wide > 1:
                with cgutils.for_range_slice(builder, whole, vectors, INT64(1), INT64) as (vector, _):
                    tile(top, vector, 1)
        return context.get_dummy_value()

    return intrinsic(product)


set_product = PRODUCTS.marks(_product(add=False))
"""set_product((a, first, row, step), (b, first, step, column), (c, first, row), length, phase, vectors): C = A B for 8
rows of C: c[first + r row + k] = sum_t A[r, t] B[t, k] with r < 8, k < 16 `vectors`, and two terms t for each of
`length` words, an even number from 2 on. The first word is number `phase` of a block of 16, also even.

Word t of A at row r is the one of number first + r row + t step in `a`. B is `b` from its row
of words `first` and its column `column` on; a row has `step` words."""
add_product = PRODUCTS.marks(_product(add=True))
"""C += A B; see `set_product`."""


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
