"""Factors of products in words of two.

Products take their factors rounded to bfloat16 (8 bits of precision) and add up in float32, in one order on every
processor: that of the tile instruction, which is the only one that it has. Terms stand in blocks of 32; in a block the
even ones are added to 0 one after the other, the odd ones likewise, and both sums are added to each other, then to the
total. Each step is one multiply-add. See `tasks.lib.kernels.products` for the instructions.

Factors lie in words of two terms, as the instructions take them. A word of tiles is the terms 2 t and 2 t + 1. That of
the word instruction, which adds its second term and then its first one, is two even terms, or two odd ones: of the
terms 4 t to 4 t + 3 the words are (4 t + 2, 4 t) and (4 t + 3, 4 t + 1). Without either a word is two float32 in the
order of these. The bits of a product are thus the same on all.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from superworkflow.tasks.lib.kernels.products import BFLOAT16, PRODUCTS, multiply_word_vectors
from superworkflow.tasks.lib.kernels.vectors import (
    FLOAT,
    INT64,
    INT_VECTOR,
    LANES,
    VECTOR,
    cgutils,
    fma,
    pick,
    splat_int,
    store,
)

TILES = PRODUCTS.value == "tiles"
"""True where products are made by tiles."""
WORD = 2 if PRODUCTS.value == "floats" else 1
"""Floats that a word takes."""
ORDER = list(range(LANES)) if TILES else [4 * t + term for t in range(LANES // 4) for term in (2, 0, 3, 1)]
"""The terms of 8 words that follow one another."""

_HALF_VECTOR = ir.VectorType(BFLOAT16, LANES)
_HALF_WORDS = ir.VectorType(FLOAT, LANES // 2)
_HALVES = [list(range(LANES)), list(range(LANES, 2 * LANES))]
_MIXED = [lane // 2 + lane % 2 * LANES for lane in range(2 * LANES)]
"""Lanes of two vectors in turn."""


def round_factors(builder: Any, vector: Any) -> Any:
    """Factors rounded to the nearest bfloat16, ties to even; of that type only where the processor has it."""
    if WORD == 1:
        return builder.fptrunc(vector, _HALF_VECTOR)
    bits = builder.bitcast(vector, INT_VECTOR)
    odd = builder.and_(builder.lshr(bits, splat_int(16)), splat_int(1))
    bits = builder.add(bits, builder.add(odd, splat_int(0x7FFF)))
    return builder.bitcast(builder.and_(bits, splat_int(-0x10000)), VECTOR)


def words_of(builder: Any, first: Any, second: Any) -> list[Any]:
    """The words (first[k], second[k]), as `WORD` vectors that follow one another."""
    if WORD == 1:
        return [builder.bitcast(pick(builder, first, _MIXED, second), VECTOR)]
    return [pick(builder, first, [_MIXED[lane] for lane in half], second) for half in _HALVES]


def words_along(builder: Any, vector: Any) -> Any:
    """The words of 16 terms."""
    ordered = pick(builder, vector, ORDER)
    return builder.bitcast(ordered, _HALF_WORDS) if WORD == 1 else ordered


def round_rows(builder: Any, first: Any, second: Any, right: bool) -> tuple[list[Any], list[Any]]:
    """Words of 16 terms of two rows, rounded to the nearest bfloat16, ties to even: along each of the rows, and of the
    terms (first[k], second[k]).

    The latter are `WORD` vectors: those of a left factor follow one another, those of a right one are lines of theirs.
    """
    if WORD == 1:
        both = _round_two(builder, first, second)
        along = both if TILES else pick(builder, both, ORDER + [LANES + term for term in ORDER])
        words = [builder.bitcast(pick(builder, along, half), _HALF_WORDS) for half in _HALVES]
        return words, [builder.bitcast(pick(builder, both, _MIXED), VECTOR)]
    rows = [round_factors(builder, vector) for vector in (first, second)]
    mixed = rows if right else words_of(builder, *rows)
    return [words_along(builder, row) for row in rows], mixed


def _round_two(builder: Any, first: Any, second: Any) -> Any:
    """32 terms as bfloat16, by the one instruction that is as fast as that for 16."""
    whole = ir.VectorType(BFLOAT16, 2 * LANES)
    kind = ir.FunctionType(whole, [VECTOR, VECTOR])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512bf16.cvtne2ps2bf16.512")
    return builder.call(function, [second, first])


def multiply_words(builder: Any, factor: Any, others: Any, total: Any) -> Any:
    """total + factor others, by words; both are lists of `WORD` vectors."""
    if WORD == 1:
        return multiply_word_vectors(builder, factor[0], others[0], total)
    return fma(builder, factor[0], others[0], fma(builder, factor[1], others[1], total))


def store_pairs(builder: Any, vectors: list[Any], pairs: Any, stride: Any, k: Any) -> None:
    """Rows of words from 16 rows of rounded factors, whose terms are the rows: `stride` words each, from column `k`."""
    rows = [vectors[term] for term in ORDER]
    for r in range(0, len(rows), 2):
        start = builder.add(builder.mul(stride, INT64(r // 2 * WORD)), k)
        if WORD == 1:
            store(builder, words_of(builder, rows[r], rows[r + 1])[0], builder.gep(pairs, [start]))
        else:
            store(builder, rows[r], builder.gep(pairs, [start]))
            store(builder, rows[r + 1], builder.gep(pairs, [builder.add(start, stride)]))
