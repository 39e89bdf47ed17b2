"""Skip-gram with negative sampling on the CPU: one block of a walk at a time, on tables that all threads share.

For a walk r_0 … r_(n-1), centre vectors c and context vectors o, the objective is what word2vec's is in expectation
over its random windows (Mikolov et al., 2013):

    sum_i sum_(0 < |i-j| <= W) w_ij [ -log s(c_ri . o_rj) ]
      + sum_i (N / K) (sum_j w_ij) sum_m [ -log s(-c_ri . o_vm) ]

with w_ij = (W - |i-j| + 1) / W, s the logistic function, N negatives per pair, and K negatives v_m that the
positions of a block share. All scores of a block are taken from the same vectors, so scores and gradients are products
of small matrices, tiled in registers (`_products.set_product`): full ones for the negatives, bands of 2 W + 1
diagonals for the pairs of the walk. Their factors are rounded to bfloat16, all sums are of float32. Then every row
takes one step,

    row += lr / (1 + b lr h) gradient,

where h bounds the curvature of the block's objective along that row: the sum over its pairs (duplicates of the
vertex in the block included) of weight times `_steps._curvature` times the other row's squared norm. Hubs, whose
gradients are sums over many pairs, thus take about the step of an implicit method, and rare vertices the full one.
A negative may happen to be a vertex of the walk; its distribution is that of noise-contrastive estimation.

Rows of the next walk are prefetched while one is trained, so that the misses of large tables overlap with the work.
Random numbers come from (key, number of the walk) alone.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.embed import _products, _steps
from superworkflow.tasks.embed._lanes import LANES
from superworkflow.tasks.embed._products import ROWS
from superworkflow.tasks.embed._words import WORD
from superworkflow.tasks.lib.kernels.random import GAMMA, mix

njit: Any = numba.njit  # untyped: the annotations here are those of the compiled function
add_product: Any = _products.add_product
add_row: Any = _steps.add_row
pack_left: Any = _products.pack_left
pack_right: Any = _products.pack_right
prefetch_row: Any = _steps.prefetch_row
score_rows: Any = _steps.score_rows
set_product: Any = _products.set_product
squared_norms: Any = _steps.squared_norms

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

LOSS_EVERY = 256
"""Walks for each one whose loss is computed."""
MIN_SHARED, SHARED_STEP = 8, 4

_FLAGS = {"contract", "reassoc", "nsz", "arcp"}
"""Fast arithmetic, but infinities and NaN keep their meaning: they are how divergence is seen."""


@njit(inline="always")
def _up(size: int, step: int) -> int:
    """The next multiple of `step`."""
    return (size + step - 1) // step * step


@njit
def _matrix(rows: int, columns: int) -> Floats:
    """Zeros [rows * columns] that begin at a cache line."""
    size = rows * columns
    room = np.zeros(size + LANES, np.float32)
    start = ((64 - (room.ctypes.data & 63)) // 4) & (LANES - 1)
    return room[start : start + size]


@njit
def _word_matrix(rows: int, columns: int) -> Floats:
    """Room for as many factors, in words of two (see `_words`); an odd number of rows may be taken in pairs."""
    room: Floats = _matrix((rows + 1) // 2 * WORD, columns)
    return room


@njit(nogil=True, cache=True)
def _read_walk(walk: Any, remap: Any, keep: Any, state: Any, rows: Integers) -> Any:
    """Table rows of one walk: padding ends it, dropped vertices and unlucky frequent ones are left out."""
    n = 0
    for t in range(len(walk)):
        vertex = walk[t]
        if vertex < 0:
            break
        row = remap[vertex]
        if row < 0:
            continue
        if len(keep) > 0:
            state += GAMMA
            if np.float32(mix(state) >> np.uint64(40)) * np.float32(2.0**-24) >= keep[row]:
                continue
        rows[n] = row
        n += 1
    return n, state


@njit(nogil=True, cache=True)
def _draw(state: Any, out: Integers, count: int, threshold: Any, alias: Any) -> None:
    """Negatives by the alias method (Walker, 1977)."""
    size = np.uint64(len(threshold))
    for m in range(count):
        state += GAMMA
        z = mix(state)
        slot = np.int64(((z >> np.uint64(32)) * size) >> np.uint64(32))
        out[m] = slot if np.uint32(z & np.uint64(0xFFFFFFFF)) < threshold[slot] else alias[slot]


@njit(nogil=True, cache=True)
def _slots(rows: Integers, first: int, count: int, keys: Integers, values: Integers, out: Integers, used: int) -> int:
    """Number the distinct rows of a block, by open addressing; returns how many there are so far."""
    mask = len(keys) - 1
    for i in range(count):
        row = rows[first + i]
        place = ((row * 0x9E3779B1) >> 7) & mask
        while keys[place] != row and keys[place] != -1:
            place = (place + 1) & mask
        if keys[place] == -1:
            keys[place], values[place] = row, used
            used += 1
        out[i] = values[place]
    return used


@njit(nogil=True, cache=True)
def pool_size(length: int, block: int, shared: int) -> tuple[int, int, int]:
    """(blocks, positions per block, negatives per block) of a walk: as many negatives as positions, 8 to `shared`."""
    blocks = (length + block - 1) // block
    size = (length + blocks - 1) // blocks
    return blocks, size, min(shared, max(MIN_SHARED, _up(size, SHARED_STEP)))


@njit(nogil=True, cache=True)
def _peak(norms: Floats, count: int, limit: float) -> float:
    """Largest of the first `count` norms; infinity where one is above `limit` or not a number."""
    peak = np.float32(0)
    for i in range(count):
        if not norms[i] <= limit:
            return np.inf
        peak = max(peak, norms[i])
    return float(peak)


@njit(nogil=True, cache=True)
def _step(rate: Any, bound: float, curvature: Any, adagrad: bool, squares: Any) -> np.float32:
    """Step size of a row's gradient; `squares` is AdaGrad's sum for the row."""
    scale = np.float32(rate)
    if adagrad:
        scale = np.float32(rate / np.sqrt(squares + np.float32(1e-10)))
    return np.float32(scale / (np.float32(1) + np.float32(bound) * scale * curvature))


@njit(nogil=True, cache=True)
def _minus_log_logistic(score: float) -> float:
    return float(np.log1p(np.exp(-abs(score)))) + max(-score, 0.0)


@njit(nogil=True, cache=True)
def _block_loss(
    centre: Floats,
    context: Floats,
    d: int,
    rows: Integers,
    begin: int,
    end: int,
    count: int,
    negatives: Integers,
    chosen: int,
    pool: int,
    window: int,
    negative_weight: Floats,
) -> tuple[float, float]:
    """The objective of the centres `begin` to `end` of a walk, and the weight of their positive pairs."""
    loss = total = 0.0
    for i in range(begin, end):
        a = centre[rows[i] * d : (rows[i] + 1) * d]
        for j in range(max(0, i - window), min(count, i + window + 1)):
            if j != i:
                weight = (window - abs(j - i) + 1) / window
                loss += weight * _minus_log_logistic(float(np.sum(a * context[rows[j] * d : (rows[j] + 1) * d])))
                total += weight
        for m in range(chosen, chosen + pool):
            score = float(np.sum(a * context[negatives[m] * d : (negatives[m] + 1) * d]))
            loss += negative_weight[i - begin] * _minus_log_logistic(-score)
    return loss, total


@njit(nogil=True, cache=True, fastmath=_FLAGS)
def train_walks(
    walks: Any, number: int, remap: Any, keep: Any, threshold: Any, alias: Any,
    centre: Floats, context: Floats, centre_sum: Floats, context_sum: Floats,
    dimensions: int, window: int, negative: float, shared: int, block: int, bound: float, adagrad: bool,
    first_rate: float, last_rate: float, key: Any, limit: float,
) -> tuple[float, float, float]:  # fmt: skip
    """Train on some walks, in place.

    Args:
        walks: int32 [walks, walk_length], vertex ids, padded with -1.
        number: the first walk's number in this epoch; with `key` it seeds a walk's random numbers.
        remap: int32 [vertices], table row of a vertex, or -1.
        keep: float32 [rows], probability with which an occurrence is kept; empty to keep all.
        threshold, alias: uint32 and int32 [rows], alias table of the negatives.
        centre, context: float32 [rows * dimensions], the tables.
        centre_sum, context_sum: float32 [rows], AdaGrad's sums of squares; empty for plain SGD.
        dimensions: length of a vector.
        window, negative: N and W above.
        shared: K above, a multiple of 4; short walks draw fewer.
        block: positions trained together at most.
        bound: b above.
        adagrad: divide the rate by the root of the row's sum of squares.
        first_rate, last_rate: learning rate, linear over these walks.
        key: 64 bits of (seed, epoch).
        limit: squared norm of a row at which training has diverged.

    Returns:
        loss and weight of positive pairs, summed over the sampled walks, and the largest squared norm met; the work
        stops where that is above `limit` or not a number (infinity is returned).
    """
    length, d = walks.shape[1], dimensions
    block = min(block, length)
    stride = _up(d, LANES)
    vectors, half = stride // LANES, stride // 2
    # The columns of a band that 8 centres meet: the first belongs to the first centre's farthest context.
    reach = 2 * window + ROWS
    band = _up(reach, LANES)
    x_rows = _up(block, LANES) + LANES
    y_rows = _up(block + 2 * window + band, LANES) + LANES  # contexts begin at row `window`; zeros on both sides
    z_rows = _up(shared, LANES) + LANES
    gx, nx, hx = _matrix(x_rows, stride), _matrix(x_rows, 1), _matrix(x_rows, 1)
    gy, ny, hy = _matrix(y_rows, stride), _matrix(y_rows, 1), _matrix(y_rows, 1)
    gz, nz, hz = _matrix(z_rows, stride), _matrix(z_rows, 1), _matrix(z_rows, 1)
    # Factors of the products, in words of two: one row after the other, rows in pairs, columns in pairs.
    x_words, x_pairs = _word_matrix(x_rows, stride), _word_matrix(x_rows, stride)
    y_columns, y_pairs = _word_matrix(stride, y_rows), _word_matrix(y_rows, stride)
    z_columns, z_pairs = _word_matrix(stride, z_rows), _word_matrix(z_rows, stride)
    scores = _matrix(ROWS, max(band, z_rows))
    # Gradients by the scores: rows of `band_words` begin with the farthest context of the first of 8 centres; word
    # ROWS + W + j - i of row i / 2 of `band_pairs`, i even, is for the centres i, i + 1 and the context j.
    diagonals = band + ROWS
    band_words, band_pairs = _word_matrix(x_rows, band), _word_matrix(x_rows, diagonals)
    pool_words, pool_pairs = _word_matrix(x_rows, z_rows), _word_matrix(x_rows, z_rows)
    negative_weight, inside, ones = _matrix(x_rows, 1), _matrix(x_rows, 1), _matrix(z_rows, 1)
    zeros = _matrix(1, stride)
    pair_weight = _matrix(diagonals, 1)
    for distance in range(1, window + 1):
        pair_weight[ROWS + window + distance] = (window - distance + 1) / window
        pair_weight[ROWS + window - distance] = (window - distance + 1) / window
    one_side = np.zeros(length + 1, np.float64)  # summed weight of the pairs on one side, by positions there
    for t in range(1, length + 1):
        one_side[t] = one_side[t - 1] + max(0.0, (window - t + 1) / window)

    most = (length + block - 1) // block * shared
    rows, next_rows = np.zeros(length, np.int64), np.zeros(length, np.int64)
    negatives, next_negatives = np.zeros(most, np.int64), np.zeros(most, np.int64)
    places = 64
    while places < 4 * (y_rows + z_rows):
        places *= 2
    keys, values = np.zeros(places, np.int64), np.zeros(places, np.int64)
    slot, negative_slot = np.zeros(y_rows, np.int64), np.zeros(shared, np.int64)
    curve_x, curve_y = _matrix(y_rows + z_rows, 1), _matrix(y_rows + z_rows, 1)

    # AdaGrad's sum for the row in hand: a call that took the array of the sums would count references to it each time.
    squares = np.float32(0)
    loss = weight = peak = 0.0
    count, next_count = 0, 0
    for step in range(-1, len(walks)):
        rows, next_rows = next_rows, rows
        negatives, next_negatives = next_negatives, negatives
        count = next_count
        next_count, drawn = 0, 0
        if step + 1 < len(walks):
            state = mix(key + np.uint64(number + step + 1) * GAMMA)
            next_count, state = _read_walk(walks[step + 1], remap, keep, state, next_rows)
            if next_count > 1:
                blocks, _, pool = pool_size(next_count, block, shared)
                drawn = blocks * pool
                _draw(state, next_negatives, drawn, threshold, alias)
        if step < 0 or count < 2:
            continue
        rate = np.float32(first_rate + (last_rate - first_rate) * step / len(walks))
        sampled = mix(np.uint64(number + step) ^ key) % np.uint64(LOSS_EVERY) == 0
        blocks, size, pool = pool_size(count, block, shared)
        for n in range(blocks):
            begin, end = n * size, min(count, (n + 1) * size)
            start, stop = max(0, begin - window), min(count, end + window)
            centres, contexts, shift = end - begin, stop - start, begin - start
            # Contexts begin at row `lead` of y, so that the first of the first centre's is at an even row.
            lead, shift = window + shift % 2, shift + shift % 2
            x_count, pool_count = _up(centres, ROWS), _up(pool, LANES)
            y_count = _up(x_count + shift + band, LANES)
            hx[:x_count] = 0
            hy[:y_count] = 0
            hz[:pool_count] = 0
            ones[:pool] = 1
            ones[pool:pool_count] = 0
            chosen = n * pool
            for i in range(0, x_count, LANES):
                pack_left(centre, d, rows, begin + i, begin, end, zeros, x_words, half, x_pairs, nx, i)
            for i in range(0, y_count, LANES):
                pack_right(context, d, rows, start + i - lead, start, stop, zeros, y_columns, y_rows, y_pairs, ny, i)
            for i in range(0, pool_count, LANES):
                pack_right(
                    context, d, negatives, chosen + i, chosen, chosen + pool, zeros, z_columns, z_rows, z_pairs, nz, i
                )
            peak = max(peak, _peak(nx, centres, limit), _peak(ny, lead + contexts, limit), _peak(nz, pool, limit))
            if peak > limit:
                return loss, weight, np.inf
            for i in range(x_count):
                p = begin + i
                pairs = one_side[p] + one_side[count - 1 - p] if i < centres else 0.0
                negative_weight[i] = np.float32(pairs * negative / pool)
                inside[i] = np.float32(i < centres)
            if sampled:
                a, b = _block_loss(
                    centre, context, d, rows, begin, end, count, negatives, chosen, pool, window, negative_weight
                )
                loss, weight = loss + a, weight + b

            for i in range(0, x_count, ROWS):
                corner = i + shift  # row of `y`, column of the band
                set_product(
                    x_words, i * half, half, 1, y_columns, 0, y_rows, corner, scores, 0, band, half, band // LANES
                )
                for r in range(0, ROWS, 2):
                    score_rows(
                        scores, r * band, pair_weight, ROWS - r, -1, band, inside, nx, hx, i + r, np.float32(1),
                        ny, corner, hy, band_words, (i + r) * band // 2,
                        band_pairs, (i + r) // 2 * diagonals + ROWS - r,
                    )  # fmt: skip
                set_product(
                    band_words, i * band // 2, band // 2, 1, y_pairs, corner // 2, stride, 0,
                    gx, i * stride, stride, reach // 2, vectors,
                )  # fmt: skip
                set_product(
                    x_words, i * half, half, 1, z_columns, 0, z_rows, 0,
                    scores, 0, pool_count, half, pool_count // LANES,
                )  # fmt: skip
                for r in range(0, ROWS, 2):
                    score_rows(
                        scores, r * pool_count, ones, 0, 0, pool_count, negative_weight, nx, hx, i + r, np.float32(0),
                        nz, 0, hz, pool_words, (i + r) * pool_count // 2, pool_pairs, (i + r) // 2 * pool_count,
                    )  # fmt: skip
                add_product(
                    pool_words, i * pool_count // 2, pool_count // 2, 1, z_pairs, 0, stride, 0,
                    gx, i * stride, stride, pool // 2, vectors,
                )  # fmt: skip
                if n + 1 == blocks:
                    done = i + ROWS
                    for t in range(next_count * i // x_count, next_count * done // x_count):
                        prefetch_row(centre, next_rows[t] * d, d)
                        prefetch_row(context, next_rows[t] * d, d)
                    for m in range(drawn * i // x_count, drawn * done // x_count):
                        prefetch_row(context, next_negatives[m] * d, d)
            for c in range(lead, lead + contexts, ROWS):
                low, high = max(0, c - shift - 2 * window) // 2, (min(x_count, c - shift + ROWS) + 1) // 2
                set_product(
                    band_pairs, low * (diagonals - 2) + c - shift + ROWS, 1, diagonals - 2, x_pairs, low, stride, 0,
                    gy, c * stride, stride, high - low, vectors,
                )  # fmt: skip
            for m in range(0, pool, ROWS):
                set_product(
                    pool_pairs, m, 1, pool_count, x_pairs, 0, stride, 0, gz, m * stride, stride, x_count // 2, vectors
                )

            keys[:] = -1
            used = _slots(rows, start, contexts, keys, values, slot, 0)
            used = _slots(negatives, chosen, pool, keys, values, negative_slot, used)
            curve_x[:used] = 0
            curve_y[:used] = 0
            for i in range(centres):
                curve_x[slot[begin - start + i]] += hx[i]
            for i in range(contexts):
                curve_y[slot[i]] += hy[lead + i]
            for m in range(pool):
                curve_y[negative_slot[m]] += hz[m]
            if adagrad:
                for i in range(0, x_count, LANES):
                    squared_norms(gx, i, stride, nx)
                for i in range(0, y_count, LANES):
                    squared_norms(gy, i, stride, ny)
                for i in range(0, pool_count, LANES):
                    squared_norms(gz, i, stride, nz)
            for i in range(centres):
                row = rows[begin + i]
                if adagrad:
                    squares = np.float32(centre_sum[row] + nx[i] / d)
                    centre_sum[row] = squares
                scale = _step(rate, bound, curve_x[slot[begin - start + i]], adagrad, squares)
                add_row(centre, row * d, d, scale, gx, i * stride)
            for i in range(contexts):
                row = rows[start + i]
                if adagrad:
                    squares = np.float32(context_sum[row] + ny[lead + i] / d)
                    context_sum[row] = squares
                scale = _step(rate, bound, curve_y[slot[i]], adagrad, squares)
                add_row(context, row * d, d, scale, gy, (lead + i) * stride)
            for m in range(pool):
                row = negatives[chosen + m]
                if adagrad:
                    squares = np.float32(context_sum[row] + nz[m] / d)
                    context_sum[row] = squares
                scale = _step(rate, bound, curve_y[negative_slot[m]], adagrad, squares)
                add_row(context, row * d, d, scale, gz, m * stride)
    return loss, weight, peak
