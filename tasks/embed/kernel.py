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

A walk's matrices do not fit into the nearest cache. So each pass over them takes a few rows as far as it can: those
that are packed next are on their way while others are packed, and gradients become steps before others are made.
Random numbers come from (key, number of the walk) alone.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from superworkflow.tasks.embed import _by_words, _packing, _row_steps, _steps
from superworkflow.tasks.embed._loss import block_loss
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
from superworkflow.tasks.lib.kernels import product_tiles
from superworkflow.tasks.lib.kernels.borrow import borrow
from superworkflow.tasks.lib.kernels.product_registers import ROWS
from superworkflow.tasks.lib.kernels.product_words import TILES, WORD
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.lib.kernels.vectors import LANES

njit: Any = numba.njit  # untyped: the annotations here are those of the compiled function


add_up_curves: Any = _row_steps.add_up_curves
pack_left: Any = _packing.pack_left
pack_right: Any = _packing.pack_right
squared_norms: Any = _steps.squared_norms
step_row: Any = _row_steps.step_row
score_pairs: Any = _by_words.score_pairs
score_negatives: Any = _by_words.score_negatives
centre_gradients: Any = _by_words.centre_gradients
context_gradients: Any = _by_words.context_gradients
negative_gradients: Any = _by_words.negative_gradients
begin_products: Any = product_tiles.begin_products
end_products: Any = product_tiles.end_products
GROUP = _by_words.GROUP
if TILES:
    from superworkflow.tasks.embed import _by_tiles

    score_pairs, score_negatives = _by_tiles.score_pairs, _by_tiles.score_negatives
    centre_gradients, context_gradients = _by_tiles.centre_gradients, _by_tiles.context_gradients
    negative_gradients, GROUP = _by_tiles.negative_gradients, _by_tiles.GROUP

LOSS_EVERY = 256
"""Walks for each one of which the loss of some centres is computed."""
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
        other = np.int64(alias[slot])  # read in any case: a branch would be guessed wrong half of the time
        out[m] = slot if np.uint32(z & np.uint64(0xFFFFFFFF)) < threshold[slot] else other


@njit(nogil=True, cache=True)
def pool_size(length: int, block: int, shared: int) -> tuple[int, int, int]:
    """(blocks, positions per block, negatives per block) of a walk: as many negatives as positions, 8 to `shared`."""
    blocks = (length + block - 1) // block
    size = (length + blocks - 1) // blocks
    return blocks, size, min(shared, max(MIN_SHARED, _up(size, SHARED_STEP)))


