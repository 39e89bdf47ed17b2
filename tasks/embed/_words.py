"""Factors of products in words of two.

Products take their factors rounded to bfloat16 (8 bits of precision) and add up in float32. One instruction of AVX-512
BF16 multiplies and adds twice as many of them as one of float32. It takes two terms of a sum at a time, so factors lie
in words of two: a word is what the terms 2 t and 2 t + 1 take. Where a processor lacks that instruction, a word is two
float32 and a term one multiply-add, in the order in which the instruction adds: the second first. The bits of a product
are thus the same on both.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from superworkflow.tasks.embed._lanes import (
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
from superworkflow.tasks.lib.kernels.cpu_features import has

WORD = 1 if has("avx512bf16") else 2
"""Floats that a word takes."""


class _BFloat16(ir.Type):  # type: ignore[misc]
    """LLVM's type of that name, which llvmlite does not have."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat16)

    def __hash__(self) -> int:
        return hash(_BFloat16)


_HALF_VECTOR = ir.VectorType(_BFloat16(), LANES)
_WORDS = ir.VectorType(_BFloat16(), 2 * LANES)
_HALF_WORDS = ir.VectorType(FLOAT, LANES // 2)


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
    lanes = [lane // 2 + lane % 2 * LANES for lane in range(2 * LANES)]
    if WORD == 1:
        return [builder.bitcast(pick(builder, first, lanes, second), VECTOR)]
    return [pick(builder, first, lanes[:LANES], second), pick(builder, first, lanes[LANES:], second)]


def words_along(builder: Any, vector: Any) -> Any:
    """The words (vector[2 k], vector[2 k + 1])."""
    return builder.bitcast(vector, _HALF_WORDS) if WORD == 1 else vector


def multiply_words(builder: Any, factor: Any, others: Any, total: Any) -> Any:
    """total + factor others, by words; both are lists of `WORD` vectors."""
    if WORD == 1:
        kind = ir.FunctionType(VECTOR, [VECTOR, _WORDS, _WORDS])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512bf16.dpbf16ps.512")
        return builder.call(function, [total, builder.bitcast(factor[0], _WORDS), builder.bitcast(others[0], _WORDS)])
    return fma(builder, factor[0], others[0], fma(builder, factor[1], others[1], total))


def store_pairs(builder: Any, vectors: list[Any], pairs: Any, stride: Any, k: Any) -> None:
    """Rows of words from rows of rounded factors: (row 2 t, row 2 t + 1), `stride` words each, from column `k` on."""
    for r in range(0, len(vectors), 2):
        start = builder.add(builder.mul(stride, INT64(r // 2 * WORD)), k)
        if WORD == 1:
            store(builder, words_of(builder, vectors[r], vectors[r + 1])[0], builder.gep(pairs, [start]))
        else:
            store(builder, vectors[r], builder.gep(pairs, [start]))
            store(builder, vectors[r + 1], builder.gep(pairs, [builder.add(start, stride)]))
