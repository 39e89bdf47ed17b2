"""Products of a block by tiles, 16 rows at a time, in the order of sums of `product_words`."""

from __future__ import annotations

from typing import Any

import numba as nb
from numba import types
from numba.extending import intrinsic

from superworkflow.tasks.lib.kernels.product_words import TILES
from superworkflow.tasks.lib.kernels.products import (
    PRODUCTS,
    TILE,
    begin_tiles,
    end_tiles,
    load_tile,
    multiply_tiles,
    store_tile,
    zero_tile,
)
from superworkflow.tasks.lib.kernels.vectors import (
    INT64,
    LANES,
    cgutils,
    data,
    fields,
    load,
    splat,
    store,
    transpose,
)

_TOGETHER, _LEFT, _RIGHT = 4, 4, 5
"""Tiles of sums that are added to in turn, from register 0 on; registers of factors."""
_BYTES = 4


@nb.njit(inline="always")
def _nothing() -> None:
    """Stands for the set-up of tiles where products are made without them."""


begin_products: Any = begin_tiles if TILES else _nothing
end_products: Any = end_tiles if TILES else _nothing
"""What a thread calls before and after products, whatever makes them: see `products.begin_tiles`, `end_tiles`."""


def _sums_of_products(builder: Any, products: list[Any], out: Any, tiles: Any, add: bool) -> None:
    """Code of C = sum of A B, or C += it, over `products`: ((a, first, row, block), (b, first, step), blocks)."""
    c, c_first, c_row = out
    c, c_bytes = builder.gep(c, [c_first]), builder.mul(c_row, INT64(_BYTES))
    factors = []
    for (a, a_first, a_row, a_block), (b, b_first, b_step), blocks in products:
        left = builder.gep(a, [a_first]), builder.mul(a_row, INT64(_BYTES)), a_block
        right = builder.gep(b, [b_first]), builder.mul(b_step, INT64(_BYTES)), builder.mul(b_step, INT64(TILE))
        factors.append((left, right, blocks))

    def sums(first: Any, count: int) -> None:
        """`count` tiles of C from tile `first` on."""
        lane = builder.mul(first, INT64(LANES))
        places = [builder.add(lane, INT64(n * LANES)) for n in range(count)]
        for n, place in enumerate(places):
            if add:
                load_tile(builder, n, builder.gep(c, [place]), c_bytes)
            else:
                zero_tile(builder, n)
        for (a, a_bytes, a_block), (b, b_bytes, b_block), blocks in factors:
            with cgutils.for_range_slice(builder, INT64(0), blocks, INT64(1), INT64) as (block, _):
                load_tile(builder, _LEFT, builder.gep(a, [builder.mul(block, a_block)]), a_bytes)
                start = builder.mul(block, b_block)
                for n, place in enumerate(places):
                    right = _RIGHT + n % 2
                    load_tile(builder, right, builder.gep(b, [builder.add(start, place)]), b_bytes)
                    multiply_tiles(builder, n, _LEFT, right)
        for n, place in enumerate(places):
            store_tile(builder, n, builder.gep(c, [place]), c_bytes)

    left_over = builder.srem(tiles, INT64(_TOGETHER))
    whole = builder.sub(tiles, left_over)
    with cgutils.for_range_slice(builder, INT64(0), whole, INT64(_TOGETHER), INT64) as (first, _):
        sums(first, _TOGETHER)
    for count in range(1, _TOGETHER):
        with builder.if_then(builder.icmp_signed("==", left_over, INT64(count))):
            sums(whole, count)


def _tile_product(add: bool) -> Any:
    """Intrinsic of `set_tiles` or `add_tiles`."""

    def product(typing_context: Any, left: Any, right: Any, out: Any, blocks: Any, tiles: Any) -> Any:
        return types.void(left, right, out, types.int64, types.int64), generate

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, c = (fields(context, builder, signature, arguments, n) for n in range(3))
        _sums_of_products(builder, [(a, b, arguments[3])], c, arguments[4], add)
        return context.get_dummy_value()

    return intrinsic(product)


set_tiles: Any = PRODUCTS.marks(_tile_product(add=False))
"""set_tiles((a, first, row, block), (b, first, step), (c, first, row), blocks, tiles): C = A B for 16 rows of C:
c[first + r row + k] = sum_t A[r, t] B[t, k] with r < 16, k < 16 `tiles`, and 32 terms t for each of `blocks`.

Word w of A's row r in a block is a[first + r row + block `block` + w]; B's row of words w is at b[first + w step]."""
add_tiles: Any = PRODUCTS.marks(_tile_product(add=True))
"""C += A B; see `set_tiles`."""


@PRODUCTS.marks
@intrinsic
def set_sum_of_tiles(
    typing_context: Any, left: Any, right: Any, blocks: Any, more_left: Any, more_right: Any, more_blocks: Any,
    out: Any, tiles: Any,
) -> Any:  # fmt: skip
    """C = A B + A' B', as by `set_tiles` and then `add_tiles`, with the sums kept in tiles in between."""
    signature = types.void(left, right, types.int64, more_left, more_right, types.int64, out, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def values(index: int) -> list[Any]:
            return fields(context, builder, signature, arguments, index)

        products = [(values(0), values(1), arguments[2]), (values(3), values(4), arguments[5])]
        _sums_of_products(builder, products, values(6), arguments[7], add=False)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def turn_words(
    typing_context: Any, source: Any, first: Any, stride: Any, count: Any, target: Any, place: Any
) -> Any:  # fmt: skip
    """target[place + 16 k + t] = source[first + t stride + k] for k < 16 and t < 16, and 0 for t from `count` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = (data(context, builder, signature, arguments, n) for n in (0, 4))
        first, stride, count, place = (arguments[n] for n in (1, 2, 3, 5))
        lines = []
        for t in range(LANES):
            there = builder.icmp_signed("<", INT64(t), count)
            row = builder.select(there, builder.add(first, builder.mul(stride, INT64(t))), first)
            lines.append(builder.select(there, load(builder, builder.gep(source, [row])), splat(0)))
        for k, line in enumerate(transpose(builder, lines)):
            store(builder, line, builder.gep(target, [builder.add(place, INT64(k * LANES))]))
        return context.get_dummy_value()

    return types.void(source, types.int64, types.int64, types.int64, target, types.int64), generate
