"""Compiled loops of GAT over the rows of a whole graph: scores, softmax and weighted sum in one pass over the arcs.

An arc's share of a head is exp(LeakyReLU(sender's score + receiver's score)) / the sum over the receiver's arcs, of
which the one from itself is the last. Nothing of the size arcs x heads is kept: the way back makes the shares again
from the logarithm of that sum.

A receiver's score has the gradient sum of g x slope over its arcs, for g the gradient of an activated score. Since
g = share x (gradient . sender's row - gradient . result), it needs no pass over the arcs either, if the way forward
also keeps the sums of share x slope and of share x slope x row: the product of the gradient with the latter, less its
product with the result times the former.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.bfloat16 import number_of
from superworkflow.tasks.lib.kernels.prefetch import AHEAD, prefetch_rows
from superworkflow.tasks.lib.kernels.random import GAMMA, mix

SLOPE = np.float32(0.2)
_AT_ONCE = 32
"""Arcs whose exponentials are computed together."""
_LOWEST = np.float32(-87.0)
_LOG2E, _LN2_HIGH, _LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
_SERIES = tuple(map(np.float32, (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0)))


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
def _keep(keep: Any, state: Any, sender: Any, dropped: Any) -> None:
    """Factors of the shares of an arc's heads: 0 for dropped ones, else 1 / (1 - share dropped)."""
    scale = np.float32(65536.0 / (65536.0 - dropped))
    own = mix(state + np.uint64(sender + 1) * GAMMA)
    word = np.uint64(0)
    for h in range(len(keep)):
        if h & 3 == 0:
            word = mix(own + np.uint64((h >> 2) + 1) * GAMMA)
        keep[h] = scale if np.int64(word & np.uint64(0xFFFF)) >= dropped else np.float32(0)
        word = word >> np.uint64(16)


@nb.njit(nogil=True)
def _add_scaled(row: Any, factors: Any, flat: Any, place: Any) -> None:
    """Add the row of a table that begins at an unsigned place, which compiled code does not wrap around."""
    for c in range(len(row)):
        row[c] += factors[c] * number_of(flat[place + np.uint64(c)])


@nb.njit(nogil=True)
def _exponentials(scores: Any, less: Any, slopes: Any, count: Any) -> None:
    """Scores become e^(activated score - less), all at once, as one head of an arc is too little for vectors."""
    for k in range(count):
        x = scores[k]
        slope = np.float32(1) if x > 0 else SLOPE
        slopes[k] = slope
        scores[k] = exp32(min(x * slope - less[k], np.float32(0)))


@nb.njit(nogil=True, cache=True, error_model="numpy")
def attend(
    table: NDArray[Any], sending: NDArray[np.float32], receiving: NDArray[np.float32], starts: NDArray[np.int64],
    senders: NDArray[Any], first: int, dropped: int, states: NDArray[np.uint64], out: NDArray[np.float32],
    also: NDArray[np.float32], slopes: NDArray[np.float32], logs: NDArray[np.float32],
) -> None:  # fmt: skip
    """Weighted sums of the rows of each node's senders and its own.

    Args:
        table: published rows [n, heads x d], float32 or the bits of bfloat16.
        sending: senders' scores [n, heads].
        receiving: scores of the receivers [r, heads].
        starts, senders: arcs by receiver [n + 1], [arcs].
        first: node of the first receiver.
        dropped: share of the arcs' shares that are dropped, in 65536ths.
        states: states of the receivers' random streams [r].
        out: [r, heads x d], filled.
        also: the same sums, each share times its slope [r, heads x d], filled; [0, heads x d] where the way back is not
            needed.
        slopes: sums of share x slope [r, heads], filled.
        logs: logarithms of the sums of exponentials [r, heads], filled.
    """
    heads, columns, flat = sending.shape[1], table.shape[1], table.reshape(-1)
    width, near, training = columns // heads, sending.reshape(-1), len(also) > 0
    peak, total, keep = np.empty(heads, np.float32), np.empty(heads, np.float32), np.ones(heads, np.float32)
    scores, less, slope = (
        np.empty(_AT_ONCE * heads, np.float32), np.empty(_AT_ONCE * heads, np.float32),
        np.empty(_AT_ONCE * heads, np.float32),
    )  # fmt: skip
    factors, sloped = np.empty(columns, np.float32), np.empty(columns, np.float32)
    for i in range(len(out)):
        node, row, own = first + i, out[i], receiving[i]
        more = also[i] if training else logs[i, :0]
        for h in range(heads):
            peak[h] = sending[node, h]
        for e in range(starts[node], starts[node + 1]):
            prefetch_rows(near, heads, senders, e + AHEAD, 1)
            prefetch_rows(flat, columns, senders, e, 1)
            for h in range(heads):
                peak[h] = max(peak[h], sending[senders[e], h])
        for h in range(heads):
            top = peak[h] + own[h]
            peak[h] = top if top > 0 else top * SLOPE
            total[h], slopes[i, h] = np.float32(0), np.float32(0)
        row[:] = np.float32(0)
        more[:] = np.float32(0)
        last = starts[node + 1] + 1  # the arc from the node itself
        for begin in range(starts[node], last, _AT_ONCE):
            end = min(last, begin + _AT_ONCE)
            for e in range(begin, end):
                sender = np.int64(senders[e]) if e + 1 < last else np.int64(node)
                for h in range(heads):
                    scores[(e - begin) * heads + h] = sending[sender, h] + own[h]
                    less[(e - begin) * heads + h] = peak[h]
            _exponentials(scores, less, slope, (end - begin) * heads)
            for e in range(begin, end):
                sender = np.int64(senders[e]) if e + 1 < last else np.int64(node)
                if dropped:
                    _keep(keep, states[i], sender, dropped)
                for h in range(heads):
                    weight, tilt = scores[(e - begin) * heads + h], slope[(e - begin) * heads + h]
                    total[h] += weight
                    slopes[i, h] += weight * tilt
                    kept = weight * keep[h]
                    tilted = kept * tilt
                    for c in range(h * width, (h + 1) * width):
                        factors[c] = kept
                        sloped[c] = tilted
                place = np.uint64(columns) * np.uint64(sender)
                _add_scaled(row, factors, flat, place)
                if training:
                    _add_scaled(more, sloped, flat, place)
        for h in range(heads):
            share = np.float32(1) / total[h]
            logs[i, h] = np.float32(np.float64(peak[h]) + log64(total[h]))
            slopes[i, h] *= share
            for c in range(h * width, (h + 1) * width):
                row[c] *= share
            for c in range(h * width, min(len(more), (h + 1) * width)):
                more[c] *= share


