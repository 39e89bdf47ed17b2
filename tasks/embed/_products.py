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
    load,
    load_part,
    pick,
    splat,
    spread,
    store,
    sum_lanes,
    transpose,
)
from superworkflow.tasks.embed._words import WORD, multiply_words, round_factors, store_pairs, words_along
from superworkflow.tasks.lib.kernels.cpu_features import has

ROWS = 8
"""Rows that a product advances by."""
_SUMS = (8, 2) if has("avx512f") else (4, 1)
"""Rows and vectors of a tile of sums that stay in registers: 16 of the 32 of AVX-512, 8 of 16 elsewhere. The order in
which one sum is added up does not depend on it."""


def _product(add: bool) -> Any:
    """Intrinsic of `set_product` or `add_product`."""

    def product(typing_context: Any, left: Any, right: Any, out: Any, length: Any, vectors: Any) -> Any:
        return types.void(left, right, out, types.int64, types.int64), generate

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, *strides = fields(context, builder, signature, arguments, 0)
        a_first, a_row, a_step = (builder.mul(stride, INT64(WORD)) for stride in strides)
        b, b_first, b_step, b_column = fields(context, builder, signature, arguments, 1)
        c, c_first, c_row = fields(context, builder, signature, arguments, 2)
        length, vectors = arguments[3:]
        pair_step = builder.mul(b_step, INT64(WORD))
        b_start = builder.add(builder.mul(b_first, pair_step), b_column)
        rows, wide = _SUMS

        def tile(top: int, vector: Any, count: int) -> None:
            """Sums of `rows` rows from `top` on and `count` vectors from `vector` on."""
            lane = builder.mul(vector, INT64(LANES))
            lefts = [builder.gep(a, [builder.add(a_first, builder.mul(a_row, INT64(top + r)))]) for r in range(rows)]
            right = builder.gep(b, [builder.add(b_start, lane)])
            places = [
                [
                    builder.gep(
                        c, [builder.add(builder.add(c_first, builder.mul(c_row, INT64(top + r))),
                                        builder.add(lane, INT64(v * LANES)))]
                    )
                    for v in range(count)
                ]
                for r in range(rows)
            ]  # fmt: skip
            start = [[load(builder, place) if add else splat(0) for place in row] for row in places]
            before, loop = builder.block, builder.append_basic_block("multiply")
            after = builder.append_basic_block("multiplied")
            builder.branch(loop)
            builder.position_at_end(loop)
            step = builder.phi(INT64)
            sums = [[builder.phi(VECTOR) for _ in range(count)] for _ in range(rows)]
            base = builder.gep(right, [builder.mul(step, pair_step)])
            others = []
            for v in range(count):
                first = builder.gep(base, [INT64(v * LANES)])
                others.append([load(builder, place) for place in (first, builder.gep(first, [b_step]))[:WORD]])
            index = builder.mul(step, a_step)
            new = []
            for r in range(rows):
                left = builder.gep(lefts[r], [index])
                factor = [spread(builder, builder.load(builder.gep(left, [INT64(n)]))) for n in range(WORD)]
                new.append([multiply_words(builder, factor, others[v], sums[r][v]) for v in range(count)])
            following = builder.add(step, INT64(1))
            step.add_incoming(INT64(0), before)
            step.add_incoming(following, loop)
            for r in range(rows):
                for v in range(count):
                    sums[r][v].add_incoming(start[r][v], before)
                    sums[r][v].add_incoming(new[r][v], loop)
            builder.cbranch(builder.icmp_signed("<", following, length), loop, after)
            builder.position_at_end(after)
            for r in range(rows):
                for v in range(count):
                    store(builder, new[r][v], places[r][v])

        for top in range(0, ROWS, rows):
            whole = builder.sub(vectors, builder.srem(vectors, INT64(wide)))
            with cgutils.for_range_slice(builder, INT64(0), whole, INT64(wide), INT64) as (vector, _):
                tile(top, vector, wide)
            if wide > 1:
                with cgutils.for_range_slice(builder, whole, vectors, INT64(1), INT64) as (vector, _):
                    tile(top, vector, 1)
        return context.get_dummy_value()

    return intrinsic(product)


set_product = _product(add=False)
"""set_product((a, first, row, step), (b, first, step, column), (c, first, row), length, vectors): C = A B for 8 rows
of C: c[first + r row + k] = sum_t A[r, t] B[t, k] with r < 8, k < 16 `vectors`, and two terms t for each of `length`
words, 1 or more.

The word of A at row r and terms 2 t, 2 t + 1 is the one of number first + r row + t step in `a`. B is `b` from its row
of words `first` and its column `column` on; a row has `step` words."""
add_product = _product(add=True)
"""C += A B; see `set_product`."""


def _pack(transposed: bool) -> Any:
    """Intrinsic of `pack_left` or `pack_right`."""

    def pack(
        typing_context: Any, table: Any, length: Any, rows: Any, first: Any, low: Any, high: Any, zeros: Any,
        words: Any, step: Any, pairs: Any, norms: Any, row: Any,
    ) -> Any:  # fmt: skip
        integer = types.int64
        signature = types.void(
            table, integer, rows, integer, integer, integer, zeros, words, integer, pairs, norms, integer
        )
        return signature, generate

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, rows, zeros, words, pairs, norms = (
            data(context, builder, signature, arguments, n) for n in (0, 2, 6, 7, 9, 10)
        )
        length, first, low, high, step, row = (arguments[n] for n in (1, 3, 4, 5, 8, 11))
        count = builder.sub(high, low)
        if not transposed:
            step = builder.mul(step, INT64(WORD))
        stride = builder.and_(builder.add(length, INT64(LANES - 1)), INT64(-LANES))
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
                every = list(range(2 * LANES))
                lines = [pick(builder, low, every, high) for low, high in zip(parts[0], parts[-1], strict=True)]
                lines = [builder.bitcast(line, VECTOR) for line in lines]
            else:
                lines = parts[0]
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


pack_left = _pack(transposed=False)
"""16 rows of factors on the left, the rows `row` to `row` + 15 of a matrix x: x[row + r] is row rows[first + r] of
`table`, of `length` floats, or zeros (from `zeros`, a row of them) where first + r is below `low` or not below `high`.

words[(row + r) step + k] = (x[row + r, 2 k], x[row + r, 2 k + 1]);
pairs[(row / 2 + r) stride + k] = (x[row + 2 r, k], x[row + 2 r + 1, k]), with `stride` the next multiple of 16 of
`length`; and norms[row + r] is the squared norm of x[row + r]."""
pack_right = _pack(transposed=True)
"""As `pack_left`, with factors on the right: transposed,
words[k step + row + r] = (x[row + r, 2 k], x[row + r, 2 k + 1])."""
