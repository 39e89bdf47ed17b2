"""Vector operations for Numba: from scores to gradients, and from gradients to rows of the tables."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from superworkflow.tasks.lib.kernels.product_words import ORDER, WORD, round_rows
from superworkflow.tasks.lib.kernels.products import PRODUCTS
from superworkflow.tasks.lib.kernels.vectors import (
    INT32,
    INT64,
    INT_VECTOR,
    LANES,
    VECTOR,
    call,
    cgutils,
    data,
    fields,
    fma,
    load,
    pick,
    splat,
    splat_int,
    spread,
    store,
    sum_lanes,
)

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


SCORED = 4
"""Centres whose scores become slopes together."""


@PRODUCTS.marks
@intrinsic
def score_rows(
    typing_context: Any, scores: Any, weights: Any, count: Any, left: Any, label: Any, right: Any, words: Any,
    pairs: Any,
) -> Any:  # fmt: skip
    """From the scores of the centres `row` to `row` + 3 to the gradients of the objective by them, `count` of each, a
    multiple of 16.

    Args:
        scores: (scores, score, stride).
        weights: (weights, weight, step).
        left: of the centres, (scales, norms, curves, row).
        label: 1 for contexts, 0 for negatives.
        right: of the contexts or negatives, (norms, curves, first).

    Writes:
        words, pairs: (words, word, stride) and (pairs, pair, stride); and the curves of both sides.

    With r below 4, s = scores[score + r stride + k], w = scales[row + r] weights[weight + r step + k] and c the
    curvature bound of `_curvature`: the gradients g = w (label - logistic(s)) become words twice,
    words[word + r stride + t] is word t of g[r], and pairs[pair + t stride + k], t < 2, word t of the terms g[., k];
    left.curves[row + r] += sum_k w c(s) right.norms[first + k]; and
    right.curves[first + k] += w c(s) left.norms[row + r].
    """
    signature = types.void(scores, weights, types.int64, left, types.float32, right, words, pairs)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def values(index: int) -> list[Any]:
            return fields(context, builder, signature, arguments, index)

        def rows_from(array: Any, first: Any, stride: Any, count: int = SCORED) -> list[Any]:
            return [builder.gep(array, [builder.add(first, builder.mul(stride, INT64(r)))]) for r in range(count)]

        count, label = arguments[2], spread(builder, arguments[4])
        score, weight = rows_from(*values(0)), rows_from(*values(1))
        scales, own_norms, own_curves, row = values(3)
        scale, own = (
            [spread(builder, builder.load(place)) for place in rows_from(of_rows, row, INT64(1))]
            for of_rows in (scales, own_norms)
        )
        curves = rows_from(own_curves, row, INT64(1))
        norms, others, first = values(5)
        norms, others = builder.gep(norms, [first]), builder.gep(others, [first])
        array, *places = values(6)
        words = rows_from(array, *(builder.mul(place, INT64(WORD)) for place in places))
        array, *places = values(7)
        first, stride = (builder.mul(place, INT64(WORD)) for place in places)
        pairs = rows_from(array, first, stride, SCORED // 2)
        totals = [cgutils.alloca_once_value(builder, splat(0)) for _ in range(SCORED)]
        with cgutils.for_range_slice(builder, INT64(0), count, INT64(LANES), INT64) as (k, _):
            place = builder.gep(others, [k])
            curve, norm = load(builder, place), load(builder, builder.gep(norms, [k]))
            along = builder.sdiv(builder.mul(k, INT64(WORD)), INT64(2))
            gradients = []
            for r in range(SCORED):
                value = call(builder, "maxnum", load(builder, builder.gep(score[r], [k])), splat(-_LIMIT))
                value = call(builder, "minnum", value, splat(_LIMIT))
                share = builder.fmul(scale[r], load(builder, builder.gep(weight[r], [k])))
                probability = _logistic(builder, value)
                gradients.append(builder.fmul(share, builder.fsub(label, probability)))
                bound = builder.fmul(share, _curvature(builder, value, probability))
                curve = fma(builder, bound, own[r], curve)
                builder.store(fma(builder, bound, norm, builder.load(totals[r])), totals[r])
            store(builder, curve, place)
            for t, pair in enumerate(pairs):
                two = ORDER[2 * t : 2 * t + 2]
                along_rows, of_rows = round_rows(builder, gradients[two[0]], gradients[two[1]], right=False)
                for term, vector in zip(two, along_rows, strict=True):
                    store(builder, vector, builder.gep(words[term], [along]))
                for n, vector in enumerate(of_rows):
                    following = builder.add(builder.mul(k, INT64(WORD)), INT64(n * LANES))
                    store(builder, vector, builder.gep(pair, [following]))
        for r in range(SCORED):
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
