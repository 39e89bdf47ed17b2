"""Skip-gram with negative sampling on the CPU: one block of a walk at a time, on tables that all threads share.

For a walk r_0 … r_(n-1), centre vectors c and context vectors o, the objective is what word2vec's is in expectation
over its random windows (Mikolov et al., 2013):

    sum_i sum_(0 < |i-j| <= W) w_ij [ -log s(c_ri . o_rj) ]
      + sum_i (N / K) (sum_j w_ij) sum_m [ -log s(-c_ri . o_vm) ]

with w_ij = (W - |i-j| + 1) / W, s the logistic function, N negatives per pair, and K negatives v_m that the
positions of a block share. All scores of a block are taken from the same vectors, so scores and gradients are products
of small matrices, tiled in registers (`simd.set_product`): full ones for the negatives, bands of 2 W + 1 diagonals for
the pairs of the walk. Then every row takes one step,

    row += lr / (1 + b lr h) gradient,

where h bounds the curvature of the block's objective along that row: the sum over its pairs (duplicates of the
vertex in the block included) of weight times `simd._curvature` times the other row's squared norm. Hubs, whose
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

from tasks.embed import simd
from tasks.embed.simd import LANES, ROWS

njit: Any = numba.njit  # what it makes has other types than what it is given
add_product: Any = simd.add_product
add_row: Any = simd.add_row
copy_row: Any = simd.copy_row
prefetch_row: Any = simd.prefetch_row
score_row: Any = simd.score_row
set_product: Any = simd.set_product
squared_norms: Any = simd.squared_norms
transpose_rows: Any = simd.transpose_rows

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

LOSS_EVERY = 256
"""One walk in so many has its loss computed."""
MIN_SHARED, SHARED_STEP = 8, 4

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FLAGS = {"contract", "reassoc", "nsz", "arcp"}
"""Fast arithmetic, but infinities and NaN keep their meaning: they are how divergence is seen."""


@njit(inline="always")
def mix(z: Any) -> Any:
    """Finalizer of SplitMix64 (Steele et al., 2014): 64 well-mixed bits of a counter."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


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
            state += _GOLDEN
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
        state += _GOLDEN
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
def _step(
    rate: Any, bound: float, curvature: Any, adagrad: bool, sums: Floats, row: int, mean_square: float
) -> np.float32:
    """What a row's gradient is multiplied by."""
    scale = np.float32(rate)
    if adagrad:
        sums[row] += mean_square
        scale = np.float32(rate / np.sqrt(sums[row] + np.float32(1e-10)))
    return np.float32(scale / (np.float32(1) + np.float32(bound) * scale * curvature))


@njit(nogil=True, cache=True)
def _minus_log_logistic(score: float) -> float:
    return float(np.log1p(np.exp(-abs(score)))) + max(-score, 0.0)


