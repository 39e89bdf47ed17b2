"""Dense algebra of layers over an interval of vertices, as a function of arrays: Dorylus's AV and its gradient.

Graph servers and tensor workers execute it, with the same bits. It needs NumPy and compiled kernels alone, so that a
process with it is small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.model.dropout import RowDropout
from superworkflow.tasks.lib.gnn.whole_graph.gather_kernels import drop_rows
from superworkflow.tasks.lib.gnn.whole_graph.sparse_kernels import drop_entries, multiply_rows, multiply_transposed
from superworkflow.tasks.lib.kernels.float16 import as_read
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

Rows = NDArray[np.float32]
LayerWeights = Mapping[str, Rows]
"""Weights, or their gradients, by name within the layer."""
MATRIX, BIAS, OF_SENDERS, OF_RECEIVERS = "linear.weight", "bias", "of_senders", "of_receivers"
LINEAR_BIAS = "linear.bias"


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


class TensorFacts(TypedDict):
    """Facts of a call, JSON values.

    Args:
        layer: number of the layer.
        first: vertex of the first row.
        heads: of GAT, 0 for GCN.
        gathers: the result is gathered over neighbours afterwards; else the layer's bias is added to it.
        share, state: dropout of the rows that are read, see `RowDropout`.
        sparse: columns of the rows that are read, if they are sparse; else 0.
        back: gradients are made.
        inner: the gradient of the rows is one of them.
        elu: rows were activated by ELU, else by ReLU.
    """

    layer: int
    first: int
    heads: int
    gathers: bool
    share: int
    state: int
    sparse: int
    back: bool
    inner: bool
    elu: bool


def arrays_of(values: Inputs) -> list[NDArray[Any]]:
    """Rows as arrays of a call."""
    return [*values[:3]] if isinstance(values, SparseRows) else [values]


def compute(facts: TensorFacts, weights: LayerWeights, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Execute a task.

    Args:
        facts: see `TensorFacts`.
        weights: of the layer.
        arrays: the rows (`arrays_of`), and to make gradients, that of the products.

    Returns:
        Forwards the products, of GAT also scores of senders and of receivers [rows, heads]. Backwards the gradients of
        the matrix, of the bias where none is gathered, and, if `inner`, of the rows before their activation.
    """
    values: Inputs = arrays[0]
    if facts["sparse"]:
        values = SparseRows(arrays[0], arrays[1], arrays[2], facts["sparse"])
    dropout, first = RowDropout(facts["share"], facts["state"]), facts["first"]
    dropped = drop_inputs(values, first, dropout)
    if not facts["back"]:
        made = product(dropped, weights[MATRIX])
        if not facts["gathers"]:
            made = made + weights[LINEAR_BIAS]
        if not facts["heads"]:
            return [made]
        by_head = made.reshape(len(made), facts["heads"], -1)
        return [made, *((by_head * weights[name]).sum(-1) for name in (OF_SENDERS, OF_RECEIVERS))]
    gradient = arrays[-1]
    found = [matrix_gradient(gradient, dropped)]
    if not facts["gathers"]:
        found.append(gradient.sum(0))
    if facts["inner"]:
        assert not isinstance(values, SparseRows)
        change = drop_dense(gradient @ weights[MATRIX], first, dropout)
        found.append(change * np.where(values > 0, np.float32(1), values + 1 if facts["elu"] else np.float32(0)))
    return found


def drop_inputs(values: Inputs, first: int, dropout: RowDropout) -> Inputs:
    """Rows after dropout, a function of (state, vertex, column), whether they are sparse or not."""
    if not isinstance(values, SparseRows):
        return drop_dense(values, first, dropout)
    if not dropout.share:
        return values
    out = np.empty(len(values.values), np.float32)
    drop_entries(values.starts, values.columns, values.values, first, dropout.share, dropout.word, out)
    return values._replace(values=out)


def drop_dense(values: NDArray[Any], first: int, dropout: RowDropout) -> Rows:
    """Dense rows after dropout, or their gradients; a copy if something is dropped."""
    if not dropout.share:
        return np.asarray(values, np.float32)
    out, words = np.empty(values.shape, np.float32), np.empty((values.shape[1] + 3) >> 2, np.uint64)
    drop_rows(as_read(values), first, dropout.share, dropout.word, words, out)
    return out


def product(values: Inputs, matrix: Rows) -> Rows:
    """Rows times the transpose of a matrix [width of the result, width of the rows]."""
    if not isinstance(values, SparseRows):
        made: Rows = values @ matrix.T
        return made
    out = np.empty((len(values.starts) - 1, len(matrix)), np.float32)
    multiply_rows(values.starts, values.columns, values.values, np.ascontiguousarray(matrix.T), out)
    return out


def matrix_gradient(gradient: Rows, values: Inputs) -> Rows:
    """Gradient of the matrix of `product` by that of its result."""
    if not isinstance(values, SparseRows):
        made: Rows = gradient.T @ values
        return made
    out = np.empty((values.width, gradient.shape[1]), np.float32)
    multiply_transposed(values.starts, values.columns, values.values, np.ascontiguousarray(gradient), out)
    return np.ascontiguousarray(out.T)


def prepare(worker: Any, facts: TensorFacts) -> None:
    """Load what `compute` needs, by tasks of two rows."""
    load_kernels_fast()
    rows, heads = np.ones((2, 4), np.float32), max(1, facts["heads"])
    weights = {
        MATRIX: np.ones((heads, 4), np.float32), LINEAR_BIAS: np.ones(heads, np.float32),
        OF_SENDERS: np.ones((heads, 1), np.float32), OF_RECEIVERS: np.ones((heads, 1), np.float32),
    }  # fmt: skip
    sparse = SparseRows(np.arange(3), np.zeros(2, np.int32), np.ones(2, np.float32), 4)
    for values in (rows, sparse) if facts["sparse"] else (rows,):
        given: TensorFacts = {**facts, "sparse": 4 if values is sparse else 0, "inner": values is rows}
        for back in (False, True):
            given["back"] = back
            more = [np.ones((2, heads), np.float32)] if back else []
            compute(given, weights, [*arrays_of(values), *more])


def compute_call(
    facts: Mapping[str, Any], shared: Sequence[NDArray[Any]], arrays: Sequence[NDArray[Any]]
) -> list[NDArray[Any]]:  # fmt: skip
    """Execute a task as a tensor worker does.

    Args:
        facts: `TensorFacts`, and `weights`, names of all `shared` arrays, a list for each layer.
        shared: weights of all layers.
        arrays: see `compute`.
    """
    names = facts["weights"]
    skipped = sum(map(len, names[: facts["layer"]]))
    own = names[facts["layer"]]
    return compute(facts, dict(zip(own, shared[skipped : skipped + len(own)], strict=True)), arrays)  # type: ignore[arg-type]