@njit(nogil=True, cache=True)
def _peak(norms: Floats, count: int, limit: float) -> float:
    """Largest of the first `count` norms; infinity where one is above `limit` or not a number."""
    bits = norms.view(np.uint32)  # in the order of the norms, which have no sign; those of NaN are above infinity's
    peak = np.uint32(0)
    for i in range(count):
        peak = max(peak, bits[i])
    found = np.float32(0)
    for i in range(count):
        if bits[i] == peak:
            found = norms[i]
            break
    return float(found) if found <= limit else np.inf


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
        loss and weight of positive pairs, summed over the sampled centres, and the largest squared norm met; the work
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
        _word_matrix(x_rows, stride), _word_matrix(x_rows, stride), _matrix(x_rows, 1), _matrix(x_rows, 1)
    )  # fmt: skip
    y = BlockSide(
        _word_matrix(stride, y_rows), _word_matrix(y_rows, stride), _matrix(y_rows, 1), _matrix(y_rows, 1)
    )  # fmt: skip
    z = BlockSide(
        _word_matrix(stride, z_rows), _word_matrix(z_rows, stride), _matrix(z_rows, 1), _matrix(z_rows, 1)
    )  # fmt: skip
    slopes = BlockSlopes(
        _matrix(GROUP, max(band + LANES, z_rows)), _word_matrix(x_rows, wide), _word_matrix(x_rows, pairs_row),
        _word_matrix(x_rows, z_rows), _word_matrix(x_rows, z_rows), _matrix(x_rows // 2, LANES),
        _matrix(LANES, stride), _matrix(LANES, 1),
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
    distinct = block + 2 * window + shared
    places = 64
    while places < 2 * distinct:
        places *= 2
    slots = RowSlots(
        np.full(places, -1, np.int64), np.zeros(places, np.int64), np.zeros(distinct, np.int64),
        np.zeros(y_rows, np.int64), np.zeros(shared, np.int64), _matrix(distinct, 1), _matrix(distinct, 1),
    )  # fmt: skip
    most = (length + block - 1) // block * shared
    rows, next_rows = np.zeros(length, np.int64), np.zeros(length, np.int64)
    negatives, next_negatives = np.zeros(most, np.int64), np.zeros(most, np.int64)
    # `_train` borrows these: they are released when it has returned.
    scratch = (rows, next_rows), (negatives, next_negatives), x, y, z, slopes, weights, slots
    begin_products()
    done: tuple[float, float, float] = _train(walks, number, key, vocabulary, tables, objective, steps, layout, scratch)
    end_products()
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
    most = min(objective.block, walks.shape[1])
    loss = weight = peak = 0.0
    count, next_count, filled = 0, 0, 0
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
            filled = _pack_block(tables, rows, negatives, block, layout, x, y, z, weights, slopes.gradients, filled)
            contexts = block.stop - block.start
            peak = max(
                peak, _peak(x.norms, block.end - block.begin, steps.limit),
                _peak(y.norms, block.lead + contexts, steps.limit), _peak(z.norms, pool, steps.limit),
            )  # fmt: skip
            if peak > steps.limit:
                return loss, weight, np.inf
            _weigh(block, count, objective.negative, weights)
            if sampled:
                a, b = block_loss(tables, rows, count, negatives, layout.window, block, weights.negative)
                loss, weight = loss + a, weight + b
            for i in range(0, block.x_count, GROUP):
                score_negatives(i, block, layout, x, z, slopes, weights)
            for i in range(0, block.x_count, GROUP):
                score_pairs(i, block, layout, x, y, slopes, weights)
            add_up_curves(block, rows, negatives, x, y, z, slots)
            _step_rows(tables, rows, negatives, block, layout, x, y, z, slopes, slots, rate, steps.bound)
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
    y: BlockSide, z: BlockSide, weights: ScoreWeights, room: Floats, filled: int,
) -> int:  # fmt: skip
    """Factors and squared norms of x, y and z; their curves are set to 0. Of y the rows from `filled` on are zeros, now
    from the returned one on."""
    begin, end, start, stop, chosen, pool, lead, _, x_count, y_count, z_count = block
    centre, context, _, _ = tables
    d, half, zeros = layout.dimensions, layout.stride // 2, weights.zeros
    x.curves[:x_count] = 0
    y.curves[:y_count] = 0
    z.curves[:z_count] = 0
    weights.ones[:pool] = 1
    weights.ones[pool:z_count] = 0
    for i in range(0, x_count, LANES):
        ahead = (centre, rows, begin + i + LANES, begin, end)
        if i + LANES >= x_count:
            ahead = (context, rows, start - lead, start, stop)
        pack_left((centre, d, zeros), (rows, begin + i, begin, end), (x.words, half), x.pairs, x.norms, i, ahead)
    full: int = _up(lead + stop - start, LANES)
    for i in range(0, min(y_count, max(full, filled)), LANES):
        positions, ahead = (rows, start + i - lead, start, stop), (context, rows, start + i + LANES - lead, start, stop)
        if i + LANES >= full:
            ahead = (context, negatives, chosen, chosen, chosen + pool)
        pack_right((context, d, zeros), positions, (y.words, layout.y_rows), y.pairs, y.norms, i, ahead, room)
    for i in range(0, z_count, LANES):
        positions = negatives, chosen + i, chosen, chosen + pool
        ahead = (context, negatives, chosen + i + LANES, chosen, chosen + pool)
        pack_right((context, d, zeros), positions, (z.words, layout.z_rows), z.pairs, z.norms, i, ahead, room)
    return full


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
def _step_rows(
    tables: EmbeddingTables, rows: Integers, negatives: Integers, block: BlockBounds, layout: BlockLayout, x: BlockSide,
    y: BlockSide, z: BlockSide, slopes: BlockSlopes, slots: RowSlots, rate: Any, bound: float,
) -> None:  # fmt: skip
    """The step of each row of x, y and z, `LANES` rows at a time, with their gradients still in the nearest cache."""
    centre, context, centre_sum, context_sum = tables
    gradients, norms, stride, adagrad = slopes.gradients, slopes.gradient_norms, layout.stride, len(centre_sum) > 0
    curves, numbers, before = slots.centre_curves, slots.contexts, block.begin - block.start
    for i in range(0, block.end - block.begin, LANES):
        for r in range(0, min(LANES, block.x_count - i), GROUP):
            centre_gradients(i + r, r, block, layout, y, z, slopes)
        if adagrad:
            squared_norms(gradients, 0, stride, norms)
        for r in range(min(LANES, block.end - block.begin - i)):
            curve = curves[numbers[before + i + r]]
            step_row(centre, centre_sum, rows[block.begin + i + r], r, curve, gradients, norms, rate, bound, layout)
    curves = slots.context_curves
    contexts = block.stop - block.start
    for i in range(0, contexts, LANES):
        for r in range(0, min(LANES, contexts - i), GROUP):
            context_gradients(block.lead + i + r, r, block, layout, x, slopes)
        if adagrad:
            squared_norms(gradients, 0, stride, norms)
        for r in range(min(LANES, contexts - i)):
            curve = curves[numbers[i + r]]
            step_row(context, context_sum, rows[block.start + i + r], r, curve, gradients, norms, rate, bound, layout)
    numbers = slots.negatives
    for i in range(0, block.pool, LANES):
        for r in range(0, min(LANES, block.pool - i), GROUP):
            negative_gradients(i + r, r, block, layout, x, slopes)
        if adagrad:
            squared_norms(gradients, 0, stride, norms)
        for r in range(min(LANES, block.pool - i)):
            row = negatives[block.chosen + i + r]
            step_row(context, context_sum, row, r, curves[numbers[i + r]], gradients, norms, rate, bound, layout)
