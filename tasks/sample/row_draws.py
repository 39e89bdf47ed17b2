"""Compiled draws of an op in one row, for samplers that have all rows and for those that have a part of them."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.random import mix
from superworkflow.tasks.lib.subgraphs.draw import draw_largest, draw_uniform, draw_weighted
from superworkflow.tasks.sample.program import LATEST_K, NO_VALUES, RANDOM_UNIFORM, TOP_K

_PATH = np.uint64(0xD1B54A32D192ED03)


@nb.njit(nogil=True)
def draw_row(
    positions: Any, paths: Any, filled: Any, row: Any, rule: Any, graph: Any, state: Any, draws: Any, work: Any
) -> Any:
    """Draw in one row. Slow reference: `PlainSampler.draws` in tests/tasks/sampling.py.

    Args:
        row: `Row` of `graph`; rule: `OpRule`; graph: `StackedRows`.
        state: of the random stream.
        draws: paths that lead to the row, where draws are by path; else 1.
        work: `DrawScratch`, large enough for the row.

    Writes:
        positions: places in the row, ascending, from `filled` on.
        paths: how often each was drawn, by path.

    Returns:
        How many places were drawn.
    """
    first, degree, gap, skip = row
    size, strategy, values, limit, by_path = rule
    count = degree
    if strategy == LATEST_K:
        count = draw_largest(
            positions, filled, first + values, degree, gap, skip, min(size, degree), graph.times, limit, work
        )
    elif degree <= size:
        for k in range(degree):
            positions[filled + k] = k
    elif strategy == TOP_K:
        count = draw_largest(positions, filled, first + values, degree, gap, skip, size, graph.ranks, limit, work)
    elif draws == 1:
        if strategy == RANDOM_UNIFORM or values == NO_VALUES:
            count = draw_uniform(positions, filled, degree, size, state, work.marks)
        else:
            count = draw_weighted(
                positions, filled, first + values, degree, gap, skip, size, graph.weights, state, work
            )
        if by_path:
            paths[filled : filled + count] = 1
    else:
        count = _draw_by_path(positions, paths, filled, row, rule, graph.weights, state, draws, work)
    if by_path and (degree <= size or strategy in (TOP_K, LATEST_K)):
        paths[filled : filled + count] = draws
    return count


@nb.njit(nogil=True)
def _draw_by_path(
    positions: Any, paths: Any, filled: Any, row: Any, rule: Any, weights: Any, state: Any, draws: Any, work: Any
) -> Any:
    """Draw in one row for each of `draws` paths, the k-th from ``mix(state ^ k * _PATH)``, the first from `state`.

    Arguments, outputs and result are as in `draw_row`.
    """
    first, degree, gap, skip = row
    size, strategy, values = rule.size, rule.strategy, rule.values
    drawn = np.empty(degree + size, np.int64)
    drawn[:degree] = 0
    for path in range(draws):
        own = state if path == 0 else mix(state ^ (np.uint64(path) * _PATH))
        if strategy == RANDOM_UNIFORM or values == NO_VALUES:
            count = draw_uniform(drawn, degree, degree, size, own, work.marks)
        else:
            count = draw_weighted(drawn, degree, first + values, degree, gap, skip, size, weights, own, work)
        for k in range(degree, degree + count):
            drawn[drawn[k]] += 1
    count = 0
    for place in range(degree):
        if drawn[place]:
            positions[filled + count], paths[filled + count] = place, drawn[place]
            count += 1
    return count
