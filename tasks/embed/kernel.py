"""Skip-gram with negative sampling on the CPU: one block of a walk at a time, on tables that all threads share.

For a walk r_0 … r_(n-1), centre vectors c and context vectors o, the objective is what word2vec's is in expectation
over its random windows (Mikolov et al., 2013):

    sum_i sum_(0 < |i-j| <= W) w_ij [ -log s(c_ri . o_rj) ]
      + sum_i (N / K) (sum_j w_ij) sum_m [ -log s(-c_ri . o_vm) ]

with w_ij = (W - |i-j| + 1) / W, s the logistic function, N negatives per pair, and K negatives v_m that the
positions of a block share. All scores of a block are taken from the same vectors, so scores and gradients are products
of small matrices, by tiles or in registers (`_by_tiles`, `_by_words`): full ones for the negatives, bands of 2 W + 1
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

from superworkflow.tasks.embed import _by_words, _packing, _steps
from superworkflow.tasks.embed._packing import STEP
from superworkflow.tasks.embed.blocks import (
    BlockBounds,
    BlockLayout,
    BlockSide,
    BlockSlopes,
    Floats,
    Integers,
    RowSlots,
    ScoreWeights,
    SkipGramLoss,
    Steps,
)
from superworkflow.tasks.embed.tables import EmbeddingTables
from superworkflow.tasks.lib.kernels.borrow import borrow
from superworkflow.tasks.lib.kernels.product_registers import ROWS
from superworkflow.tasks.lib.kernels.product_words import TILES, WORD
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.lib.kernels.vectors import LANES

njit: Any = numba.njit  # untyped: the annotations here are those of the compiled function


@njit(inline="always")
def _nothing() -> None:
    """Stands for the set-up of tiles on processors without them."""


add_row: Any = _steps.add_row
pack_left: Any = _packing.pack_left
pack_right: Any = _packing.pack_right
prefetch_row: Any = _steps.prefetch_row
squared_norms: Any = _steps.squared_norms
score_pairs: Any = _by_words.score_pairs
score_negatives: Any = _by_words.score_negatives
gather_gradients: Any = _by_words.gather_gradients
begin_tiles: Any = _nothing
end_tiles: Any = _nothing
GROUP = _by_words.GROUP
if TILES:
    from superworkflow.tasks.embed import _by_tiles
    from superworkflow.tasks.lib.kernels import products

    score_pairs, score_negatives = _by_tiles.score_pairs, _by_tiles.score_negatives
    gather_gradients, GROUP = _by_tiles.gather_gradients, _by_tiles.GROUP
    begin_tiles, end_tiles = products.begin_tiles, products.end_tiles

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
    tables: EmbeddingTables, rows: Integers, count: int, negatives: Integers, window: int, block: BlockBounds,
    weights: Any,
) -> tuple[float, float]:  # fmt: skip
    """The objective of the centres of a block of a walk of `count` rows, and the weight of their positive pairs."""
    centre, context, _, _ = borrow(tables)
    loss = total = 0.0
    for i in range(block.begin, block.end):
        a = centre[rows[i]]
        for j in range(max(0, i - window), min(count, i + window + 1)):
            if j != i:
                weight = (window - abs(j - i) + 1) / window
                loss += weight * _minus_log_logistic(float(np.sum(a * context[rows[j]])))
                total += weight
        for m in range(block.chosen, block.chosen + block.pool):
            score = float(np.sum(a * context[negatives[m]]))
            loss += weights[i - block.begin] * _minus_log_logistic(-score)
    return loss, total


@njit(nogil=True, cache=True, fastmath=_FLAGS)
def train_walks(
    walks: Any, number: int, key: Any, vocabulary: Any, tables: EmbeddingTables, objective: SkipGramLoss, steps: Steps
) -> tuple[float, float, float]:
    """Train on some walks.

    The steps are those of `objective` in tests/tasks/test_embed_kernel.py, damped.

    Args:
        walks: int32 [walks, walk_length], vertex ids, padded with -1.
        number: the first walk's number in this epoch; with `key` it seeds a walk's random numbers.
        key: 64 bits of (seed, epoch).
        vocabulary: a `Vocabulary`.

    Writes:
        tables: centre and context vectors, and AdaGrad's sums, which are empty for plain SGD.

    Returns:
        loss and weight of positive pairs, summed over the sampled walks, and the largest squared norm met; the work
        stops where that is above the limit or not a number (infinity is returned).
    """
    length, d, window, shared = walks.shape[1], tables.centre.shape[1], objective.window, objective.shared
    block = min(objective.block, length)
    stride = _up(d, STEP)
    reach = 2 * window + ROWS
    band = _up(reach, LANES)
    wide = _up(band + GROUP - ROWS, STEP)
    x_rows = _up(block, STEP) + STEP
    # Contexts begin at row `window`, with zeros on both sides.
    y_rows = _up(block + 2 * window + band, LANES) + (3 * LANES if TILES else LANES)
    z_rows = _up(shared, STEP) + LANES
    pairs_row = x_rows + band + LANES if TILES else band + 2 * ROWS
    layout = BlockLayout(d, window, stride, reach, band, wide, pairs_row, y_rows, z_rows)
    x = BlockSide(
        _word_matrix(x_rows, stride), _word_matrix(x_rows, stride), _matrix(x_rows, 1), _matrix(x_rows, stride),
        _matrix(x_rows, 1),
    )  # fmt: skip
    y = BlockSide(
        _word_matrix(stride, y_rows), _word_matrix(y_rows, stride), _matrix(y_rows, 1), _matrix(y_rows, stride),
        _matrix(y_rows, 1),
    )  # fmt: skip
    z = BlockSide(
        _word_matrix(stride, z_rows), _word_matrix(z_rows, stride), _matrix(z_rows, 1), _matrix(z_rows, stride),
        _matrix(z_rows, 1),
    )  # fmt: skip
    slopes = BlockSlopes(
        _matrix(GROUP, max(band + LANES, z_rows)), _word_matrix(x_rows, wide), _word_matrix(x_rows, pairs_row),
        _word_matrix(x_rows, z_rows), _word_matrix(x_rows, z_rows), _matrix(x_rows // 2, LANES),
    )  # fmt: skip
    pair_weight = _matrix(band + ROWS, 1)
    for distance in range(1, window + 1):
        pair_weight[ROWS + window + distance] = (window - distance + 1) / window
        pair_weight[ROWS + window - distance] = (window - distance + 1) / window
    one_side = np.zeros(length + 1, np.float64)
    for t in range(1, length + 1):
        one_side[t] = one_side[t - 1] + max(0.0, (window - t + 1) / window)
    weights = ScoreWeights(
        pair_weight, one_side, _matrix(x_rows, 1), _matrix(x_rows, 1), _matrix(z_rows, 1), _matrix(1, stride)
    )
    places = 64
    while places < 4 * (y_rows + z_rows):
        places *= 2
    slots = RowSlots(
        np.zeros(places, np.int64), np.zeros(places, np.int64), np.zeros(y_rows, np.int64), np.zeros(shared, np.int64),
        _matrix(y_rows + z_rows, 1), _matrix(y_rows + z_rows, 1),
    )  # fmt: skip
    most = (length + block - 1) // block * shared
    rows, next_rows = np.zeros(length, np.int64), np.zeros(length, np.int64)
    negatives, next_negatives = np.zeros(most, np.int64), np.zeros(most, np.int64)
    # `_train` borrows these: they are released when it has returned.
    scratch = (rows, next_rows), (negatives, next_negatives), x, y, z, slopes, weights, slots
    begin_tiles()
    done: tuple[float, float, float] = _train(walks, number, key, vocabulary, tables, objective, steps, layout, scratch)
    end_tiles()
    return done


@njit(nogil=True, cache=True, fastmath=_FLAGS)
def _train(
    walks: Any, number: int, key: Any, vocabulary: Any, tables: EmbeddingTables, objective: SkipGramLoss, steps: Steps,
    layout: BlockLayout, scratch: Any,
) -> tuple[float, float, float]:  # fmt: skip
    """`train_walks` in matrices of the caller's, walk by walk and block by block."""
    walks, tables = borrow(walks), borrow(tables)
    remap, threshold, alias, keep = borrow(vocabulary)
    (rows, next_rows), (negatives, next_negatives), x, y, z, slopes, weights, slots = borrow(scratch)
    centre, context, centre_sum, context_sum = tables
    d, most = layout.dimensions, min(objective.block, walks.shape[1])
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
                blocks, _, pool = pool_size(next_count, most, objective.shared)
                drawn = blocks * pool
                _draw(state, next_negatives, drawn, threshold, alias)
        if step < 0 or count < 2:
            continue
        rate = np.float32(steps.first_rate + (steps.last_rate - steps.first_rate) * step / len(walks))
        sampled = mix(np.uint64(number + step) ^ key) % np.uint64(LOSS_EVERY) == 0
        blocks, size, pool = pool_size(count, most, objective.shared)
        for n in range(blocks):
            block = _block(n, size, count, pool, layout)
            _pack_block(tables, rows, negatives, block, layout, x, y, z, weights)
            contexts = block.stop - block.start
            peak = max(
                peak, _peak(x.norms, block.end - block.begin, steps.limit),
                _peak(y.norms, block.lead + contexts, steps.limit), _peak(z.norms, pool, steps.limit),
            )  # fmt: skip
            if peak > steps.limit:
                return loss, weight, np.inf
            _weigh(block, count, objective.negative, weights)
            if sampled:
                a, b = _block_loss(tables, rows, count, negatives, layout.window, block, weights.negative)
                loss, weight = loss + a, weight + b
            for i in range(0, block.x_count, GROUP):
                score_pairs(i, block, layout, x, y, slopes, weights)
                score_negatives(i, block, layout, x, z, slopes, weights)
                if n + 1 == blocks:  # bring the rows of the next walk nearer
                    done = i + GROUP
                    for t in range(next_count * i // block.x_count, next_count * done // block.x_count):
                        prefetch_row(centre, next_rows[t] * d, d)
                        prefetch_row(context, next_rows[t] * d, d)
                    for m in range(drawn * i // block.x_count, drawn * done // block.x_count):
                        prefetch_row(context, next_negatives[m] * d, d)
            gather_gradients(block, layout, x, y, z, slopes)
            _add_up_curves(block, rows, negatives, x, y, z, slots)
            if len(centre_sum) > 0:
                for i in range(0, block.x_count, LANES):
                    squared_norms(x.gradients, i, layout.stride, x.norms)
                for i in range(0, block.y_count, LANES):
                    squared_norms(y.gradients, i, layout.stride, y.norms)
                for i in range(0, block.z_count, LANES):
                    squared_norms(z.gradients, i, layout.stride, z.norms)
            curves, numbers = slots.centre_curves, slots.contexts
            for i in range(block.end - block.begin):
                curve = curves[numbers[block.begin - block.start + i]]
                _step_row(centre, centre_sum, rows[block.begin + i], i, curve, x, rate, steps.bound, layout)
            curves = slots.context_curves
            for i in range(contexts):
                _step_row(
                    context, context_sum, rows[block.start + i], block.lead + i, curves[numbers[i]], y, rate,
                    steps.bound, layout,
                )  # fmt: skip
            numbers = slots.negatives
            for m in range(pool):
                _step_row(
                    context, context_sum, negatives[block.chosen + m], m, curves[numbers[m]], z, rate, steps.bound,
                    layout,
                )  # fmt: skip
    return loss, weight, peak


@njit(inline="always")
def _block(n: int, size: int, count: int, pool: int, layout: BlockLayout) -> BlockBounds:
    """Block `n` of a walk of `count` rows."""
    begin, end = n * size, min(count, (n + 1) * size)
    start, stop = max(0, begin - layout.window), min(count, end + layout.window)
    shift = begin - start
    lead, shift = layout.window + _up(shift, 4) - shift, _up(shift, 4)
    x_count = _up(end - begin, GROUP)
    y_count = _up(x_count + shift + layout.band, LANES)
    return BlockBounds(begin, end, start, stop, n * pool, pool, lead, shift, x_count, y_count, _up(pool, STEP))


@njit(inline="always")
def _pack_block(
    tables: EmbeddingTables, rows: Integers, negatives: Integers, block: BlockBounds, layout: BlockLayout, x: BlockSide,
    y: BlockSide, z: BlockSide, weights: ScoreWeights,
) -> None:  # fmt: skip
    """Factors and squared norms of x, y and z; their curves are set to 0."""
    begin, end, start, stop, chosen, pool, lead, _, x_count, y_count, z_count = block
    centre, context, _, _ = tables
    d, half, zeros = layout.dimensions, layout.stride // 2, weights.zeros
    x.curves[:x_count] = 0
    y.curves[:y_count] = 0
    z.curves[:z_count] = 0
    weights.ones[:pool] = 1
    weights.ones[pool:z_count] = 0
    for i in range(0, x_count, LANES):
        pack_left((centre, d, zeros), (rows, begin + i, begin, end), (x.words, half), x.pairs, x.norms, i)
    for i in range(0, y_count, LANES):
        positions = rows, start + i - lead, start, stop
        pack_right((context, d, zeros), positions, (y.words, layout.y_rows), y.pairs, y.norms, i)
    for i in range(0, z_count, LANES):
        positions = negatives, chosen + i, chosen, chosen + pool
        pack_right((context, d, zeros), positions, (z.words, layout.z_rows), z.pairs, z.norms, i)


@njit(inline="always")
def _weigh(block: BlockBounds, count: int, negative: float, weights: ScoreWeights) -> None:
    """(N / K) sum_j w_ij of each centre i, 0 for the padding behind the last one."""
    one_side = weights.one_side
    for i in range(block.x_count):
        p = block.begin + i
        inside = i < block.end - block.begin
        pairs = one_side[p] + one_side[count - 1 - p] if inside else 0.0
        weights.negative[i] = np.float32(pairs * negative / block.pool)
        weights.inside[i] = np.float32(inside)


@njit(inline="always")
def _add_up_curves(
    block: BlockBounds, rows: Integers, negatives: Integers, x: BlockSide, y: BlockSide, z: BlockSide, slots: RowSlots
) -> None:
    """Curvature h of each distinct row, summed over its duplicates in the block."""
    keys, values, contexts, chosen, centre_curves, context_curves = slots
    count = block.stop - block.start
    keys[:] = -1
    used = _slots(rows, block.start, count, keys, values, contexts, 0)
    used = _slots(negatives, block.chosen, block.pool, keys, values, chosen, used)
    centre_curves[:used] = 0
    context_curves[:used] = 0
    for i in range(block.end - block.begin):
        centre_curves[contexts[block.begin - block.start + i]] += x.curves[i]
    for i in range(count):
        context_curves[contexts[i]] += y.curves[block.lead + i]
    for m in range(block.pool):
        context_curves[chosen[m]] += z.curves[m]


@njit(inline="always")
def _step_row(
    table: Any, sums: Any, row: Any, i: int, curve: Any, side: BlockSide, rate: Any, bound: float, layout: BlockLayout
) -> None:
    """row += lr / (1 + b lr h) gradient, for row `i` of a side, whose gradient has its squared norm in `norms`."""
    d = layout.dimensions
    squares = np.float32(0)
    adagrad = len(sums) > 0
    if adagrad:
        squares = np.float32(sums[row] + side.norms[i] / d)
        sums[row] = squares
    add_row(table, row * d, d, _step(rate, bound, curve, adagrad, squares), side.gradients, i * layout.stride)