@nb.njit(nogil=True)
def _products(row: Any, flat: Any, place: Any, out: Any) -> None:
    """Products of a row with one of a table, column by column."""
    for c in range(len(row)):
        out[c] = row[c] * number_of(flat[place + np.uint64(c)])


@nb.njit(nogil=True, cache=True, error_model="numpy")
def attend_back(
    gradients: NDArray[Any], facts: NDArray[np.float32], states: NDArray[np.uint64], begins: NDArray[np.int64],
    receivers: NDArray[Any], values: NDArray[np.float32], sending: NDArray[np.float32], first: int, dropped: int,
    out: NDArray[np.float32], scores: NDArray[np.float32],
) -> None:  # fmt: skip
    """Gradients of what `attend` read of each sender.

    Args:
        gradients: published gradients of the results [n, heads x d], float32 or the bits of bfloat16.
        facts: of all receivers: score, logarithm, and product of gradient and result [n, 3 x heads].
        states: of their random streams [n].
        begins, receivers: arcs by sender [n + 1], [arcs].
        values: rows of the senders, as they were gathered [r, heads x d].
        sending: their scores [r, heads].
        first: node of the first sender.
        dropped: as in `attend`.
        out: gradients of the rows [r, heads x d], filled.
        scores: gradients of the scores [r, heads], filled.
    """
    heads, columns, flat = sending.shape[1], gradients.shape[1], gradients.reshape(-1)
    width, near, keep = columns // heads, facts.reshape(-1), np.ones(heads, np.float32)
    shares, less, slope = (
        np.empty(_AT_ONCE * heads, np.float32), np.empty(_AT_ONCE * heads, np.float32),
        np.empty(_AT_ONCE * heads, np.float32),
    )  # fmt: skip
    factors, products = np.empty(columns, np.float32), np.empty(columns, np.float32)
    for j in range(len(out)):
        node, row, score = first + j, out[j], scores[j]
        row[:] = np.float32(0)
        score[:] = np.float32(0)
        last = begins[node + 1] + 1  # the arc to the node itself
        for begin in range(begins[node], last, _AT_ONCE):
            end = min(last, begin + _AT_ONCE)
            for e in range(begin, end):
                prefetch_rows(flat, columns, receivers, e + AHEAD, 1)
                prefetch_rows(near, 3 * heads, receivers, e + AHEAD, 1)
                receiver = np.int64(receivers[e]) if e + 1 < last else np.int64(node)
                for h in range(heads):
                    shares[(e - begin) * heads + h] = sending[j, h] + facts[receiver, h]
                    less[(e - begin) * heads + h] = facts[receiver, heads + h]
            _exponentials(shares, less, slope, (end - begin) * heads)
            for e in range(begin, end):
                receiver = np.int64(receivers[e]) if e + 1 < last else np.int64(node)
                if dropped:
                    _keep(keep, states[receiver], node, dropped)
                place = np.uint64(columns) * np.uint64(receiver)
                _products(values[j], flat, place, products)
                for h in range(heads):
                    share = shares[(e - begin) * heads + h]
                    kept, dot = share * keep[h], np.float32(0)
                    for c in range(h * width, (h + 1) * width):
                        dot += products[c]
                        factors[c] = kept
                    change = kept * dot - share * facts[receiver, 2 * heads + h]
                    score[h] += change * slope[(e - begin) * heads + h]
                _add_scaled(row, factors, flat, place)
