"""A matrix of bfloat16 transposed, times another one, with sums of float32, by tiles (see `products`).

This is the gradient of a layer's matrix, and the sums of the columns that of its bias: both matrices have many rows and
few columns, are read once, and are packed as tiles take them in the second-level cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels import product_tiles
from superworkflow.tasks.lib.kernels.intrinsics import kernel_intrinsic
from superworkflow.tasks.lib.kernels.prefetch import prefetch_row
from superworkflow.tasks.lib.kernels.products import PRODUCTS, TILE, begin_tiles, end_tiles
from superworkflow.tasks.lib.kernels.vectors import (
    INT64,
    INT_VECTOR,
    LANES,
    VECTOR,
    cgutils,
    data,
    load,
    load_part,
    pick,
    splat_int,
    store,
    transpose,
)

add_tiles: Any = product_tiles.add_tiles
_TERMS = 2 * TILE
"""Terms of a block."""
_WIDE = 4 * TILE
"""Columns of the product that are added to together."""
_DEEP = 256
"""Rows whose terms a thread adds at a time."""
_LINE_BYTES, _PAIRS = 64, _DEEP // 2
_TURNED = _PAIRS + TILE
"""Words of a row of transposed factors: of a power of two the rows would share few sets of the first-level cache."""
_SHORTS = ir.VectorType(ir.IntType(16), 2 * LANES)


def by_tiles() -> bool:
    """True if this processor can run `multiply_transposed`, and it is the fastest here."""
    return PRODUCTS.value == "tiles"


def _words(builder: Any, source: Any, first: Any, second: Any, left: Any) -> list[Any]:
    """Words (source[first + k], source[second + k]), of k < 16 and of 16 <= k < 32; zeros from `left` on, if given."""
    rows = []
    for place in (first, second):
        pointer = builder.gep(source, [place])
        if left is None:
            row = builder.load(builder.bitcast(pointer, _SHORTS.as_pointer()))
            row.align = 2
        else:
            row = load_part(builder, pointer, left, _SHORTS)
        rows.append(row)
    lanes = [[low + lane // 2 + lane % 2 * 2 * LANES for lane in range(2 * LANES)] for low in (0, LANES)]
    return [builder.bitcast(pick(builder, rows[0], each, rows[1]), VECTOR) for each in lanes]


def _by_columns(builder: Any, width: Any, part: Callable[[Any, Any], None]) -> None:
    """Code of `part(first column, columns that are left or None for 32)`."""
    rest = builder.srem(width, INT64(2 * LANES))
    whole = builder.sub(width, rest)
    with cgutils.for_range_slice(builder, INT64(0), whole, INT64(2 * LANES), INT64) as (column, _):
        part(column, None)
    with builder.if_then(builder.icmp_signed(">", rest, INT64(0))):
        part(whole, rest)


@kernel_intrinsic
def _pair_rows(typing_context: Any, source: Any, first: Any, width: Any, out: Any, place: Any) -> Any:
    """out[place + k] = word (source[first + k], source[first + width + k]), for k < width rounded up to 32.

    Words beyond `width` are 0.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, out = (data(context, builder, signature, arguments, n) for n in (0, 3))
        first, width, place = (arguments[n] for n in (1, 2, 4))

        def part(column: Any, left: Any) -> None:
            here = builder.add(first, column)
            for low, words in enumerate(_words(builder, source, here, builder.add(here, width), left)):
                target = builder.add(place, builder.add(column, INT64(low * LANES)))
                store(builder, words, builder.gep(out, [target]))

        _by_columns(builder, width, part)
        return context.get_dummy_value()

    number = types.int64
    return types.void(source, number, number, out, number), generate


