"""Products of small matrices of factors, 8 rows at a time, in registers, in the order of sums of `product_words`."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from superworkflow.tasks.lib.kernels.cpu_features import has
from superworkflow.tasks.lib.kernels.product_words import WORD, multiply_words
from superworkflow.tasks.lib.kernels.products import PRODUCTS
from superworkflow.tasks.lib.kernels.vectors import (
    INT64,
    LANES,
    VECTOR,
    cgutils,
    fields,
    in_order,
    load,
    splat,
    spread,
    store,
)

ROWS = 8
"""Rows that a product advances by."""
_SUMS = (4, 2) if has("avx512f") else (4, 1)
"""Rows and vectors of sums that stay in registers: 8 of AVX-512, as many of AVX2 (two a vector), 16 of Arm (four). The
order in which one sum is added up does not depend on it."""
_PASSES = [[0, 1]] if has("avx512f") else [[0], [1]]
"""Parities of words that one loop adds up: the sums of both take 16 of the 32 registers of AVX-512. AVX2 has 16, which
also hold factors: there all even words of a block come first, then all odd ones."""
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

            def add_words(begin: Any, last: Any, parities: list[int]) -> list[list[Any]]:
                """Sums of products of the words of each parity, `begin` + parity and every second one before `last`."""
                before = builder.block
                loop, done = (builder.append_basic_block(name) for name in ("words", "added"))
                builder.branch(loop)
                builder.position_at_end(loop)
                step = builder.phi(INT64)
                sums = [[builder.phi(VECTOR) for _ in cells] for _ in parities]
                new = [
                    multiply(builder.add(step, INT64(parity)), each)
                    for parity, each in zip(parities, sums, strict=True)
                ]
                following = builder.add(step, INT64(2))
                builder.cbranch(builder.icmp_signed("<", following, last), loop, done)
                step.add_incoming(begin, before)
                step.add_incoming(following, loop)
                for phis, values in zip(sums, new, strict=True):
                    for phi, value in zip(phis, values, strict=True):
                        phi.add_incoming(splat(0), before)
                        phi.add_incoming(value, loop)
                builder.position_at_end(done)
                return new

            totals = [load(builder, place) if add else splat(0) for place in places]
            block_end = builder.sub(INT64(_BLOCK_WORDS), phase)
            before, block = builder.block, builder.append_basic_block("block")
            after = builder.append_basic_block("multiplied")
            builder.branch(block)
            builder.position_at_end(block)
            begin, end = builder.phi(INT64), builder.phi(INT64)
            total = [builder.phi(VECTOR) for _ in cells]
            last = builder.select(builder.icmp_signed("<", end, length), end, length)
            even, odd = (sums for parities in _PASSES for sums in add_words(begin, last, parities))
            next_end = builder.add(last, INT64(_BLOCK_WORDS))
            new_total = [
                in_order(builder, t, in_order(builder, e, o)) for t, e, o in zip(total, even, odd, strict=True)
            ]
            folded = builder.block
            builder.cbranch(builder.icmp_signed("<", last, length), block, after)
            for phi, first, again in [
                (begin, INT64(0), last), (end, block_end, next_end),
                *zip(total, totals, new_total, strict=True),
            ]:  # fmt: skip
                phi.add_incoming(first, before)
                phi.add_incoming(again, folded)
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
