"""Compiled loops of GAT over the rows of a whole graph: scores, softmax and weighted sum in one pass over the arcs.

An arc's share of a head is exp(LeakyReLU(sender's score + receiver's score)) / the sum over the receiver's arcs, of
which the one from itself is the last. Nothing of the size arcs x heads is kept: the way back makes the shares again
from the logarithm of that sum.

No way needs a product for each arc. A receiver's score has the gradient sum of g x slope over its arcs, for g =
share x (gradient . sender's row - gradient . result), the gradient of an activated score. So the way forward also keeps
the sums of share x slope and of share x slope x row: of the latter's product with the gradient is taken that of the
result times the former. For the sender's score the way back sums share x slope x gradient likewise.

Arcs are taken `_AT_ONCE` at a time, in four loops: scores, exponentials of all heads of all these arcs in vectors,
their sums, and rows in registers. Where a later arc has a higher score, sums so far are scaled down. Orders are those
of the arcs.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.whole_graph.gather_kernels import publish_rows
from superworkflow.tasks.lib.kernels.lanes import (
    GROUP,
    bring_row,
    highest,
    plus_product,
    plus_row,
    plus_scaled,
    put_row,
    zeros8,
    zeros16,
    zeros32,
    zeros64,
)
from superworkflow.tasks.lib.kernels.prefetch import prefetch_far
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.lib.kernels.rows_ahead import rows_ahead

SLOPE = np.float32(0.2)
_UNSCALED = np.empty(0, np.float32)
_AT_ONCE = 64
_ONE, _ZERO = np.float32(1), np.float32(0)
_LOWEST, _LEAST_SCORE = np.float32(-87.0), np.float32(-np.inf)
_LOG2E, _LN2_HIGH, _LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
_SERIES = tuple(map(np.float32, (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0)))


def lanes_of(heads: int) -> int:
    """Heads in the tables of scores: 1, or a multiple of `GROUP`."""
    return heads if heads == 1 else -(-heads // GROUP) * GROUP


def padded_width(width: int) -> int:
    """Columns of a head in the tables of rows."""
    return -(-width // GROUP) * GROUP


def publish_heads(rows: NDArray[np.float32], heads: int, first: int, table: NDArray[Any]) -> None:
    """Store rows [r, heads x w] in a table [n, heads x `padded_width(w)`], from row `first` on."""
    by_head, to = (each.reshape(-1, each.shape[1] // heads) for each in (rows, table))
    publish_rows(by_head, _UNSCALED, first * heads, to)


def without_padding(rows: NDArray[np.float32], heads: int, width: int) -> NDArray[np.float32]:
    """Rows [r, heads x `padded_width(width)`] without the columns that pad heads."""
    padded = padded_width(width)
    if padded == width:
        return rows
    return rows.reshape(-1, heads, padded)[:, :, :width].reshape(-1, heads * width)


@nb.njit(inline="always")
def exp32(x: Any) -> Any:
    """e^x for x <= 0 in float32, to 2e-7 of its value; of x below -87 as of -87."""
    x = max(x, _LOWEST)
    whole = np.floor(x * _LOG2E + np.float32(0.5))
    r = (x - whole * _LN2_HIGH) - whole * _LN2_LOW
    s = _SERIES[0] * r + _SERIES[1]
    s = s * r + _SERIES[2]
    s = s * r + _SERIES[3]
    s = s * r + _SERIES[4]
    s = s * r + _SERIES[5]
    s = s * r + _SERIES[6]
    s = s * r + _SERIES[7]
    return s * np.uint32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)


@nb.njit(inline="always")
def log64(x: Any) -> Any:
    return np.log(np.float64(x))


@nb.njit(nogil=True)
def _list(ends: Any, begin: Any, count: Any, stop: Any, node: Any, ids: Any) -> None:
    """Other ends of some arcs; the one at `stop` is the node's own."""
    for k in range(count):
        ids[k] = np.uint64(ends[begin + k]) if begin + k < stop else np.uint64(node)


