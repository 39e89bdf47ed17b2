"""Steps of the rows of a block, each bounded by the curvature that all duplicates of its row in the block add up to."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from superworkflow.tasks.embed import _steps
from superworkflow.tasks.embed.blocks import BlockBounds, BlockLayout, BlockSide, Floats, Integers, RowSlots

njit: Any = numba.njit  # untyped: the annotations here are those of the compiled function
add_row: Any = _steps.add_row


@njit(inline="always")
def _number(rows: Integers, first: int, count: int, slots: RowSlots, out: Integers, used: int) -> int:
    """Number the distinct rows of a block, by open addressing; returns how many there are so far."""
    keys, values, places = slots.keys, slots.values, slots.places
    mask = len(keys) - 1
    for i in range(count):
        row = rows[first + i]
        place = ((row * 0x9E3779B1) >> 7) & mask
        while keys[place] != row and keys[place] != -1:
            place = (place + 1) & mask
        if keys[place] == -1:
            keys[place], values[place], places[used] = row, used, place
            used += 1
        out[i] = values[place]
    return used


@njit(inline="always")
def add_up_curves(
    block: BlockBounds, rows: Integers, negatives: Integers, x: BlockSide, y: BlockSide, z: BlockSide, slots: RowSlots
) -> None:
    """Curvature h of each distinct row, summed over its duplicates in the block."""
    contexts, chosen, centre_curves, context_curves = slots[3:]
    count = block.stop - block.start
    used = _number(rows, block.start, count, slots, contexts, 0)
    used = _number(negatives, block.chosen, block.pool, slots, chosen, used)
    for n in range(used):
        slots.keys[slots.places[n]] = -1
    centre_curves[:used] = 0
    context_curves[:used] = 0
    for i in range(block.end - block.begin):
        centre_curves[contexts[block.begin - block.start + i]] += x.curves[i]
    for i in range(count):
        context_curves[contexts[i]] += y.curves[block.lead + i]
    for m in range(block.pool):
        context_curves[chosen[m]] += z.curves[m]


@njit(nogil=True, cache=True)
def _step(rate: Any, bound: float, curvature: Any, adagrad: bool, squares: Any) -> np.float32:
    """Step size of a row's gradient; `squares` is AdaGrad's sum for the row."""
    scale = np.float32(rate)
    if adagrad:
        scale = np.float32(rate / np.sqrt(squares + np.float32(1e-10)))
    return np.float32(scale / (np.float32(1) + np.float32(bound) * scale * curvature))


@njit(inline="always")
def step_row(
    table: Any, sums: Any, row: Any, i: int, curve: Any, gradients: Floats, norms: Floats, rate: Any, bound: float,
    layout: BlockLayout,
) -> None:  # fmt: skip
    """row += lr / (1 + b lr h) gradient, with row `i` of `gradients` and its squared norm in `norms`."""
    d = layout.dimensions
    squares = np.float32(0)
    adagrad = len(sums) > 0
    if adagrad:
        squares = np.float32(sums[row] + norms[i] / d)
        sums[row] = squares
    add_row(table, row * d, d, _step(rate, bound, curve, adagrad, squares), gradients, i * layout.stride)
