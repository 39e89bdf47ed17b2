"""Compiled draws from rows of some nodes of a graph: the draws of `kernels`, for whoever has a part.

Rows name neighbours by new numbers; draws hash old ones, so that they are the same for any division of the graph.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks._draw import draw_uniform
from superworkflow.tasks._gnn.kernels import share_of
from superworkflow.tasks._random import GAMMA, mix


@nb.njit(nogil=True, cache=True)
def count_owned(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    order: NDArray[Any],
    rows: NDArray[np.int64],
    size: int,
    labor: bool,
    state: np.uint64,
    starts: NDArray[np.int64],
) -> None:
    """Where the drawn edges of each receiver will begin.

    Args:
        indptr, indices: rows of the owned nodes.
        order: old number of each node of the senders' set.
        rows: of the receivers [r].
        size: fan-out, or `kernels.ALL`.
        labor: take a neighbour where its own random number says so.
        state: of the random stream of this hop and edge set.
        starts: [r + 1], filled.
    """
    starts[0] = 0
    for i in range(len(rows)):
        first, last = indptr[rows[i]], indptr[rows[i] + 1]
        degree = last - first
        if size < 0 or degree <= size:
            count = degree
        elif labor:
            count = 0
            share = size / degree
            for place in range(first, last):
                if share_of(order[indices[place]], state) < share:
                    count += 1
        else:
            count = np.int64(size)
        starts[i + 1] = starts[i] + count


@nb.njit(nogil=True, cache=True)
def draw_owned(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    order: NDArray[Any],
    begins: NDArray[np.int64],
    rows: NDArray[np.int64],
    receivers: NDArray[np.int64],
    size: int,
    labor: bool,
    state: np.uint64,
    starts: NDArray[np.int64],
    marks: NDArray[np.uint64],
    senders: NDArray[np.int64],
    positions: NDArray[np.int64],
) -> None:
    """Draw edges, ascending for each receiver.

    Args:
        indptr, indices, order, rows, size, labor, state: as `count_owned` was given.
        begins: where each owned row begins in the whole edge set.
        receivers: their old numbers [r].
        starts: as `count_owned` has filled them.
        marks: zeros [most degree / 64 + 1], left as zeros.
        senders: old numbers of the drawn neighbours [starts[r]], filled.
        positions: of the edges in the whole edge set [starts[r]], filled.
    """
    for i in range(len(rows)):
        first, last = indptr[rows[i]], indptr[rows[i] + 1]
        degree, at = last - first, starts[i]
        if size < 0 or degree <= size:
            for place in range(degree):
                positions[at + place] = place
        elif labor:
            share = size / degree
            for place in range(degree):
                if share_of(order[indices[first + place]], state) < share:
                    positions[at] = place
                    at += 1
        else:
            draw_uniform(positions, at, degree, size, mix(state + np.uint64(receivers[i] + 1) * GAMMA), marks)
        for j in range(starts[i], starts[i + 1]):
            senders[j] = order[indices[first + positions[j]]]
            positions[j] += begins[rows[i]]