@nb.njit(nogil=True)
def _bring(near: Any, width: Any, ends: Any, begin: Any, count: Any) -> None:
    """Bring rows nearer, of long ones the first 32 numbers."""
    for e in range(begin, min(begin + count, len(ends))):
        place = np.uint64(ends[e]) * np.uint64(width)
        if width > GROUP:
            bring_row(zeros32(), near, place)
        else:
            bring_row(zeros8(), near, place)


@nb.njit(nogil=True)
def _scores(ids: Any, count: Any, near: Any, step: Any, offset: Any, own: Any, out: Any) -> None:
    """out[k, h] = own[h] + near[ids[k] x step + offset + h]."""
    heads = len(own)
    if heads == 1:
        for k in range(count):
            out[k] = own[0] + near[np.int64(ids[k]) * step + offset]
        return
    for h in range(0, heads, GROUP):
        mine = plus_row(zeros8(), own, np.uint64(h))
        for k in range(count):
            place = ids[k] * np.uint64(step) + np.uint64(offset + h)
            put_row(plus_row(mine, near, place), _ONE, out, np.uint64(k * heads + h))


@nb.njit(nogil=True)
def _draw(states: Any, count: Any, heads: Any, words: Any, marks: Any) -> None:
    """Random marks of arcs' heads [count, heads], the words' halves of halves."""
    if heads == 1:
        for k in range(count):
            marks[k] = np.uint16(mix(states[k] + GAMMA) & np.uint64(0xFFFF))
    elif heads == GROUP:
        for k in range(count):
            words[2 * k] = mix(states[k] + GAMMA)
            words[2 * k + 1] = mix(states[k] + np.uint64(2) * GAMMA)
    else:
        for k in range(count):
            for q in range(heads >> 2):
                words[k * (heads >> 2) + q] = mix(states[k] + np.uint64(q + 1) * GAMMA)


@nb.njit(nogil=True)
def _weigh(count: Any, scores: Any, less: Any, plain: Any, sloped: Any) -> None:
    """Exponentials of activated scores less others, and these times the slopes."""
    for k in range(count):
        x = scores[k]
        slope = _ONE if x > 0 else SLOPE
        found = exp32(min(x * slope - less[k], _ZERO))
        plain[k] = found
        sloped[k] = found * slope


@nb.njit(nogil=True)
def _drop(count: Any, marks: Any, dropped: Any, values: Any, out: Any) -> None:
    least, scale = np.uint16(dropped), np.float32(65536.0 / (65536.0 - dropped))
    for k in range(count):
        out[k] = values[k] * (scale if marks[k] >= least else _ZERO)


@nb.njit(nogil=True)
def _highest(values: Any, count: Any, peak: Any) -> None:
    """Raise each head's peak to the highest of its values."""
    heads = len(peak)
    if heads == 1:
        for k in range(count):
            peak[0] = max(peak[0], values[k])
        return
    for h in range(0, heads, GROUP):
        top = plus_row(zeros8(), peak, np.uint64(h))
        for k in range(count):
            top = highest(top, values, np.uint64(k * heads + h))
        put_row(top, _ONE, peak, np.uint64(h))


@nb.njit(nogil=True)
def _sum(values: Any, count: Any, total: Any) -> None:
    """Add each head's values to its total."""
    heads = len(total)
    if heads == 1:
        for k in range(count):
            total[0] += values[k]
        return
    for h in range(0, heads, GROUP):
        found = plus_row(zeros8(), total, np.uint64(h))
        for k in range(count):
            found = plus_row(found, values, np.uint64(k * heads + h))
        put_row(found, _ONE, total, np.uint64(h))


@nb.njit(nogil=True)
def _sum_products(values: Any, ids: Any, count: Any, near: Any, step: Any, offset: Any, total: Any) -> None:
    """Add values[k, h] x near[ids[k] x step + offset + h] to each head's total."""
    heads = len(total)
    if heads == 1:
        for k in range(count):
            total[0] += values[k] * near[np.int64(ids[k]) * step + offset]
        return
    for h in range(0, heads, GROUP):
        found = plus_row(zeros8(), total, np.uint64(h))
        for k in range(count):
            place = ids[k] * np.uint64(step) + np.uint64(offset + h)
            found = plus_product(found, values, np.uint64(k * heads + h), near, place)
        put_row(found, _ONE, total, np.uint64(h))


