"""Rows that the first layer reads: dense, or sparse where less than a tenth of their numbers is not 0."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.whole_graph.sparse_kernels import multiply_rows, multiply_transposed

SPARSE = 0.1
"""Share of numbers that are not 0 below which rows are sparse."""
_PIECE = 1 << 12


class SparseRows(NamedTuple):
    """Sparse rows.

    Args:
        starts: int64 [rows + 1], offsets in `columns` and `values`.
        columns, values: int32, float32, of all entries.
        width: number of columns.
    """

    starts: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: NDArray[np.float32]
    width: int

    def rows(self, first: int, last: int) -> SparseRows:
        """Rows from `first` up to `last`."""
        begin, end = self.starts[first], self.starts[last]
        starts = self.starts[first : last + 1] - begin
        return SparseRows(starts, self.columns[begin:end], self.values[begin:end], self.width)


Inputs = NDArray[Any] | SparseRows


def as_inputs(rows: NDArray[Any]) -> Inputs:
    """The same rows, sparse if most of their numbers are 0."""
    pieces = [rows[first : first + _PIECE] for first in range(0, len(rows), _PIECE)]
    counts = [np.count_nonzero(piece, axis=1) for piece in pieces]
    if sum(int(count.sum()) for count in counts) >= SPARSE * rows.size:
        return rows
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    done = 0
    for piece in pieces:
        places = np.nonzero(piece)
        columns[done : done + len(places[1])], values[done : done + len(places[1])] = places[1], piece[places]
        done += len(places[1])
    return SparseRows(starts, columns, values, rows.shape[1])


def product(values: Inputs, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows times the transpose of a matrix [width of the result, width of the rows]."""
    if not isinstance(values, SparseRows):
        made: NDArray[np.float32] = values @ matrix.T
        return made
    out = np.empty((len(values.starts) - 1, len(matrix)), np.float32)
    multiply_rows(values.starts, values.columns, values.values, np.ascontiguousarray(matrix.T), out)
    return out


def matrix_gradient(gradient: NDArray[np.float32], values: Inputs) -> NDArray[np.float32]:
    """Gradient of the matrix of `product` by that of its result."""
    if not isinstance(values, SparseRows):
        made: NDArray[np.float32] = gradient.T @ values
        return made
    out = np.empty((values.width, gradient.shape[1]), np.float32)
    multiply_transposed(values.starts, values.columns, values.values, np.ascontiguousarray(gradient), out)
    return np.ascontiguousarray(out.T)
