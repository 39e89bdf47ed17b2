"""Explicit vector operations for Numba: the inner loops of skip-gram training.

LLVM vectorizes simple loops by itself but does not tile them in registers, and Numba has no prefetch. These
intrinsics emit 16-lane float32 vectors; LLVM splits them on processors with narrower registers, so that
nothing here needs AVX-512. Matrices are flat float32 arrays of rows of `stride` floats, a multiple of `LANES`.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding  # type: ignore[import-untyped]
from llvmlite import ir
from numba import types
from numba.core import cgutils as numba_cgutils
from numba.extending import intrinsic

cgutils: Any = numba_cgutils

LANES = 16
_WIDE = bool(llvmlite.binding.get_host_cpu_features().get("avx512f"))
ROWS = 8
"""Rows that the products of small matrices advance by."""
_SUMS = (8, 2) if _WIDE else (4, 1)
"""Rows and vectors of a tile of sums that stay in registers: 16 of the 32 of AVX-512, 8 of 16 elsewhere. The order in
which one sum is added up does not depend on it."""

_FLOAT, _INT32, _INT64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR, _IVECTOR = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT32, LANES)
_UNDEFINED = ir.Constant(_VECTOR, ir.Undefined)
_EXP2 = (0.0013333558, 0.0096181291, 0.0555041087, 0.2402265070, 0.6931471806, 1.0)
"""Taylor coefficients of 2**f, |f| <= 1/2, highest power first: relative error below 3e-6."""
_LIMIT = 30.0
"""Scores are clipped to this magnitude; the logistic function is 0 or 1 in float32 beyond it."""


def _splat(value: float) -> ir.Constant:
    return ir.Constant(_VECTOR, [float(value)] * LANES)


def _pick(builder: Any, vector: Any, lanes: list[int], other: Any = None) -> Any:
    """The chosen lanes of `vector` (0..15) and `other` (16..31)."""
    second = ir.Constant(vector.type, ir.Undefined) if other is None else other
    return builder.shuffle_vector(vector, second, ir.Constant(ir.VectorType(_INT32, len(lanes)), lanes))


def _load(builder: Any, pointer: Any, kind: Any = _VECTOR) -> Any:
    value = builder.load(builder.bitcast(pointer, kind.as_pointer()))
    value.align = 4
    return value


def _store(builder: Any, value: Any, pointer: Any) -> None:
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer())).align = 4


def _call(builder: Any, name: str, *arguments: Any) -> Any:
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * len(arguments))
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v16f32"), arguments)


def _fma(builder: Any, x: Any, y: Any, z: Any) -> Any:
    return _call(builder, "fma", x, y, z)


def _data(context: Any, builder: Any, signature: Any, arguments: Any, index: int) -> Any:
    array = context.make_array(signature.args[index])(context, builder, arguments[index])
    return array.data


def _rows(builder: Any, data: Any, first: Any, stride: Any, count: int) -> list[Any]:
    pointers = [builder.gep(data, [builder.mul(first, stride)])]
    for _ in range(count - 1):
        pointers.append(builder.gep(pointers[-1], [stride]))
    return pointers


def _sum_lanes(builder: Any, vectors: list[Any]) -> Any:
    """Lane t of the result is the sum of all lanes of `vectors[t]`: a butterfly of 15 additions."""
    width = LANES
    while len(vectors) > 1:
        half = width // 2
        low = [s * LANES + g + lane for s in (0, 1) for g in range(0, LANES, width) for lane in range(half)]
        high = [lane + half for lane in low]
        vectors = [
            builder.fadd(_pick(builder, a, low, b), _pick(builder, a, high, b))
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
        width = half
    return vectors[0]


def _accumulate(builder: Any, stride: Any, step: Any) -> Any:
    """Loop over the vectors of a row with 16 running sums; `step(k, sums)` gives the new sums. Returns lane sums."""
    before, loop = builder.block, builder.append_basic_block("sum")
    after = builder.append_basic_block("summed")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(_INT64)
    sums = [builder.phi(_VECTOR) for _ in range(LANES)]
    new = step(k, sums)
    following = builder.add(k, _INT64(LANES))
    for phi, value in zip([k, *sums], [following, *new], strict=True):
        phi.add_incoming(_INT64(0) if phi is k else _splat(0), before)
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", following, stride), loop, after)
    builder.position_at_end(after)
    return _sum_lanes(builder, new)


def _logistic(builder: Any, x: Any) -> Any:
    """1 / (1 + exp(-x)) for |x| <= 30, by 2**n * 2**f."""
    t = builder.fmul(x, _splat(-1.4426950408889634))
    n = _call(builder, "rint", t)
    f = builder.fsub(t, n)
    power = _splat(_EXP2[0])
    for coefficient in _EXP2[1:]:
        power = _fma(builder, power, f, _splat(coefficient))
    exponent = builder.add(builder.fptosi(n, _IVECTOR), ir.Constant(_IVECTOR, [127] * LANES))
    scale = builder.bitcast(builder.shl(exponent, ir.Constant(_IVECTOR, [23] * LANES)), _VECTOR)
    return builder.fdiv(_splat(1), _fma(builder, power, scale, _splat(1)))


def _curvature(builder: Any, score: Any, probability: Any) -> Any:
    """(logistic(s) - 1/2) / s, the curvature of the tightest parabola above -log(logistic) that touches it at s
    (Jaakkola and Jordan, 2000); 1/4 at 0."""
    flat = builder.fcmp_ordered("<", _call(builder, "fabs", score), _splat(1e-2))
    ratio = builder.fdiv(builder.fsub(probability, _splat(0.5)), builder.select(flat, _splat(1), score))
    return builder.select(flat, _splat(0.25), ratio)


def _spread(builder: Any, value: Any) -> Any:
    return _pick(builder, builder.insert_element(_UNDEFINED, value, _INT32(0)), [0] * LANES)


def _product(add: bool) -> Any:
    """Intrinsic of `set_product` or `add_product`."""

    def product(
        typing_context: Any, a: Any, a_first: Any, a_row: Any, a_step: Any, b: Any, b_first: Any, b_step: Any,
        c: Any, c_first: Any, c_row: Any, length: Any, vectors: Any,
    ) -> Any:  # fmt: skip
        integers = [types.int64] * 3
        signature = types.void(a, *integers, b, *integers[:2], c, *integers[:2], types.int64, types.int64)
        return signature, generate

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, c = (_data(context, builder, signature, arguments, n) for n in (0, 4, 7))
        a_first, a_row, a_step, b_first, b_step, c_first, c_row, length, vectors = (
            arguments[n] for n in (1, 2, 3, 5, 6, 8, 9, 10, 11)
        )
        rows, wide = _SUMS

        def tile(top: int, vector: Any, count: int) -> None:
            """Sums of `rows` rows from `top` on and `count` vectors from `vector` on."""
            lane = builder.mul(vector, _INT64(LANES))
            lefts = [builder.gep(a, [builder.add(a_first, builder.mul(a_row, _INT64(top + r)))]) for r in range(rows)]
            right = builder.gep(b, [builder.add(b_first, lane)])
            places = [
                [
                    builder.gep(
                        c, [builder.add(builder.add(c_first, builder.mul(c_row, _INT64(top + r))),
                                        builder.add(lane, _INT64(v * LANES)))]
                    )
                    for v in range(count)
                ]
                for r in range(rows)
            ]  # fmt: skip
            start = [[_load(builder, place) if add else _splat(0) for place in row] for row in places]
            before, loop = builder.block, builder.append_basic_block("multiply")
            after = builder.append_basic_block("multiplied")
            builder.branch(loop)
            builder.position_at_end(loop)
            step = builder.phi(_INT64)
            sums = [[builder.phi(_VECTOR) for _ in range(count)] for _ in range(rows)]
            base = builder.gep(right, [builder.mul(step, b_step)])
            others = [_load(builder, builder.gep(base, [_INT64(v * LANES)])) for v in range(count)]
            at = builder.mul(step, a_step)
            new = []
            for r in range(rows):
                factor = _spread(builder, builder.load(builder.gep(lefts[r], [at])))
                new.append([_fma(builder, factor, others[v], sums[r][v]) for v in range(count)])
            following = builder.add(step, _INT64(1))
            step.add_incoming(_INT64(0), before)
            step.add_incoming(following, loop)
            for r in range(rows):
                for v in range(count):
                    sums[r][v].add_incoming(start[r][v], before)
                    sums[r][v].add_incoming(new[r][v], loop)
            builder.cbranch(builder.icmp_signed("<", following, length), loop, after)
            builder.position_at_end(after)
            for r in range(rows):
                for v in range(count):
                    _store(builder, new[r][v], places[r][v])

        for top in range(0, ROWS, rows):
            whole = builder.sub(vectors, builder.srem(vectors, _INT64(wide)))
            with cgutils.for_range_slice(builder, _INT64(0), whole, _INT64(wide), _INT64) as (vector, _):
                tile(top, vector, wide)
            if wide > 1:
                with cgutils.for_range_slice(builder, whole, vectors, _INT64(1), _INT64) as (vector, _):
                    tile(top, vector, 1)
        return context.get_dummy_value()

    return intrinsic(product)


set_product = _product(add=False)
"""C = A B for 8 rows of C: c[c_first + r c_row + k] = sum_t a[a_first + r a_row + t a_step] b[b_first + t b_step + k],
r < 8, k < 16 `vectors`, t < `length`, which is 1 or more."""
add_product = _product(add=True)
"""C += A B; see `set_product`."""


@intrinsic
def transpose_rows(typing_context: Any, x: Any, first: Any, stride: Any, out: Any, place: Any, columns: Any) -> Any:
    """out[place + k columns + r] = x[first + r stride + k] for 16 rows r and k < stride."""
    integer = types.int64
    signature = types.void(x, integer, integer, out, integer, integer)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, out = (_data(context, builder, signature, arguments, n) for n in (0, 3))
        first, stride, place, columns = (arguments[n] for n in (1, 2, 4, 5))
        rows = [builder.gep(x, [builder.add(first, builder.mul(stride, _INT64(r)))]) for r in range(LANES)]
        with cgutils.for_range_slice(builder, _INT64(0), stride, _INT64(LANES), _INT64) as (k, _):
            vectors = [_load(builder, builder.gep(row, [k])) for row in rows]
            width = 1
            while width < LANES:  # exchange off-diagonal squares of this width
                low = [lane if not lane & width else LANES + lane - width for lane in range(LANES)]
                high = [lane + width if not lane & width else LANES + lane for lane in range(LANES)]
                swapped = list(vectors)
                for r in range(LANES):
                    if not r & width:
                        swapped[r] = _pick(builder, vectors[r], low, vectors[r + width])
                        swapped[r + width] = _pick(builder, vectors[r], high, vectors[r + width])
                vectors = swapped
                width *= 2
            for r, vector in enumerate(vectors):
                at = builder.add(place, builder.mul(builder.add(k, _INT64(r)), columns))
                _store(builder, vector, builder.gep(out, [at]))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def score_row(
    typing_context: Any, scores: Any, score: Any, gradients: Any, gradient: Any, weights: Any, weight: Any,
    count: Any, scale: Any, label: Any, norms: Any, norm: Any, curves: Any, curve: Any, own_norm: Any,
) -> Any:  # fmt: skip
    """From the scores of one centre to the gradients of the objective by them, `count` of each, a multiple of 16.

    With s = scores[score + k] and w = scale weights[weight + k]:
    gradients[gradient + k] = w (label - logistic(s)); curves[curve + k] += w c(s) own_norm, where c is the curvature
    bound of `_curvature`. Returns sum_k w c(s) norms[norm + k].
    """
    integer, single = types.int64, types.float32
    signature = single(
        scores, integer, gradients, integer, weights, integer, integer, single, single, norms, integer,
        curves, integer, single,
    )  # fmt: skip

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        starts = [
            builder.gep(_data(context, builder, signature, arguments, n), [arguments[n + 1]]) for n in (0, 2, 4, 9, 11)
        ]
        count, own_norm = arguments[6], _spread(builder, arguments[13])
        scale, label = (_spread(builder, arguments[n]) for n in (7, 8))
        total = cgutils.alloca_once_value(builder, _splat(0))
        with cgutils.for_range_slice(builder, _INT64(0), count, _INT64(LANES), _INT64) as (k, _):
            score, gradient, weight, norm, curve = (builder.gep(start, [k]) for start in starts)
            value = _call(builder, "maxnum", _load(builder, score), _splat(-_LIMIT))
            value = _call(builder, "minnum", value, _splat(_LIMIT))
            weights = builder.fmul(scale, _load(builder, weight))
            probability = _logistic(builder, value)
            _store(builder, builder.fmul(weights, builder.fsub(label, probability)), gradient)
            bound = builder.fmul(weights, _curvature(builder, value, probability))
            _store(builder, _fma(builder, bound, own_norm, _load(builder, curve)), curve)
            builder.store(_fma(builder, bound, _load(builder, norm), builder.load(total)), total)
        found = builder.load(total)
        width = LANES // 2
        while width:
            shifted = _pick(builder, found, [(lane + width) % LANES for lane in range(LANES)])
            found = builder.fadd(found, shifted)
            width //= 2
        return builder.extract_element(found, _INT32(0))

    return signature, generate


@intrinsic
def squared_norms(typing_context: Any, x: Any, row: Any, stride: Any, out: Any) -> Any:
    """out[row:row+16] = squared norms of rows x[row:row+16]."""
    signature = types.void(x, types.int64, types.int64, out)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, out = (_data(context, builder, signature, arguments, n) for n in (0, 3))
        rows = _rows(builder, x, arguments[1], arguments[2], LANES)

        def squares(k: Any, sums: list[Any]) -> list[Any]:
            values = [_load(builder, builder.gep(row, [k])) for row in rows]
            return [_fma(builder, value, value, total) for value, total in zip(values, sums, strict=True)]

        _store(builder, _accumulate(builder, arguments[2], squares), builder.gep(out, [arguments[1]]))
        return context.get_dummy_value()

    return signature, generate


def _over_row(builder: Any, length: Any, vector: Any, scalar: Any) -> None:
    """Whole vectors of a row, then what is left one by one."""
    whole = builder.and_(length, _INT64(-LANES))
    with cgutils.for_range_slice(builder, _INT64(0), whole, _INT64(LANES), _INT64) as (k, _):
        vector(k)
    with cgutils.for_range_slice(builder, whole, length, _INT64(1), _INT64) as (k, _):
        scalar(k)


@intrinsic
def copy_row(typing_context: Any, table: Any, place: Any, length: Any, out: Any, to: Any) -> Any:
    """out[to:to+length] = table[place:place+length]."""
    signature = types.void(table, types.int64, types.int64, out, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = builder.gep(_data(context, builder, signature, arguments, 0), [arguments[1]])
        target = builder.gep(_data(context, builder, signature, arguments, 3), [arguments[4]])
        _over_row(
            builder, arguments[2],
            lambda k: _store(builder, _load(builder, builder.gep(source, [k])), builder.gep(target, [k])),
            lambda k: builder.store(builder.load(builder.gep(source, [k])), builder.gep(target, [k])),
        )  # fmt: skip
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_row(typing_context: Any, table: Any, place: Any, length: Any, step: Any, g: Any, start: Any) -> Any:
    """table[place:place+length] += step * g[start:start+length]."""
    signature = types.void(table, types.int64, types.int64, types.float32, g, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = builder.gep(_data(context, builder, signature, arguments, 0), [arguments[1]])
        source = builder.gep(_data(context, builder, signature, arguments, 4), [arguments[5]])
        step = arguments[3]
        steps = _spread(builder, step)

        def vector(k: Any) -> None:
            place = builder.gep(target, [k])
            value = _fma(builder, steps, _load(builder, builder.gep(source, [k])), _load(builder, place))
            _store(builder, value, place)

        def scalar(k: Any) -> None:
            place = builder.gep(target, [k])
            product = builder.fmul(step, builder.load(builder.gep(source, [k])))
            builder.store(builder.fadd(builder.load(place), product), place)

        _over_row(builder, arguments[2], vector, scalar)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def prefetch_row(typing_context: Any, table: Any, place: Any, length: Any) -> Any:
    """Ask for the cache lines of table[place:place+length] in the second-level cache."""
    signature = types.void(table, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = builder.gep(_data(context, builder, signature, arguments, 0), [arguments[1]])
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _INT32, _INT32, _INT32])
        hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        with cgutils.for_range_slice(builder, _INT64(0), arguments[2], _INT64(LANES), _INT64) as (k, _):
            line = builder.bitcast(builder.gep(start, [k]), byte)
            builder.call(hint, [line, _INT32(0), _INT32(2), _INT32(1)])
        return context.get_dummy_value()

    return signature, generate