@nb.njit(nogil=True)
def _by_group(values: Any, count: Any, heads: Any, lanes: Any, groups: Any, out: Any) -> None:
    """Values of heads [count, lanes] for each of their groups of columns [count, groups]."""
    each = groups // heads
    for k in range(count):
        for h in range(heads):
            for g in range(k * groups + h * each, k * groups + (h + 1) * each):
                out[g] = values[k * lanes + h]


@nb.njit(nogil=True)
def _add(
    zeros: Any, column: Any, arcs: Any, factors: Any, flat: Any, width: Any, sums: Any, rows: Any
) -> None:  # fmt: skip
    """Add as many columns as `zeros` has of a table's rows to a row of both results, times both factors."""
    (ids, count, ends, ahead), (one, other, stride, step) = arcs, factors
    start, begin = np.uint64(column), np.uint64(column // GROUP * step)
    places = np.uint64(rows[0] * width + column), np.uint64(rows[1] * width + column)
    total, more = plus_row(zeros, sums[0], places[0]), plus_row(zeros, sums[1], places[1])
    for k in range(count):
        if ahead + k < len(ends):
            bring_row(zeros, flat, np.uint64(ends[np.uint64(ahead + k)]) * np.uint64(width) + start)
        place, factor = ids[k] * np.uint64(width) + start, np.uint64(k * stride) + begin
        total = plus_scaled(total, one, factor, np.uint64(step), flat, place)
        more = plus_scaled(more, other, factor, np.uint64(step), flat, place)
    put_row(total, _ONE, sums[0], places[0])
    put_row(more, _ONE, sums[1], places[1])


@nb.njit(nogil=True)
def _add_rows(arcs: Any, factors: Any, flat: Any, width: Any, sums: Any, rows: Any) -> None:
    """Add a table's rows to a row of both results, times both factors.

    Args:
        arcs: numbers of the rows, and their count; ends of all arcs, and place of the one that is brought nearer with
            the first of these.
        factors: both [count x stride], stride, and 1 if there is one for each `GROUP` columns, 0 if for all.
        flat, width: the table.
        sums, rows: both results, flat, and the number of the row in each.
    """
    column = 0
    while column + 64 <= width:
        _add(zeros64(), column, arcs, factors, flat, width, sums, rows)
        column += 64
    if column + 32 <= width:
        _add(zeros32(), column, arcs, factors, flat, width, sums, rows)
        column += 32
    if column + 16 <= width:
        _add(zeros16(), column, arcs, factors, flat, width, sums, rows)
        column += 16
    if column < width:
        _add(zeros8(), column, arcs, factors, flat, width, sums, rows)


@nb.njit(nogil=True)
def _scale_down(row: Any, factors: Any, width: Any) -> None:
    """A row's columns, `width` for each factor, times it."""
    for h in range(len(row) // width):
        for c in range(h * width, (h + 1) * width):
            row[c] *= factors[h]


@nb.njit(nogil=True, cache=True, error_model="numpy")
def attend(
    table: NDArray[Any], sending: NDArray[np.float32], receiving: NDArray[np.float32], heads: int,
    starts: NDArray[np.int64], senders: NDArray[Any], nodes: NDArray[np.int32], numbers: NDArray[np.uint64],
    dropped: int, states: NDArray[np.uint64], out: NDArray[np.float32], also: NDArray[np.float32],
    slopes: NDArray[np.float32], logs: NDArray[np.float32],
) -> None:  # fmt: skip
    """Weighted sums of the rows of each node's senders and its own.

    Args:
        table: published rows [n, heads x w], w a multiple of `GROUP`, float32 or the bits of bfloat16.
        sending: senders' scores [n, `lanes_of(heads)`].
        receiving: scores of the receivers [r, the same].
        heads: number of heads.
        starts, senders: arcs by receiver [n + 1], [arcs].
        nodes: of the receivers [r].
        numbers: by which arcs are dropped, of all nodes [n]; empty for the nodes themselves.
        dropped: share of the arcs' shares that are dropped, in 65536ths.
        states: states of the receivers' random streams [r].
        out: [r, heads x w], filled.
        also: the same sums, each share times its slope [r, heads x w], filled; [0, heads x w] where the way back is not
            needed.
        slopes: sums of share x slope [r, as the scores], filled.
        logs: logarithms of the sums of exponentials [r, as the scores], filled.
    """
    lanes, columns, training = sending.shape[1], table.shape[1], int(len(also) > 0)
    flat, near, to = table.reshape(-1), sending.reshape(-1), out.reshape(-1)
    more = also.reshape(-1) if training else np.zeros(columns, np.float32)
    groups, width, step = columns // GROUP, columns // heads, 0 if heads == 1 else 1
    direct = heads == 1 or width == GROUP
    stride = lanes if direct else groups
    size, none = _AT_ONCE * lanes, np.zeros(lanes, np.float32)
    ids, words = np.empty(_AT_ONCE, np.uint64), np.empty(max(_AT_ONCE, size >> 2), np.uint64)
    scores, less = np.empty(size, np.float32), np.empty(size, np.float32)
    plain, sloped = np.empty(size, np.float32), np.empty(size, np.float32)
    kept, tilted = np.empty(size, np.float32), np.empty(size, np.float32)
    by_group, also_by_group = np.empty(_AT_ONCE * stride, np.float32), np.empty(_AT_ONCE * stride, np.float32)
    top, peak, total = np.empty(lanes, np.float32), np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    marks, streams = words.view(np.uint16), np.empty(_AT_ONCE, np.uint64)
    for i in range(len(out)):
        node, own, tilts = np.int64(nodes[i]), receiving[i], slopes[i]
        out[i] = _ZERO
        if training:
            also[i] = _ZERO
        peak[:] = _LEAST_SCORE
        total[:] = _ZERO
        tilts[:] = _ZERO
        stop = starts[node + 1]  # the arc from the node itself
        for begin in range(starts[node], stop + 1, _AT_ONCE):
            count = min(stop + 1 - begin, _AT_ONCE)
            _list(senders, begin, count, stop, node, ids)
            _bring(near, lanes, senders, begin + count, count)
            _scores(ids, count, near, lanes, 0, own, scores)
            top[:] = _LEAST_SCORE
            _highest(scores, count, top)
            for h in range(lanes):
                reached = max(peak[h], top[h] if top[h] > 0 else top[h] * SLOPE)
                top[h] = exp32(peak[h] - reached)
                peak[h] = reached
            if begin > starts[node]:
                _scale_down(total, top, 1)
                _scale_down(tilts, top, 1)
                _scale_down(out[i], top, width)
                if training:
                    _scale_down(also[i], top, width)
            _scores(ids, count, peak, 0, 0, none, less)
            _weigh(count * lanes, scores, less, plain, sloped)
            _sum(plain, count, total)
            _sum(sloped, count, tilts)
            if dropped:
                for k in range(count):
                    number = numbers[ids[k]] if len(numbers) else ids[k]
                    streams[k] = mix(states[i] + (number + np.uint64(1)) * GAMMA)
                _draw(streams, count, lanes, words, marks)
                _drop(count * lanes, marks, dropped, plain, kept)
                _drop(count * lanes, marks, dropped, sloped, tilted)
            used, also_used = (kept, tilted) if dropped else (plain, sloped)
            if not direct:
                _by_group(used, count, heads, lanes, groups, by_group)
                _by_group(also_used, count, heads, lanes, groups, also_by_group)
                used, also_used = by_group, also_by_group
            arcs, factors = (ids, count, senders, begin + rows_ahead()), (used, also_used, stride, step)
            _add_rows(arcs, factors, flat, columns, (to, more), (i, i * training))
        for h in range(lanes):
            top[h] = _ONE / total[h]
            logs[i, h] = np.float32(np.float64(peak[h]) + log64(total[h]))
            tilts[h] *= top[h]
        _scale_down(out[i], top, width)
        if training:
            _scale_down(also[i], top, width)


@nb.njit(nogil=True, cache=True, error_model="numpy")
def attend_back(
    gradients: NDArray[Any], facts: NDArray[np.float32], heads: int, states: NDArray[np.uint64],
    begins: NDArray[np.int64], receivers: NDArray[Any], sending: NDArray[np.float32], first: int,
    numbers: NDArray[np.uint64], dropped: int, out: NDArray[np.float32], also: NDArray[np.float32],
    scores: NDArray[np.float32],
) -> None:  # fmt: skip
    """Gradients of what `attend` read of each sender; that of its scores is the product of its rows with `also`, less
    `scores`.

    Args:
        gradients: published gradients of the results [n, heads x w], float32 or the bits of bfloat16.
        facts: of all receivers: score, logarithm, and product of gradient and result [n, 3 x `lanes_of(heads)`].
        heads: number of heads.
        states: of the receivers' random streams [n].
        begins, receivers: arcs by sender [n + 1], [arcs].
        sending: scores of the senders [r, `lanes_of(heads)`].
        first: node of the first sender.
        numbers, dropped: as in `attend`.
        out: gradients of the rows [r, heads x w], filled.
        also: the same sums, each share times its slope [r, heads x w], filled.
        scores: sums of share x slope x product of gradient and result [r, `lanes_of(heads)`], filled.
    """
    lanes, columns, flat, near = sending.shape[1], gradients.shape[1], gradients.reshape(-1), facts.reshape(-1)
    groups, width, step = columns // GROUP, columns // heads, 0 if heads == 1 else 1
    direct, to, more = heads == 1 or width == GROUP, out.reshape(-1), also.reshape(-1)
    stride = lanes if direct else groups
    size, none = _AT_ONCE * lanes, np.zeros(lanes, np.float32)
    ids, words = np.empty(_AT_ONCE, np.uint64), np.empty(max(_AT_ONCE, size >> 2), np.uint64)
    given, less = np.empty(size, np.float32), np.empty(size, np.float32)
    plain, sloped = np.empty(size, np.float32), np.empty(size, np.float32)
    kept, tilted = np.empty(size, np.float32), np.empty(size, np.float32)
    by_group, also_by_group = np.empty(_AT_ONCE * stride, np.float32), np.empty(_AT_ONCE * stride, np.float32)
    marks, streams = words.view(np.uint16), np.empty(_AT_ONCE, np.uint64)
    for j in range(len(out)):
        node, score = first + j, scores[j]
        number = numbers[node] if len(numbers) else np.uint64(node)
        out[j] = _ZERO
        also[j] = _ZERO
        score[:] = _ZERO
        stop = begins[node + 1]  # the arc to the node itself
        for begin in range(begins[node], stop + 1, _AT_ONCE):
            count = min(stop + 1 - begin, _AT_ONCE)
            _list(receivers, begin, count, stop, node, ids)
            _bring(near, 3 * lanes, receivers, begin + count, count)
            if dropped:
                for e in range(begin + count, min(begin + 2 * count, len(receivers))):
                    prefetch_far(states, np.int64(receivers[e]))
            _scores(ids, count, near, 3 * lanes, 0, sending[j], given)
            _scores(ids, count, near, 3 * lanes, lanes, none, less)
            _weigh(count * lanes, given, less, plain, sloped)
            _sum_products(sloped, ids, count, near, 3 * lanes, 2 * lanes, score)
            if dropped:
                for k in range(count):
                    streams[k] = mix(states[ids[k]] + (number + np.uint64(1)) * GAMMA)
                _draw(streams, count, lanes, words, marks)
                _drop(count * lanes, marks, dropped, plain, kept)
                _drop(count * lanes, marks, dropped, sloped, tilted)
            used, also_used = (kept, tilted) if dropped else (plain, sloped)
            if not direct:
                _by_group(used, count, heads, lanes, groups, by_group)
                _by_group(also_used, count, heads, lanes, groups, also_by_group)
                used, also_used = by_group, also_by_group
            arcs, factors = (ids, count, receivers, begin + rows_ahead()), (used, also_used, stride, step)
            _add_rows(arcs, factors, flat, columns, (to, more), (j, j))


@nb.njit(nogil=True, cache=True)
def head_products(one: NDArray[np.float32], other: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Products of rows by head.

    Args:
        one, other: [r, heads x d].
        out: [r, heads], filled.
    """
    width = one.shape[1] // out.shape[1]
    for i in range(len(out)):
        for h in range(out.shape[1]):
            total = np.float32(0)
            for c in range(h * width, (h + 1) * width):
                total += one[i, c] * other[i, c]
            out[i, h] = total
