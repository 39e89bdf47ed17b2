"""Rows that the first layer reads: dense, or sparse where less than a tenth of their numbers is not 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.tensor_tasks import Inputs, SparseRows

SPARSE = 0.1
"""Share of numbers that are not 0 below which rows are sparse."""
_PIECE = 1 << 12
AddUp = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Sums of integers over all graph servers."""


def as_inputs(rows: NDArray[Any], add_up: AddUp = lambda own: own) -> Inputs:
    """The same rows, sparse if most of their numbers are 0.

    Args:
        rows: all rows, or those of a server.
        add_up: of the servers, which decide alike.
    """
    pieces = [rows[first : first + _PIECE] for first in range(0, len(rows), _PIECE)]
    counts = [np.count_nonzero(piece, axis=1) for piece in pieces]
    filled, size = add_up(np.array([sum(int(count.sum()) for count in counts), rows.size])).tolist()
    if filled >= SPARSE * size:
        return rows
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    done = 0
    for piece in pieces:
        places = np.nonzero(piece)
        columns[done : done + len(places[1])], values[done : done + len(places[1])] = places[1], piece[places]
        done += len(places[1])
    return SparseRows(starts, columns, values, rows.shape[1])
