"""Rows that the first layer reads: dense, or sparse where less than a tenth of their numbers is not 0.

Dense rows whose products have factors of bfloat16 are rounded once, and kept. Others that are in another order than the
file's are copied, up to `COPIED_INPUTS` bytes; of more those of an interval are copied when a task reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.tensor_tasks import SparseRows
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.bfloat16 import round_rows
from superworkflow.tasks.lib.kernels.huge_pages import release
from superworkflow.tasks.train_full.params import COPIED_INPUTS

SPARSE = 0.1
"""Share of numbers that are not 0 below which rows are sparse."""
_PIECE, _HELD_PIECES = 1 << 12, 8
AddUp = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Sums of integers over all graph servers."""


@dataclass(frozen=True)
class ListedRows:
    """Rows of a mapped file, by their numbers; NumPy reads them as an array.

    Args:
        values: all rows of the file [n, width].
        numbers: of the rows [r].
    """

    values: NDArray[Any]
    numbers: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, own: slice) -> ListedRows:
        return ListedRows(self.values, self.numbers[own])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.values[self.numbers], dtype)


DenseRows = NDArray[Any] | ListedRows
FirstInputs = DenseRows | SparseRows


def as_inputs(rows: DenseRows, short: bool, add_up: AddUp = lambda own: own) -> FirstInputs:
    """The same rows, sparse if most of their numbers are 0.

    Args:
        rows: all rows, or those of a server.
        short: factors of products of dense rows are rounded to bfloat16; the result is their bits then, int16.
        add_up: of the servers, which decide alike.
    """
    counts = [np.count_nonzero(piece, axis=1) for piece in _pieces(rows)]
    width = (rows.values if isinstance(rows, ListedRows) else rows).shape[1]
    size = len(rows) * width
    filled, of_all = add_up(np.array([sum(int(count.sum()) for count in counts), size])).tolist()
    if filled >= SPARSE * of_all:
        return _rounded(rows, width) if short else np.asarray(rows) if 4 * size <= COPIED_INPUTS else rows
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    done = 0
    for piece in _pieces(rows):
        places = np.nonzero(piece)
        columns[done : done + len(places[1])], values[done : done + len(places[1])] = places[1], piece[places]
        done += len(places[1])
    return SparseRows(starts, columns, values, width)


def _rounded(rows: DenseRows, width: int) -> NDArray[np.int16]:
    """Bits of bfloat16."""
    found, done = np.empty((len(rows), width), np.int16), 0
    for piece in _pieces(rows):
        round_rows(read_only(piece.astype(np.float32, copy=False)), found[done : done + len(piece)], 0)
        done += len(piece)
    return found


def _pieces(rows: DenseRows) -> Iterator[NDArray[Any]]:
    """Rows of the file, some at a time; no more than some pieces of it stay in memory."""
    for number, first in enumerate(range(0, len(rows), _PIECE), 1):
        yield np.asarray(rows[first : first + _PIECE])
        if number % _HELD_PIECES == 0:
            release(rows.values if isinstance(rows, ListedRows) else rows)
