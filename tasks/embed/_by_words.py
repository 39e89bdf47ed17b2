"""The products of a block of a walk by words of two factors: 8 centres, contexts or negatives at a time."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from superworkflow.tasks.embed import _steps
from superworkflow.tasks.embed.blocks import BlockBounds, BlockLayout, BlockSide, BlockSlopes, ScoreWeights
from superworkflow.tasks.lib.kernels import product_registers
from superworkflow.tasks.lib.kernels.product_registers import ROWS
from superworkflow.tasks.lib.kernels.vectors import LANES

njit: Any = numba.njit  # untyped: the annotations here are those of the compiled function
add_product: Any = product_registers.add_product
score_rows: Any = _steps.score_rows
set_product: Any = product_registers.set_product
SCORED = _steps.SCORED

GROUP = ROWS
"""Centres that are scored together."""


@njit(inline="always")
def score_pairs(
    i: int, block: BlockBounds, layout: BlockLayout, x: BlockSide, y: BlockSide, slopes: BlockSlopes,
    weights: ScoreWeights,
) -> None:  # fmt: skip
    """Slopes w_ij (1 - s(c_i . o_j)) of `GROUP` centres from `i` on, in bands."""
    band, half, diagonals = layout.band, layout.stride // 2, layout.band + 2 * ROWS
    scores, words, pairs = slopes.scores, slopes.band_words, slopes.band_pairs
    corner = i + block.shift  # row of `y`, column of the band
    set_product(
        (x.words, i * half, half, 1), (y.words, 0, layout.y_rows, corner), (scores, 0, band), half, 0, band // LANES
    )  # fmt: skip
    for r in range(0, ROWS, SCORED):
        score_rows(
            (scores, r * band, band), (weights.pairs, ROWS - r, -1), band,
            (weights.inside, x.norms, x.curves, i + r), np.float32(1), (y.norms, y.curves, corner),
            (words, (i + r) * band // 2, band // 2),
            (pairs, (i + r) // 2 * diagonals + ROWS - r, diagonals - 2),
        )  # fmt: skip


@njit(inline="always")
def score_negatives(
    i: int, block: BlockBounds, layout: BlockLayout, x: BlockSide, z: BlockSide, slopes: BlockSlopes,
    weights: ScoreWeights,
) -> None:  # fmt: skip
    """Slopes -(N / K) (sum_j w_ij) s(c_i . o_vm) of `GROUP` centres from `i`."""
    half, count = layout.stride // 2, block.z_count
    scores, words, pairs = slopes.scores, slopes.pool_words, slopes.pool_pairs
    set_product(
        (x.words, i * half, half, 1), (z.words, 0, layout.z_rows, 0), (scores, 0, count), half, 0, count // LANES
    )  # fmt: skip
    for r in range(0, ROWS, SCORED):
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
    stride, band, count, vectors = layout.stride, layout.band, block.z_count, layout.stride // LANES
    out = slopes.gradients, r * stride, stride
    set_product(
        (slopes.band_words, i * band // 2, band // 2, 1), (y.pairs, (i + block.shift) // 2, stride, 0), out,
        (layout.reach + 3) // 4 * 2, i % (2 * ROWS) // 2, vectors,
    )  # fmt: skip
    add_product(
        (slopes.pool_words, i * count // 2, count // 2, 1), (z.pairs, 0, stride, 0), out, block.pool // 2, 0, vectors
    )


@njit(inline="always")
def context_gradients(
    c: int, r: int, block: BlockBounds, layout: BlockLayout, x: BlockSide, slopes: BlockSlopes
) -> None:
    """Gradients of `GROUP` contexts from row `c` of y on, sum_i slope_ij c_i over the band, as rows from `r` on."""
    stride, vectors, diagonals = layout.stride, layout.stride // LANES, layout.band + 2 * ROWS
    low = max(0, c - block.shift - 2 * layout.window) // 4 * 2
    high = (min(block.x_count, c - block.shift + ROWS) + 3) // 4 * 2
    set_product(
        (slopes.band_pairs, low * (diagonals - 2) + c - block.shift + ROWS, 1, diagonals - 2),
        (x.pairs, low, stride, 0), (slopes.gradients, r * stride, stride), high - low, low % LANES, vectors,
    )  # fmt: skip


@njit(inline="always")
def negative_gradients(
    m: int, r: int, block: BlockBounds, layout: BlockLayout, x: BlockSide, slopes: BlockSlopes
) -> None:
    """Gradients of `GROUP` negatives from `m` on, sum_i slope_im c_i, as rows from `r` on."""
    stride, vectors = layout.stride, layout.stride // LANES
    set_product(
        (slopes.pool_pairs, m, 1, block.z_count), (x.pairs, 0, stride, 0), (slopes.gradients, r * stride, stride),
        block.x_count // 2, 0, vectors,
    )  # fmt: skip
