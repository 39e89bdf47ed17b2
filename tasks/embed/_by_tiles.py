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
add_tiles: Any = product_tiles.add_tiles
score_rows: Any = _steps.score_rows
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
    """Slopes w_ij (1 - s(c_i . o_j)) of `GROUP` centres from `i` on, in bands; gradient of c_i = sum_j slope o_j."""
    stride, band, half, words_row = layout.stride, layout.band, layout.stride // 2, layout.wide // 2
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
    set_tiles(
        (words, i * words_row, words_row, TILE), (y.pairs, corner // 2 * stride, stride),
        (x.gradients, i * stride, stride), layout.wide // _TERMS, stride // LANES,
    )  # fmt: skip


@njit(inline="always")
def score_negatives(
    i: int, block: BlockBounds, layout: BlockLayout, x: BlockSide, z: BlockSide, slopes: BlockSlopes,
    weights: ScoreWeights,
) -> None:  # fmt: skip
    """Slopes -(N / K) (sum_j w_ij) s(c_i . o_vm) of `GROUP` centres from `i`; gradient of c_i += sum_m slope o_vm."""
    stride, half, count = layout.stride, layout.stride // 2, block.z_count
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
    add_tiles(
        (words, i * count // 2, count // 2, TILE), (z.pairs, 0, stride), (x.gradients, i * stride, stride),
        count // _TERMS, stride // LANES,
    )  # fmt: skip


@njit(inline="always")
def gather_gradients(
    block: BlockBounds, layout: BlockLayout, x: BlockSide, y: BlockSide, z: BlockSide, slopes: BlockSlopes
) -> None:
    """Gradients of the contexts, sum_i slope_ij c_i over the band, and of the negatives, sum_i slope_im c_i."""
    stride, row, turned = layout.stride, layout.pairs_row, slopes.turned
    shift, x_count, tile = block.shift, block.x_count, TILE * TILE
    for c in range(block.lead, block.lead + block.stop - block.start, TILE):
        column = c - shift
        low = max(0, column - 2 * layout.window) // _TERMS
        high = (min(x_count, column + TILE) + _TERMS - 1) // _TERMS
        for n in range(low, high):
            turn_words(
                slopes.band_pairs, n * TILE * row + column, row, x_count // 2 - n * TILE, turned, (n - low) * tile
            )
        set_tiles(
            (turned, 0, TILE, tile), (x.pairs, low * TILE * stride, stride), (y.gradients, c * stride, stride),
            high - low, stride // LANES,
        )  # fmt: skip
    blocks = (x_count + _TERMS - 1) // _TERMS
    for m in range(0, block.pool, TILE):
        for n in range(blocks):
            turn_words(
                slopes.pool_pairs,
                n * TILE * block.z_count + m,
                block.z_count,
                x_count // 2 - n * TILE,
                turned,
                n * tile,
            )
        set_tiles(
            (turned, 0, TILE, tile), (x.pairs, 0, stride), (z.gradients, m * stride, stride), blocks, stride // LANES
        )
