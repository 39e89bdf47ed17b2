"""Products of matrices whose factors are rounded to bfloat16, by the way that this processor makes them fastest.

Factors are packed first, the left one by rows, the right one by pairs of its rows, in words of `product_words`; its
order of sums is that of all ways, so results are the same bits on every processor. Packed matrices are flat and padded
with zeros: the rows of the left one to a multiple of `TERMS` factors, those of the right one to one of `LANES`.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numba import types
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels import product_registers, product_tiles
from superworkflow.tasks.lib.kernels.intrinsics import kernel_intrinsic
from superworkflow.tasks.lib.kernels.lanes import table_of
from superworkflow.tasks.lib.kernels.product_registers import ROWS
from superworkflow.tasks.lib.kernels.product_words import TILES, WORD, round_factors, store_pairs, words_along
from superworkflow.tasks.lib.kernels.products import PRODUCTS, TILE
from superworkflow.tasks.lib.kernels.vectors import INT64, LANES, data, load, store, transpose

Floats = NDArray[np.float32]
TERMS = 2 * TILE
"""Terms that are added up together: a row of a tile."""
add_tiles: Any = product_tiles.add_tiles
add_product: Any = product_registers.add_product
begin_products: Any = product_tiles.begin_products
end_products: Any = product_tiles.end_products


def up(count: int, multiple: int) -> int:
    """`count` rounded up to a multiple."""
    return -(-count // multiple) * multiple


def left_room(rows: int, terms: int) -> Floats:
    """Room for a left factor: zeros [rows up to a multiple of 16, words of the terms]."""
    return table_of(up(rows, TILE), up(terms, TERMS) * WORD // 2, np.float32)


def right_room(terms: int, columns: int) -> Floats:
    """Room for a right factor: zeros [words of the terms, columns up to a multiple of 16]."""
    return table_of(up(terms, TERMS) * WORD // 2, up(columns, LANES), np.float32)


def product_room(rows: int, columns: int) -> Floats:
    """Room for a product: zeros [rows up to a multiple of 16, columns up to a multiple of 16]."""
    return table_of(up(rows, TILE), up(columns, LANES), np.float32)


@kernel_intrinsic
def _put_along(typing_context: Any, rows: Any, first: Any, words: Any, place: Any) -> Any:
    """Words of the 16 factors from rows[first] on, from words[place] on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = (data(context, builder, signature, arguments, n) for n in (0, 2))
        factors = round_factors(builder, load(builder, builder.gep(source, [arguments[1]])))
        store(builder, words_along(builder, factors), builder.gep(target, [arguments[3]]))
        return context.get_dummy_value()

    return types.void(rows, types.int64, words, types.int64), generate


