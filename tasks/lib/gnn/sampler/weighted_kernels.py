"""Compiled loops over edges with weights: draws in proportion to them, and sums of weighted rows; beside `kernels`."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.sampler.kernels import AHEAD, COLUMNS, Renumbered, ask_rows, moved_on
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.lib.subgraphs.draw import DrawScratch, draw_weighted


@nb.njit(nogil=True, cache=True)
def count_weighted(
    indptr: NDArray[np.int64],
    weights: NDArray[np.float32],
    rows: NDArray[np.int64],
    size: int,
    lost: NDArray[np.int64],
    starts: NDArray[np.int64],
    renumbered: Renumbered | None,
) -> None:
    """Offsets of each receiver's edges that `draw_by_weight` draws.

    Args:
        indptr: rows of the edge set.
        weights: of its edges, not negative; one of weight 0 is never drawn.
        rows: of the receivers [r].
        size: fan-out.
        lost: positions of edges that are not there, ascending.
        starts: [r + 1], filled.
        renumbered: see `kernels.Renumbered`; None where rows are of the whole graph.
    """
    starts[0] = 0
    for i in range(len(rows)):
        first, last = indptr[rows[i]], indptr[rows[i] + 1]
        moved = moved_on(renumbered, rows[i], first)
        gone, count = np.searchsorted(lost, first + moved), 0
        for place in range(first, last):
            if gone < len(lost) and lost[gone] == place + moved:
                gone += 1
            elif weights[place] > 0:
                count += 1
                if count == size:
                    break
        starts[i + 1] = starts[i] + count


@nb.njit(nogil=True, cache=True)
def draw_by_weight(
    indptr: NDArray[np.int64],
    weights: NDArray[np.float32],
    rows: NDArray[np.int64],
    receivers: NDArray[np.int64],
    size: int,
    state: np.uint64,
    lost: NDArray[np.int64],
    starts: NDArray[np.int64],
    renumbered: Renumbered | None,
    work: DrawScratch,
    left: NDArray[np.float32],
    positions: NDArray[np.int64],
) -> None:
    """Draw edges without replacement, each in proportion to its weight among those left; ascending for each receiver.

    Args:
        indptr, weights, rows, size, lost, renumbered: as `count_weighted` was given.
        receivers: the nodes [r], by old numbers.
        state: of the random stream of this hop and edge set.
        starts: as `count_weighted` has filled them.
        work: for `size` draws.
        left: scratch [most degree].
        positions: of the edges in their set, [starts[r]], filled.
    """
    for i in range(len(rows)):
        first, last = indptr[rows[i]], indptr[rows[i] + 1]
        begin = first + moved_on(renumbered, rows[i], first)
        own = mix(state + np.uint64(receivers[i] + 1) * GAMMA)
        degree = last - first
        for place in range(first, last):
            left[place - first] = weights[place]
        for gone in range(np.searchsorted(lost, begin), np.searchsorted(lost, begin + degree)):
            left[lost[gone] - begin] = np.float32(0)
        draw_weighted(positions, starts[i], 0, degree, degree, 0, size, left, own, work)
        for j in range(starts[i], starts[i + 1]):
            positions[j] += begin


@nb.njit(parallel=True, cache=True)
def sum_weighted(
    values: NDArray[np.float32], starts: NDArray[np.int64], senders: NDArray[Any], weights: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:  # fmt: skip
    """Sum the rows of each receiver's senders, each times its edge's weight.

    Args:
        values: of the senders [n, d].
        starts, senders, weights: [r + 1], [e], [e].
        out: of the receivers [r, d], filled.
    """
    width, flat = values.shape[1], values.reshape(-1)
    for i in nb.prange(len(starts) - 1):
        for c in range(width):
            out[i, c] = np.float32(0)
        for e in range(starts[i], starts[i + 1]):
            ask_rows(flat, width, senders, e + AHEAD, 1)
            sender, weight = senders[e], weights[e]
            for c in range(width):
                out[i, c] += weight * values[sender, c]


@nb.njit(parallel=True, cache=True)
def spread_weighted(
    values: NDArray[np.float32], starts: NDArray[np.int64], senders: NDArray[Any], weights: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:  # fmt: skip
    """The transpose of `sum_weighted`: values of the receivers [r, d], out of the senders [n, d], filled."""
    width = values.shape[1]
    for block in nb.prange((width + COLUMNS - 1) // COLUMNS):
        low, high = block * COLUMNS, min(width, (block + 1) * COLUMNS)
        for i in range(len(out)):
            for c in range(low, high):
                out[i, c] = np.float32(0)
        for i in range(len(starts) - 1):
            for e in range(starts[i], starts[i + 1]):
                sender, weight = senders[e], weights[e]
                for c in range(low, high):
                    out[sender, c] += weight * values[i, c]
