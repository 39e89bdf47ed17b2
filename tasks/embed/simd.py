"""Explicit vector operations for Numba: the inner loops of skip-gram training.

LLVM vectorizes simple loops by itself but does not tile them in registers, and Numba has no prefetch. These
intrinsics emit 16-lane float32 vectors; LLVM splits them on processors with narrower registers, so that
nothing here needs AVX-512. Matrices are flat float32 arrays of rows of `stride` floats, a multiple of `LANES`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils as numba_cgutils
from numba.extending import intrinsic

cgutils: Any = numba_cgutils

LANES = 16
TILE = 4
"""Rows of one side of a register tile: 4 x 4 sums in 16 registers."""

_FLOAT, _INT32, _INT64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR, _IVECTOR = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT32, LANES)
_QUAD = ir.VectorType(_FLOAT, TILE)
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


def _rows(builder: Any, data: Any, first: Any, stride: Any, count: int = TILE) -> list[Any]:
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


@intrinsic
def pair_tile(
    typing_context: Any, x: Any, y: Any, gx: Any, gy: Any, hx: Any, hy: Any, nx: Any, ny: Any,
    i: Any, j: Any, stride: Any, weights: Any, offset: Any, label: Any,
) -> Any:  # fmt: skip
    """Score 4 centre rows x[i:i+4] against 4 context rows y[j:j+4] and add up their part of the descent.

    With s = x_a . y_b, w = weights[offset + 4 a + b] and g = w (label - logistic(s)):
    gx_a += g y_b;  gy_b += g x_a;  hx[4 (i + a) + b] += w c(s) |y_b|^2;  hy[j + b] += w c(s) |x_a|^2,
    where c is the curvature bound of `_curvature`, and nx, ny hold the rows' squared norms.
    """
    signature = types.void(
        x, y, gx, gy, hx, hy, nx, ny, types.int64, types.int64, types.int64, weights, types.int64, types.float32
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, y, gx, gy, hx, hy, nx, ny = (_data(context, builder, signature, arguments, n) for n in range(8))
        weights = _data(context, builder, signature, arguments, 11)
        i, j, stride, offset, label = (arguments[n] for n in (8, 9, 10, 12, 13))
        x_rows, gx_rows = (_rows(builder, data, i, stride) for data in (x, gx))
        y_rows, gy_rows = (_rows(builder, data, j, stride) for data in (y, gy))

        def at(rows: list[Any], k: Any) -> list[Any]:
            return [_load(builder, builder.gep(row, [k])) for row in rows]

        def dots(k: Any, sums: list[Any]) -> list[Any]:
            a, b = at(x_rows, k), at(y_rows, k)
            return [_fma(builder, a[t // TILE], b[t % TILE], sums[t]) for t in range(LANES)]

        score = _accumulate(builder, stride, dots)
        score = _call(builder, "minnum", _call(builder, "maxnum", score, _splat(-_LIMIT)), _splat(_LIMIT))
        probability = _logistic(builder, score)
        weight = _load(builder, builder.gep(weights, [offset]))
        labels = _pick(builder, builder.insert_element(_UNDEFINED, label, _INT32(0)), [0] * LANES)
        gradient = builder.fmul(weight, builder.fsub(labels, probability))

        bound = builder.fmul(weight, _curvature(builder, score, probability))
        by_y = _pick(builder, _load(builder, builder.gep(ny, [j]), _QUAD), [t % TILE for t in range(LANES)])
        by_x = _pick(builder, _load(builder, builder.gep(nx, [i]), _QUAD), [t // TILE for t in range(LANES)])
        place = builder.gep(hx, [builder.mul(i, _INT64(TILE))])
        _store(builder, _fma(builder, bound, by_y, _load(builder, place)), place)
        product = builder.fmul(bound, by_x)
        quads = [_pick(builder, product, [t * TILE + b for b in range(TILE)]) for t in range(TILE)]
        place = builder.gep(hy, [j])
        total = builder.fadd(builder.fadd(quads[0], quads[1]), builder.fadd(quads[2], quads[3]))
        _store(builder, builder.fadd(total, _load(builder, place, _QUAD)), place)

        spread = [_pick(builder, gradient, [t] * LANES) for t in range(LANES)]
        with cgutils.for_range_slice(builder, _INT64(0), stride, _INT64(LANES), _INT64) as (k, _):
            a, b = at(x_rows, k), at(y_rows, k)
            for t in range(TILE):
                by_row, by_column = spread[t * TILE : (t + 1) * TILE], spread[t::TILE]
                for row, factors, others in ((gx_rows[t], by_row, b), (gy_rows[t], by_column, a)):
                    place = builder.gep(row, [k])
                    value = _load(builder, place)
                    for factor, other in zip(factors, others, strict=True):
                        value = _fma(builder, factor, other, value)
                    _store(builder, value, place)
        return context.get_dummy_value()

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
        steps = _pick(builder, builder.insert_element(_UNDEFINED, step, _INT32(0)), [0] * LANES)

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