def _of_square(turned: bool) -> Any:
    """Intrinsic of `_put_pairs` or `_put_turned`."""

    def typed(typing_context: Any, rows: Any, first: Any, stride: Any, words: Any, place: Any, row: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, target = (data(context, builder, signature, arguments, n) for n in (0, 3))
            first, stride, place, row = (arguments[n] for n in (1, 2, 4, 5))
            places = [builder.add(first, builder.mul(stride, INT64(t))) for t in range(LANES)]
            lines = [load(builder, builder.gep(source, [each])) for each in places]
            if not turned:
                factors = [round_factors(builder, each) for each in lines]
                store_pairs(builder, factors, builder.gep(target, [place]), row, INT64(0))
                return context.get_dummy_value()
            for k, line in enumerate(transpose(builder, lines)):
                to = builder.gep(target, [builder.add(place, builder.mul(row, INT64(k)))])
                store(builder, words_along(builder, round_factors(builder, line)), to)
            return context.get_dummy_value()

        return types.void(rows, types.int64, types.int64, words, types.int64, types.int64), generate

    return kernel_intrinsic(typed)


put_along: Any = PRODUCTS.marks(_put_along)
put_pairs: Any = PRODUCTS.marks(_of_square(False))
"""``put_pairs(rows, first, stride, words, place, row)``: the 16 columns from rows[first] on of 16 rows, `stride` floats
apart, as words of pairs of rows, which are `row` floats apart, from words[place] on."""
put_turned: Any = PRODUCTS.marks(_of_square(True))
"""As `put_pairs`: words of the transposed square, along its rows, which are `row` floats apart."""


@nb.njit(nogil=True)
def pack_left(rows: Any, words: Any, first: Any) -> None:
    """Pack rows of a left factor.

    Args:
        rows: float32 [r, terms up to a multiple of `TERMS`], zeros behind the terms; both arrays C-contiguous.
        words: `left_room`, filled from row `first` on.
    """
    width, row = rows.shape[1], words.shape[1]
    if width * WORD // 2 != row or first < 0 or first + len(rows) > len(words):
        raise ValueError("rows of a left factor that do not fit into their room")
    source, target = rows.reshape(-1), words.reshape(-1)
    for r in range(len(rows)):
        for k in range(0, width, LANES):
            put_along(source, r * width + k, target, (first + r) * row + k * WORD // 2)


@nb.njit(nogil=True)
def pack_right(rows: Any, pairs: Any, first: Any) -> None:
    """Pack rows of a right factor.

    Args:
        rows: float32 [a multiple of 16, columns up to a multiple of 16], C-contiguous.
        pairs: `right_room`, filled from term `first` on, a multiple of 16.
    """
    width, row = rows.shape[1], pairs.shape[1]
    if width != row or first % LANES or len(rows) % LANES or (first + len(rows)) * WORD // 2 > len(pairs) or first < 0:
        raise ValueError("rows of a right factor that do not fit into their room")
    source, target = rows.reshape(-1), pairs.reshape(-1)
    for t in range(0, len(rows), LANES):
        for k in range(0, width, LANES):
            put_pairs(source, t * width + k, width, target, (first + t) * WORD // 2 * row + k, row)


@nb.njit(nogil=True)
def pack_turned(rows: Any, words: Any, first: Any) -> None:
    """Pack the transpose of rows as terms of a left factor.

    Args:
        rows: float32 [a multiple of 16, rows of the left factor up to a multiple of 16], C-contiguous.
        words: `left_room`, filled from term `first` on, a multiple of 16.
    """
    width, row = rows.shape[1], words.shape[1]
    if width != len(words) or first % LANES or len(rows) % LANES or (first + len(rows)) * WORD // 2 > row or first < 0:
        raise ValueError("terms of a left factor that do not fit into their room")
    source, target = rows.reshape(-1), words.reshape(-1)
    for t in range(0, len(rows), LANES):
        for k in range(0, width, LANES):
            put_turned(source, t * width + k, width, target, k * row + (first + t) * WORD // 2, row)


@nb.njit(inline="always")
def _add_by_tiles(words: Any, row: Any, pairs: Any, width: Any, out: Any, r: Any) -> None:
    add_tiles((words, r * row, row, TILE), (pairs, 0, width), (out, r * width, width), row // TILE, width // LANES)


@nb.njit(inline="always")
def _add_by_registers(words: Any, row: Any, pairs: Any, width: Any, out: Any, r: Any) -> None:
    for own in range(r, r + TILE, ROWS):
        add_product(
            (words, own * (row // WORD), row // WORD, 1), (pairs, 0, width, 0), (out, own * width, width),
            row // WORD, 0, width // LANES,
        )  # fmt: skip


_add: Any = _add_by_tiles if TILES else _add_by_registers


@nb.njit(nogil=True)
def add_products(words: Any, pairs: Any, out: Any) -> None:
    """out += the product of packed factors.

    Args:
        words: left factor [a multiple of 16, words]; all arrays C-contiguous, as their rooms are.
        pairs: right factor [words, columns].
        out: [rows of the left one, columns of the right one].
    """
    row, width = words.shape[1], pairs.shape[1]
    if row != len(pairs) or out.shape != (len(words), width) or len(words) % TILE or width % LANES or row % TILE:
        raise ValueError("factors of a product that do not fit together")
    left, right, to = words.reshape(-1), pairs.reshape(-1), out.reshape(-1)
    begin_products()
    for r in range(0, len(words), TILE):
        _add(left, row, right, width, to, r)
    end_products()