@kernel_intrinsic
def _turn_rows(typing_context: Any, source: Any, first: Any, width: Any, out: Any, place: Any, sums: Any) -> Any:
    """out[place + k `_TURNED` + t] = word (source[f + k], source[f + width + k]), for t < 16.

    f is first + 2 t width. k is less than `width` rounded up to 32, with zeros beyond it. The 32 numbers of column k
    are added to sums[k].
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, out, sums = (data(context, builder, signature, arguments, n) for n in (0, 3, 5))
        first, width, place = (arguments[n] for n in (1, 2, 4))

        def part(column: Any, left: Any) -> None:
            pairs = []
            for t in range(TILE):
                here = builder.add(builder.add(first, column), builder.mul(width, INT64(2 * t)))
                pairs.append(_words(builder, source, here, builder.add(here, width), left))
            for low, words in enumerate(zip(*pairs, strict=True)):
                begin = builder.add(column, INT64(low * LANES))
                pointer = builder.gep(sums, [begin])
                store(builder, builder.fadd(load(builder, pointer), _total(builder, words)), pointer)
                start = builder.add(place, builder.mul(begin, INT64(_TURNED)))
                for lane, turned in enumerate(transpose(builder, list(words))):
                    store(builder, turned, builder.gep(out, [builder.add(start, INT64(lane * _TURNED))]))

        _by_columns(builder, width, part)
        return context.get_dummy_value()

    number = types.int64
    return types.void(source, number, number, out, number, sums), generate


def _total(builder: Any, words: Sequence[Any]) -> Any:
    """Sums of both numbers of all words, by lane."""
    terms = []
    for word in words:
        bits = builder.bitcast(word, INT_VECTOR)
        terms.append(builder.bitcast(builder.shl(bits, splat_int(16)), VECTOR))
        terms.append(builder.bitcast(builder.and_(bits, splat_int(-0x10000)), VECTOR))
    while len(terms) > 1:
        terms = [builder.fadd(terms[n], terms[n + 1]) for n in range(0, len(terms), 2)]
    return terms[0]


def transposed_product(
    left: NDArray[np.int16], right: NDArray[np.int16]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """left transposed times right [m, k], and the sums of the columns of `left` [m]; see `multiply_transposed`.

    Args:
        left, right: bits of bfloat16 [n, m], [n, k].
    """
    threads = min(nb.get_num_threads(), 1 + len(left) // _DEEP)
    out = np.empty((threads, left.shape[1], right.shape[1]), np.float32)
    sums = np.empty((threads, left.shape[1]), np.float32)
    multiply_transposed(left, right, out, sums)
    return (out[0], sums[0]) if threads == 1 else (out.sum(0), sums.sum(0))


@nb.njit(inline="always")
def _aligned(size: Any) -> Any:
    """Zeros [size], uint32, from the begin of a cache line on: a row of a tile is one."""
    whole = np.zeros(size + TILE, np.uint32)
    first = (-np.int64(whole.ctypes.data) % _LINE_BYTES) >> 2
    return whole[first : first + size]


@nb.njit(parallel=True, cache=True)
def multiply_transposed(
    left: NDArray[np.int16], right: NDArray[np.int16], out: NDArray[np.float32], sums: NDArray[np.float32]
) -> None:
    """Each thread's share of left transposed times right, and of the sums of the columns of `left`.

    Args:
        left, right: bits of bfloat16 [n, m], [n, k].
        out, sums: [threads, m, k] and [threads, m], filled.
    """
    count, wide, columns, threads = len(left), left.shape[1], right.shape[1], len(out)
    a, b, blocks = left.reshape(-1), right.reshape(-1), (count + _DEEP - 1) // _DEEP
    rows, stride = (wide + _TERMS - 1) // _TERMS * _TERMS, (columns + _TERMS - 1) // _TERMS * _TERMS
    step = stride | TILE
    for thread in nb.prange(threads):
        turned, pairs = _aligned(rows * _TURNED), _aligned(_PAIRS * step)
        made, total = _aligned(rows * stride).view(np.float32), np.zeros(rows, np.float32)
        rest_a, rest_b = np.zeros(_TERMS * wide, np.int16), np.zeros(_TERMS * columns, np.int16)
        begin_tiles()
        for block in range(blocks * thread // threads, blocks * (thread + 1) // threads):
            begin = block * _DEEP
            deep = (min(count, begin + _DEEP) - begin + _TERMS - 1) // _TERMS
            for group in range(deep):
                row, place = begin + group * _TERMS, group * TILE * step
                if row + 2 * _TERMS <= count:
                    prefetch_row(a, (row + _TERMS) * wide, _TERMS * wide)
                    prefetch_row(b, (row + _TERMS) * columns, _TERMS * columns)
                if row + _TERMS <= count:
                    _turn_rows(a, row * wide, wide, turned, group * TILE, total)
                    for t in range(TILE):
                        _pair_rows(b, (row + 2 * t) * columns, columns, pairs, place + t * step)
                else:
                    rest_a[: len(a) - row * wide] = a[row * wide :]
                    rest_b[: len(b) - row * columns] = b[row * columns :]
                    _turn_rows(rest_a, 0, wide, turned, group * TILE, total)
                    for t in range(TILE):
                        _pair_rows(rest_b, 2 * t * columns, columns, pairs, place + t * step)
            for column in range(0, stride, _WIDE):
                tiles = min(_WIDE, stride - column) // TILE
                for m in range(0, rows, TILE):
                    add_tiles(
                        (turned, m * _TURNED, _TURNED, TILE), (pairs, column, step),
                        (made, m * stride + column, stride), deep, tiles,
                    )  # fmt: skip
        end_tiles()
        for m in range(wide):
            sums[thread, m] = total[m]
            out[thread, m] = made[m * stride : m * stride + columns]
