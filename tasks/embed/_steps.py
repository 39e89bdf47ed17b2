"""Vector operations for Numba: from scores to gradients, and from gradients to rows of the tables."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from superworkflow.tasks.embed._lanes import (
    INT32,
    INT64,
    INT_VECTOR,
    LANES,
    VECTOR,
    call,
    cgutils,
    data,
    fma,
    load,
    pick,
    splat,
    splat_int,
    spread,
    store,
    sum_lanes,
)
from superworkflow.tasks.embed._words import WORD, round_factors, words_along, words_of
from superworkflow.tasks.lib.kernels.prefetch import hint

_EXP2 = (0.0013333558, 0.0096181291, 0.0555041087, 0.2402265070, 0.6931471806, 1.0)
"""Taylor coefficients of 2**f, |f| <= 1/2, highest power first: relative error below 3e-6."""
_LIMIT = 30.0
"""Scores are clipped to this magnitude; the logistic function is 0 or 1 in float32 beyond it."""


def _logistic(builder: Any, x: Any) -> Any:
    """1 / (1 + exp(-x)) for |x| <= 30, by 2**n * 2**f."""
    t = builder.fmul(x, splat(-1.4426950408889634))
    n = call(builder, "rint", t)
    f = builder.fsub(t, n)
    power = splat(_EXP2[0])
    for coefficient in _EXP2[1:]:
        power = fma(builder, power, f, splat(coefficient))
    exponent = builder.add(builder.fptosi(n, INT_VECTOR), splat_int(127))
    scale = builder.bitcast(builder.shl(exponent, splat_int(23)), VECTOR)
    return builder.fdiv(splat(1), fma(builder, power, scale, splat(1)))


def _curvature(builder: Any, score: Any, probability: Any) -> Any:
    """(logistic(s) - 1/2) / s, the curvature of the tightest parabola above -log(logistic) that touches it at s
    (Jaakkola and Jordan, 2000); 1/4 at 0."""
    flat = builder.fcmp_ordered("<", call(builder, "fabs", score), splat(1e-2))
    ratio = builder.fdiv(builder.fsub(probability, splat(0.5)), builder.select(flat, splat(1), score))
    return builder.select(flat, splat(0.25), ratio)


@intrinsic
def score_rows(
    typing_context: Any, scores: Any, score: Any, weights: Any, weight: Any, step: Any, count: Any, scales: Any,
    own: Any, curves: Any, row: Any, label: Any, norms: Any, norm: Any, other_curves: Any,
    words: Any, word: Any, pairs: Any, pair: Any,
) -> Any:  # fmt: skip
    """From the scores of the centres `row` and `row` + 1 to the gradients of the objective by them, `count` of each, a
    multiple of 16.

    With r = 0 or 1, s = scores[score + r count + k], w = scales[row + r] weights[weight + r step + k] and c the
    curvature bound of `_curvature`: the gradients g = w (label - logistic(s)) become words twice,
    words[word + r count / 2 + k] = (g[r, 2 k], g[r, 2 k + 1]) and pairs[pair + k] = (g[0, k], g[1, k]);
    curves[row + r] += sum_k w c(s) norms[norm + k]; and other_curves[norm + k] += w c(s) own[row + r].
    """
    integer, single = types.int64, types.float32
    signature = types.void(
        scores, integer, weights, integer, integer, integer, scales, own, curves, integer, single, norms, integer,
        other_curves, words, integer, pairs, integer,
    )  # fmt: skip

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def at(array: int, place: Any) -> Any:
            return builder.gep(data(context, builder, signature, arguments, array), [place])

        count, row = arguments[5], arguments[9]
        rows = [row, builder.add(row, INT64(1))]
        score = [at(0, arguments[1]), at(0, builder.add(arguments[1], count))]
        weight = [at(2, arguments[3]), at(2, builder.add(arguments[3], arguments[4]))]
        scale, own = ([spread(builder, builder.load(at(n, r))) for r in rows] for n in (6, 7))
        curves = [at(8, r) for r in rows]
        label, norms, others = spread(builder, arguments[10]), at(11, arguments[12]), at(13, arguments[12])
        half = builder.sdiv(builder.mul(count, INT64(WORD)), INT64(2))
        word = builder.mul(arguments[15], INT64(WORD))
        words = [at(14, word), at(14, builder.add(word, half))]
        pairs = at(16, builder.mul(arguments[17], INT64(WORD)))
        totals = [cgutils.alloca_once_value(builder, splat(0)) for _ in rows]
        with cgutils.for_range_slice(builder, INT64(0), count, INT64(LANES), INT64) as (k, _):
            place = builder.gep(others, [k])
            curve, norm = load(builder, place), load(builder, builder.gep(norms, [k]))
            along = builder.sdiv(builder.mul(k, INT64(WORD)), INT64(2))
            gradients = []
            for r in range(2):
                value = call(builder, "maxnum", load(builder, builder.gep(score[r], [k])), splat(-_LIMIT))
                value = call(builder, "minnum", value, splat(_LIMIT))
                share = builder.fmul(scale[r], load(builder, builder.gep(weight[r], [k])))
                probability = _logistic(builder, value)
                gradients.append(round_factors(builder, builder.fmul(share, builder.fsub(label, probability))))
                store(builder, words_along(builder, gradients[r]), builder.gep(words[r], [along]))
                bound = builder.fmul(share, _curvature(builder, value, probability))
                curve = fma(builder, bound, own[r], curve)
                builder.store(fma(builder, bound, norm, builder.load(totals[r])), totals[r])
            store(builder, curve, place)
            for n, vector in enumerate(words_of(builder, *gradients)):
                following = builder.add(builder.mul(k, INT64(WORD)), INT64(n * LANES))
                store(builder, vector, builder.gep(pairs, [following]))
        for r in range(2):
            found = builder.load(totals[r])
            width = LANES // 2
            while width:
                shifted = pick(builder, found, [(lane + width) % LANES for lane in range(LANES)])
                found = builder.fadd(found, shifted)
                width //= 2
            builder.store(builder.fadd(builder.load(curves[r]), builder.extract_element(found, INT32(0))), curves[r])
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def squared_norms(typing_context: Any, x: Any, row: Any, stride: Any, out: Any) -> Any:
    """out[row:row+16] = squared norms of rows x[row:row+16]."""
    signature = types.void(x, types.int64, types.int64, out)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, out = (data(context, builder, signature, arguments, n) for n in (0, 3))
        first, stride = arguments[1], arguments[2]
        rows = [builder.gep(x, [builder.mul(builder.add(first, INT64(r)), stride)]) for r in range(LANES)]
        sums = [cgutils.alloca_once_value(builder, splat(0)) for _ in rows]
        with cgutils.for_range_slice(builder, INT64(0), stride, INT64(LANES), INT64) as (k, _):
            for row, total in zip(rows, sums, strict=True):
                value = load(builder, builder.gep(row, [k]))
                builder.store(fma(builder, value, value, builder.load(total)), total)
        store(builder, sum_lanes(builder, [builder.load(total) for total in sums]), builder.gep(out, [first]))
        return context.get_dummy_value()

    return signature, generate


def _over_row(builder: Any, length: Any, vector: Any, scalar: Any) -> None:
    """Whole vectors of a row, then what is left one by one."""
    whole = builder.and_(length, INT64(-LANES))
    with cgutils.for_range_slice(builder, INT64(0), whole, INT64(LANES), INT64) as (k, _):
        vector(k)
    with cgutils.for_range_slice(builder, whole, length, INT64(1), INT64) as (k, _):
        scalar(k)


@intrinsic
def add_row(typing_context: Any, table: Any, place: Any, length: Any, step: Any, g: Any, start: Any) -> Any:
    """table[place:place+length] += step * g[start:start+length]."""
    signature = types.void(table, types.int64, types.int64, types.float32, g, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = builder.gep(data(context, builder, signature, arguments, 0), [arguments[1]])
        source = builder.gep(data(context, builder, signature, arguments, 4), [arguments[5]])
        step = arguments[3]
        steps = spread(builder, step)

        def vector(k: Any) -> None:
            place = builder.gep(target, [k])
            value = fma(builder, steps, load(builder, builder.gep(source, [k])), load(builder, place))
            store(builder, value, place)

        def scalar(k: Any) -> None:
            place = builder.gep(target, [k])
            product = builder.fmul(step, builder.load(builder.gep(source, [k])))
            builder.store(builder.fadd(builder.load(place), product), place)

        _over_row(builder, arguments[2], vector, scalar)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def prefetch_row(typing_context: Any, table: Any, place: Any, length: Any) -> Any:
    """The hint for each cache line of table[place:place+length]."""
    signature = types.void(table, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = builder.gep(data(context, builder, signature, arguments, 0), [arguments[1]])
        with cgutils.for_range_slice(builder, INT64(0), arguments[2], INT64(LANES), INT64) as (k, _):
            hint(builder, builder.gep(start, [k]))
        return context.get_dummy_value()

    return signature, generate
