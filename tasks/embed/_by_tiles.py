"""The products of a block of a walk by tiles: 16 centres, contexts or negatives at a time, the sums of `_by_words`.

Two groups of 8 centres stand together. The band of the second one begins 8 columns later; outside its band a row of
`band_words` is zeros. Rows of `band_pairs` have a column for every context of the block, from the farthest of the first
centre on, and zeros outside the band.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from superworkflow.tasks.embed import _steps
from superworkflow.tasks.embed.blocks import BlockBounds, BlockLayout, BlockSide, BlockSlopes, ScoreWeights
from superworkflow.tasks.lib.kernels import product_tiles
from superworkflow.tasks.lib.kernels.product_registers import ROWS
from superworkflow.tasks.lib.kernels.products import TILE
from superworkflow.tasks.lib.kernels.vectors import LANES

njit: Any = numba.njit  # untyped: the annotations here are those of the compiled function
score_rows: Any = _steps.score_rows
set_sum_of_tiles: Any = product_tiles.set_sum_of_tiles
set_tiles: Any = product_tiles.set_tiles
turn_words: Any = product_tiles.turn_words
SCORED = _steps.SCORED
_TERMS = 2 * TILE
"""Terms of a block, a tile of factors."""

GROUP = TILE
"""Centres that are scored together."""


@njit(inline="always")
def score_pairs(
    i: int, block: BlockBounds, layout: BlockLayout, x: BlockSide, y: BlockSide, slopes: BlockSlopes,
    weights: ScoreWeights,
) -> None:  # fmt: skip
    """Slopes w_ij (1 - s(c_i . o_j)) of `GROUP` centres from `i` on, in bands."""
    band, half, words_row = layout.band, layout.stride // 2, layout.wide // 2
    scores, words, pairs = slopes.scores, slopes.band_words, slopes.band_pairs
    corner, row, width = i + block.shift, layout.pairs_row, band + TILE
    set_tiles(
        (x.words, i * half, half, TILE), (y.words, corner, layout.y_rows), (scores, 0, width), half // TILE,
        width // LANES,
    )  # fmt: skip
    for r in range(0, TILE, SCORED):
        group = r // ROWS * ROWS
        score_rows(
            (scores, r * width + group, width), (weights.pairs, ROWS + group - r, -1), band,
            (weights.inside, x.norms, x.curves, i + r), np.float32(1), (y.norms, y.curves, corner + group),
            (words, (i + r) * words_row + group // 2, words_row), (pairs, (i + r) // 2 * row + i + group, row),
        )  # fmt: skip


@njit(inline="always")
def score_negatives(
    i: int, block: BlockBounds, layout: BlockLayout, x: BlockSide, z: BlockSide, slopes: BlockSlopes,
    weights: ScoreWeights,
) -> None:  # fmt: skip
    """Slopes -(N / K) (sum_j w_ij) s(c_i . o_vm) of `GROUP` centres from `i`."""
    half, count = layout.stride // 2, block.z_count
    scores, words, pairs = slopes.scores, slopes.pool_words, slopes.pool_pairs
    set_tiles(
        (x.words, i * half, half, TILE), (z.words, 0, layout.z_rows), (scores, 0, count), half // TILE, count // LANES
    )  # fmt: skip
    for r in range(0, TILE, SCORED):
        score_rows(
            (scores, r * count, count), (weights.ones, 0, 0), count, (weights.negative, x.norms, x.curves, i + r),
            np.float32(0), (z.norms, z.curves, 0), (words, (i + r) * count // 2, count // 2),
            (pairs, (i + r) // 2 * count, count),
        )  # fmt: skip


@njit(inline="always")
def centre_gradients(
    i: int, r: int, block: BlockBounds, layout: BlockLayout, y: BlockSide, z: BlockSide, slopes: BlockSlopes
) -> None:
    """Gradients of `GROUP` centres from `i` on, sum_j slope_ij o_j + sum_m slope_im o_vm, as rows from `r` on."""
    stride, words_row, half_pool = layout.stride, layout.wide // 2, block.z_count // 2
    set_sum_of_tiles(
        (slopes.band_words, i * words_row, words_row, TILE), (y.pairs, (i + block.shift) // 2 * stride, stride),
        layout.wide // _TERMS, (slopes.pool_words, i * half_pool, half_pool, TILE), (z.pairs, 0, stride),
        block.z_count // _TERMS, (slopes.gradients, r * stride, stride), stride // LANES,
    )  # fmt: skip


@njit(inline="always")
def context_gradients(
    c: int, r: int, block: BlockBounds, layout: BlockLayout, x: BlockSide, slopes: BlockSlopes
) -> None:
    """Gradients of `GROUP` contexts from row `c` of y on, sum_i slope_ij c_i over the band, as rows from `r` on."""
    stride, row, turned, x_count, tile = layout.stride, layout.pairs_row, slopes.turned, block.x_count, TILE * TILE
    column = c - block.shift
    low = max(0, column - 2 * layout.window) // _TERMS
    high = (min(x_count, column + TILE) + _TERMS - 1) // _TERMS
    for n in range(low, high):
        turn_words(slopes.band_pairs, n * TILE * row + column, row, x_count // 2 - n * TILE, turned, (n - low) * tile)
    set_tiles(
        (turned, 0, TILE, tile), (x.pairs, low * TILE * stride, stride), (slopes.gradients, r * stride, stride),
        high - low, stride // LANES,
    )  # fmt: skip


@njit(inline="always")
def negative_gradients(
    m: int, r: int, block: BlockBounds, layout: BlockLayout, x: BlockSide, slopes: BlockSlopes
) -> None:
    """Gradients of `GROUP` negatives from `m` on, sum_i slope_im c_i, as rows from `r` on."""
    stride, turned, count, tile = layout.stride, slopes.turned, block.z_count, TILE * TILE
    blocks = (block.x_count + _TERMS - 1) // _TERMS
    for n in range(blocks):
        turn_words(slopes.pool_pairs, n * TILE * count + m, count, block.x_count // 2 - n * TILE, turned, n * tile)
    set_tiles(
        (turned, 0, TILE, tile), (x.pairs, 0, stride), (slopes.gradients, r * stride, stride), blocks, stride // LANES
    )