@njit(nogil=True, cache=True)
def _block_loss(
    x: Floats,
    y: Floats,
    z: Floats,
    stride: int,
    count: int,
    contexts: int,
    shift: int,
    window: int,
    pool: int,
    negative_weight: Floats,
) -> tuple[float, float]:
    """The block's objective and the weight of its positive pairs."""
    loss = total = 0.0
    for i in range(count):
        a = x[i * stride : (i + 1) * stride]
        for j in range(max(0, i + shift - window), min(contexts, i + shift + window + 1)):
            if j != i + shift:
                weight = (window - abs(j - i - shift) + 1) / window
                b = y[(window + j) * stride : (window + j + 1) * stride]
                loss += weight * _minus_log_logistic(float(np.sum(a * b)))
                total += weight
        for m in range(pool):
            score = float(np.sum(a * z[m * stride : (m + 1) * stride]))
            loss += negative_weight[i] * _minus_log_logistic(-score)
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
    vectors = stride // LANES
    # The columns of a band that 8 centres meet: the first belongs to the first centre's farthest context.
    reach = 2 * window + ROWS
    band = _up(reach, LANES)
    x_rows = _up(block, LANES) + LANES
    y_rows = _up(block + 2 * window + band, LANES) + LANES  # contexts begin at row `window`; zeros on both sides
    z_rows = _up(shared, LANES) + LANES
    x, gx, nx, hx = _matrix(x_rows, stride), _matrix(x_rows, stride), _matrix(x_rows, 1), _matrix(x_rows, 1)
    y, gy, ny, hy = _matrix(y_rows, stride), _matrix(y_rows, stride), _matrix(y_rows, 1), _matrix(y_rows, 1)
    z, gz, nz, hz = _matrix(z_rows, stride), _matrix(z_rows, stride), _matrix(z_rows, 1), _matrix(z_rows, 1)
    y_columns, z_columns = _matrix(stride, y_rows), _matrix(stride, z_rows)  # y and z transposed
    scores = _matrix(ROWS, max(band, z_rows))
    # By rows: element ROWS + W + j - i of row i is the gradient by the score of centre i and context j.
    diagonals = band + ROWS
    g_band, g_pool = _matrix(x_rows, diagonals), _matrix(x_rows, z_rows)
    negative_weight, ones = _matrix(x_rows, 1), _matrix(z_rows, 1)
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

    loss = weight = peak = 0.0
    count, next_count = 0, 0
    for step in range(-1, len(walks)):
        rows, next_rows = next_rows, rows
        negatives, next_negatives = next_negatives, negatives
        count = next_count
        next_count = 0
        if step + 1 < len(walks):
            state = mix(key + np.uint64(number + step + 1) * _GOLDEN)
            next_count, state = _read_walk(walks[step + 1], remap, keep, state, next_rows)
            if next_count > 1:
                blocks, _, pool = pool_size(next_count, block, shared)
                _draw(state, next_negatives, blocks * pool, threshold, alias)
        if step < 0 or count < 2:
            continue
        rate = np.float32(first_rate + (last_rate - first_rate) * step / len(walks))
        sampled = mix(np.uint64(number + step) ^ key) % np.uint64(LOSS_EVERY) == 0
        blocks, size, pool = pool_size(count, block, shared)
        for n in range(blocks):
            begin, end = n * size, min(count, (n + 1) * size)
            start, stop = max(0, begin - window), min(count, end + window)
            centres, contexts, shift = end - begin, stop - start, begin - start
            x_count, pool_count = _up(centres, ROWS), _up(pool, LANES)
            y_count = _up(x_count + shift + band, LANES)
            for i in range(centres):
                copy_row(centre, rows[begin + i] * d, d, x, i * stride)
            for i in range(contexts):
                copy_row(context, rows[start + i] * d, d, y, (window + i) * stride)
            for m in range(pool):
                copy_row(context, negatives[n * pool + m] * d, d, z, m * stride)
            x[centres * stride : _up(centres, LANES) * stride] = 0
            y[(window + contexts) * stride : y_count * stride] = 0
            z[pool * stride : pool_count * stride] = 0
            hx[:x_count] = 0
            hy[:y_count] = 0
            hz[:pool_count] = 0
            ones[:pool] = 1
            ones[pool:pool_count] = 0
            for i in range(0, x_count, LANES):
                squared_norms(x, i, stride, nx)
            for i in range(0, y_count, LANES):
                squared_norms(y, i, stride, ny)
                transpose_rows(y, i * stride, stride, y_columns, i, y_rows)
            for i in range(0, pool_count, LANES):
                squared_norms(z, i, stride, nz)
                transpose_rows(z, i * stride, stride, z_columns, i, z_rows)
            peak = max(peak, _peak(nx, centres, limit), _peak(ny, window + contexts, limit), _peak(nz, pool, limit))
            if peak > limit:
                return loss, weight, np.inf
            for i in range(x_count):
                p = begin + i
                pairs = one_side[p] + one_side[count - 1 - p] if i < centres else 0.0
                negative_weight[i] = np.float32(pairs * negative / pool)
            if sampled:
                a, b = _block_loss(x, y, z, stride, centres, contexts, shift, window, pool, negative_weight)
                loss, weight = loss + a, weight + b

            drawn = 0
            if next_count > 1:
                next_blocks, _, next_pool = pool_size(next_count, block, shared)
                drawn = next_blocks * next_pool
            for i in range(0, x_count, ROWS):
                corner = i + shift  # row of `y`, column of the band
                set_product(x, i * stride, stride, 1, y_columns, corner, y_rows, scores, 0, band, d, band // LANES)
                for r in range(ROWS):
                    hx[i + r] += score_row(
                        scores, r * band, g_band, (i + r) * diagonals + ROWS - r, pair_weight, ROWS - r,
                        band, np.float32(i + r < centres), np.float32(1), ny, corner, hy, corner, nx[i + r],
                    )  # fmt: skip
                set_product(
                    g_band, i * diagonals + ROWS, diagonals - 1, 1, y, corner * stride, stride,
                    gx, i * stride, stride, reach, vectors,
                )  # fmt: skip
                set_product(
                    x, i * stride, stride, 1, z_columns, 0, z_rows, scores, 0, pool_count, d, pool_count // LANES
                )
                for r in range(ROWS):
                    hx[i + r] += score_row(
                        scores, r * pool_count, g_pool, (i + r) * pool_count, ones, 0,
                        pool_count, negative_weight[i + r], np.float32(0), nz, 0, hz, 0, nx[i + r],
                    )  # fmt: skip
                add_product(g_pool, i * pool_count, pool_count, 1, z, 0, stride, gx, i * stride, stride, pool, vectors)
                if n + 1 == blocks:
                    done = i + ROWS
                    for t in range(next_count * i // x_count, next_count * done // x_count):
                        prefetch_row(centre, next_rows[t] * d, d)
                        prefetch_row(context, next_rows[t] * d, d)
                    for m in range(drawn * i // x_count, drawn * done // x_count):
                        prefetch_row(context, next_negatives[m] * d, d)
            for c in range(window, window + contexts, ROWS):
                low, high = max(0, c - shift - 2 * window), min(x_count, c - shift + ROWS)
                set_product(
                    g_band, low * (diagonals - 1) + c - shift + ROWS, 1, diagonals - 1, x, low * stride, stride,
                    gy, c * stride, stride, high - low, vectors,
                )  # fmt: skip
            for m in range(0, pool, ROWS):
                set_product(g_pool, m, 1, pool_count, x, 0, stride, gz, m * stride, stride, x_count, vectors)

            keys[:] = -1
            used = _slots(rows, start, contexts, keys, values, slot, 0)
            used = _slots(negatives, n * pool, pool, keys, values, negative_slot, used)
            curve_x[:used] = 0
            curve_y[:used] = 0
            for i in range(centres):
                curve_x[slot[i + shift]] += hx[i]
            for i in range(contexts):
                curve_y[slot[i]] += hy[window + i]
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
                scale = _step(rate, bound, curve_x[slot[i + shift]], adagrad, centre_sum, row, nx[i] / d)
                add_row(centre, row * d, d, scale, gx, i * stride)
            for i in range(contexts):
                row = rows[start + i]
                scale = _step(rate, bound, curve_y[slot[i]], adagrad, context_sum, row, ny[window + i] / d)
                add_row(context, row * d, d, scale, gy, (window + i) * stride)
            for m in range(pool):
                row = negatives[n * pool + m]
                scale = _step(rate, bound, curve_y[negative_slot[m]], adagrad, context_sum, row, nz[m] / d)
                add_row(context, row * d, d, scale, gz, m * stride)
    return loss, weight, peak
