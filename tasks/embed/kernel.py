"""Skip-gram with negative sampling on the CPU: one block of a walk at a time, on tables that all threads share.

For a walk r_0 … r_(n-1), centre vectors c and context vectors o, the objective is what word2vec's is in expectation
over its random windows (Mikolov et al., 2013):

    sum_i sum_(0 < |i-j| <= W) w_ij [ -log s(c_ri . o_rj) ]
      + sum_i (N / K) (sum_j w_ij) sum_m [ -log s(-c_ri . o_vm) ]

with w_ij = (W - |i-j| + 1) / W, s the logistic function, N negatives per pair, and K negatives v_m that the
positions of a block share. All scores of a block are taken from the same vectors, so its gradients are products of
small matrices, tiled in registers (`simd.pair_tile`); then every row takes one step,

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
from tasks.embed.simd import LANES, TILE

njit: Any = numba.njit  # what it makes has other types than what it is given
add_row: Any = simd.add_row
copy_row: Any = simd.copy_row
pair_tile: Any = simd.pair_tile
prefetch_row: Any = simd.prefetch_row
squared_norms: Any = simd.squared_norms

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

GROUP = 24
"""Centre rows that stay in the first-level cache while the negatives pass by."""
LOSS_EVERY = 256
"""One walk in so many has its loss computed."""
MIN_SHARED = 8

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FLAGS = {"contract", "reassoc", "nsz", "arcp"}
"""Fast arithmetic, but infinities and NaN keep their meaning: they are how divergence is seen."""


@njit(inline="always")
def mix(z: Any) -> Any:
    """Finalizer of SplitMix64 (Steele et al., 2014): 64 well-mixed bits of a counter."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit
def _aligned(size: int) -> Floats:
    """Zeros that begin at a cache line."""
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
    return blocks, size, min(shared, max(MIN_SHARED, (size + TILE - 1) // TILE * TILE))


@njit(nogil=True, cache=True)
def _minus_log_logistic(score: float) -> float:
    return float(np.log1p(np.exp(-abs(score)))) + max(-score, 0.0)


@njit(nogil=True, cache=True)
def _block_loss(
    x: Floats,
    y: Floats,
    stride: int,
    count: int,
    contexts: int,
    shift: int,
    window: int,
    first: int,
    pool: int,
    wn: Floats,
) -> tuple[float, float]:
    """The block's objective and the weight of its positive pairs."""
    loss = total = 0.0
    for i in range(count):
        a = x[i * stride : (i + 1) * stride]
        for j in range(max(0, i + shift - window), min(contexts, i + shift + window + 1)):
            if j != i + shift:
                weight = (window - abs(j - i - shift) + 1) / window
                loss += weight * _minus_log_logistic(float(np.sum(a * y[j * stride : (j + 1) * stride])))
                total += weight
        for m in range(first, first + pool):
            loss += wn[i * TILE] * _minus_log_logistic(-float(np.sum(a * y[m * stride : (m + 1) * stride])))
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
    stride = (d + LANES - 1) // LANES * LANES
    x_rows = block + 2 * LANES
    y_rows = block + 2 * window + shared + 2 * LANES
    x, gx = _aligned(x_rows * stride), _aligned(x_rows * stride)
    y, gy = _aligned(y_rows * stride), _aligned(y_rows * stride)
    nx, ny = _aligned(x_rows + LANES), _aligned(y_rows + LANES)
    hx, hy = _aligned(x_rows * TILE), _aligned(y_rows)
    wn = _aligned(x_rows * TILE)

    span = 2 * window + 3 * TILE  # weights of a tile, by the distance j - i of its corner
    tile_weights = _aligned(span * LANES)
    for s in range(span):
        for a in range(TILE):
            for b in range(TILE):
                distance = abs(s - window - TILE + 1 + b - a)
                if 0 < distance <= window:
                    tile_weights[s * LANES + a * TILE + b] = (window - distance + 1) / window
    one_side = np.zeros(length + 1, np.float64)  # summed weight of the pairs on one side, by positions there
    for t in range(1, length + 1):
        one_side[t] = one_side[t - 1] + max(0.0, (window - t + 1) / window)

    most = (length + block - 1) // block * shared
    rows, next_rows = np.zeros(length, np.int64), np.zeros(length, np.int64)
    negatives, next_negatives = np.zeros(most, np.int64), np.zeros(most, np.int64)
    places = 64
    while places < 4 * y_rows:
        places *= 2
    keys, values = np.zeros(places, np.int64), np.zeros(places, np.int64)
    slot, negative_slot = np.zeros(y_rows, np.int64), np.zeros(shared, np.int64)
    curve_x, curve_y = np.zeros(y_rows, np.float32), np.zeros(y_rows, np.float32)

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
        fetched = fetched_negatives = 0
        for n in range(blocks):
            begin, end = n * size, min(count, (n + 1) * size)
            start, stop = max(0, begin - window), min(count, end + window)
            centres, contexts, shift = end - begin, stop - start, begin - start
            x_count = (centres + TILE - 1) // TILE * TILE
            first = (contexts + 2 * TILE - 2) // TILE * TILE  # row of the first negative; zeros before it
            for i in range(centres):
                copy_row(centre, rows[begin + i] * d, d, x, i * stride)
            for i in range(contexts):
                copy_row(context, rows[start + i] * d, d, y, i * stride)
            for m in range(pool):
                copy_row(context, negatives[n * pool + m] * d, d, y, (first + m) * stride)
            x[centres * stride : x_count * stride] = 0
            y[contexts * stride : first * stride] = 0
            gx[: x_count * stride] = 0
            gy[: (first + pool) * stride] = 0
            hx[: x_count * TILE] = 0
            hy[: first + pool] = 0
            for i in range(0, x_count, LANES):
                squared_norms(x, i, stride, nx)
            for i in range(0, first + pool, LANES):
                squared_norms(y, i, stride, ny)
            for i in range(first + pool):
                if i < x_count:
                    peak = max(peak, nx[i]) if nx[i] <= limit else np.inf
                peak = max(peak, ny[i]) if ny[i] <= limit else np.inf
                if peak > limit:
                    return loss, weight, np.inf
            for i in range(centres):
                p = begin + i
                pairs = one_side[p] + one_side[count - 1 - p]
                wn[i * TILE : (i + 1) * TILE] = np.float32(pairs * negative / pool)
            if sampled:
                a, b = _block_loss(x, y, stride, centres, contexts, shift, window, first, pool, wn)
                loss, weight = loss + a, weight + b

            for i in range(0, x_count, TILE):
                for j in range(max(0, i + shift - window), min(contexts, i + shift + TILE + window), TILE):
                    s = j - i - shift + window + TILE - 1
                    pair_tile(x, y, gx, gy, hx, hy, nx, ny, i, j, stride, tile_weights, s * LANES, np.float32(1))
            for group in range(0, x_count, GROUP):
                for m in range(first, first + pool, TILE):
                    for i in range(group, min(x_count, group + GROUP), TILE):
                        pair_tile(x, y, gx, gy, hx, hy, nx, ny, i, m, stride, wn, i * TILE, np.float32(0))
                last = n + 1 == blocks and group + GROUP >= x_count
                until = next_count if last else min(next_count, fetched + GROUP)
                for i in range(fetched, until):
                    prefetch_row(centre, next_rows[i] * d, d)
                    prefetch_row(context, next_rows[i] * d, d)
                if next_count > 1:
                    next_blocks, _, next_pool = pool_size(next_count, block, shared)
                    drawn = next_blocks * next_pool
                    until_negative = drawn if last else min(drawn, fetched_negatives + GROUP)
                    for m in range(fetched_negatives, until_negative):
                        prefetch_row(context, next_negatives[m] * d, d)
                    fetched_negatives = until_negative
                fetched = until

            keys[:] = -1
            used = _slots(rows, start, contexts, keys, values, slot, 0)
            used = _slots(negatives, n * pool, pool, keys, values, negative_slot, used)
            curve_x[:used] = 0
            curve_y[:used] = 0
            for i in range(centres):
                total = hx[i * TILE] + hx[i * TILE + 1] + hx[i * TILE + 2] + hx[i * TILE + 3]
                curve_x[slot[i + shift]] += total
            for i in range(contexts):
                curve_y[slot[i]] += hy[i]
            for m in range(pool):
                curve_y[negative_slot[m]] += hy[first + m]
            if adagrad:
                for i in range(0, x_count, LANES):
                    squared_norms(gx, i, stride, nx)
                for i in range(0, first + pool, LANES):
                    squared_norms(gy, i, stride, ny)
            for i in range(centres):
                row = rows[begin + i]
                scale = rate
                if adagrad:
                    centre_sum[row] += nx[i] / d
                    scale = rate / np.sqrt(centre_sum[row] + np.float32(1e-10))
                scale = scale / (1 + np.float32(bound) * scale * curve_x[slot[i + shift]])
                add_row(centre, row * d, d, np.float32(scale), gx, i * stride)
            for i in range(contexts + pool):
                at = i if i < contexts else first + i - contexts
                row = rows[start + i] if i < contexts else negatives[n * pool + i - contexts]
                place = slot[i] if i < contexts else negative_slot[i - contexts]
                scale = rate
                if adagrad:
                    context_sum[row] += ny[at] / d
                    scale = rate / np.sqrt(context_sum[row] + np.float32(1e-10))
                scale = scale / (1 + np.float32(bound) * scale * curve_y[place])
                add_row(context, row * d, d, np.float32(scale), gy, at * stride)
    return loss, weight, peak
