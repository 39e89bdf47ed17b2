"""Dense algebra of layers over an interval of vertices, as a function of arrays: Dorylus's AV and its gradient.

Graph servers and tensor workers execute it, with the same bits. It needs NumPy and compiled kernels alone, so that a
process with it is small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.model.dropout import RowDropout
from superworkflow.tasks.lib.gnn.whole_graph.activation_kernels import activate, back_through
from superworkflow.tasks.lib.gnn.whole_graph.gather_kernels import drop_rows
from superworkflow.tasks.lib.gnn.whole_graph.short_products import short_gradient, short_product
from superworkflow.tasks.lib.gnn.whole_graph.sparse_kernels import drop_entries, multiply_rows, multiply_transposed
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.float16 import as_read
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

Rows = NDArray[np.float32]
LayerWeights = Mapping[str, Rows]
"""Weights, or their gradients, by name within the layer."""
MATRIX, BIAS, OF_SENDERS, OF_RECEIVERS = "linear.weight", "bias", "of_senders", "of_receivers"
LINEAR_BIAS = "linear.bias"
_BLOCK = 512
"""Rows that are dropped and multiplied at a time."""


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
        heads: of GAT, 0 for GCN.
        gathers: the result is gathered over neighbours afterwards; else the gradient of the layer's bias is made.
        share, state: dropout of the rows that are read, see `RowDropout`.
        sparse: columns of the rows that are read, if they are sparse; else 0.
        back: gradients are made.
        inner: the gradient of the rows is one of them.
        elu: rows were activated by ELU, else by ReLU.
        short: factors of products of dense rows are rounded to bfloat16.
        then: facts of the task that follows at once on what this one made, if there is one; see `compute_call`.
    """

    layer: int
    heads: int
    gathers: bool
    share: int
    state: int
    sparse: int
    back: bool
    inner: bool
    elu: bool
    short: bool
    then: TensorFacts | None


def arrays_of(values: Inputs) -> list[NDArray[Any]]:
    """Rows as arrays of a call."""
    return [*values[:3]] if isinstance(values, SparseRows) else [values]


def compute(facts: TensorFacts, weights: LayerWeights, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Execute a task.

    Args:
        facts: see `TensorFacts`.
        weights: of the layer.
        arrays: vertices of the rows, int32, empty where nothing is dropped; the rows (`arrays_of`); and to make
            gradients, that of the products.

    Returns:
        Forwards the products, of GAT also scores of senders and of receivers [rows, heads]. Backwards the gradients of
        the matrix, of the bias where none is gathered, and, if `inner`, of the rows before their activation.
    """
    values: Inputs = arrays[1]
    if facts["sparse"]:
        values = SparseRows(arrays[1], arrays[2], arrays[3], facts["sparse"])
    dropout, vertices, short = RowDropout(facts["share"], facts["state"]), read_only(arrays[0]), facts["short"]
    if not facts["back"]:
        made = dropped_product(values, vertices, dropout, weights[MATRIX], short)
        if not facts["heads"]:
            return [made]
        return [made, *(made @ by_head(weights[name]) for name in (OF_SENDERS, OF_RECEIVERS))]
    gradient = arrays[-1]
    found = [matrix_gradient(gradient, values, vertices, dropout, short)]
    if not facts["gathers"]:
        found.append(gradient.sum(0))
    if facts["inner"]:
        assert not isinstance(values, SparseRows)
        matrix, words = weights[MATRIX], _words(values)
        change = short_product(gradient, matrix) if short else gradient @ matrix
        back_through(change, read_only(values), facts["elu"], vertices, dropout.share, dropout.word, words)
        found.append(change)
    return found


def by_head(vectors: Rows) -> Rows:
    """A matrix [heads x d, heads] with a vector of each head [heads, d] in its own rows and column."""
    heads, width = vectors.shape
    found = np.zeros((heads, width, heads), np.float32)
    found[range(heads), :, range(heads)] = vectors
    return found.reshape(heads * width, heads)


def drop_sparse(values: SparseRows, vertices: NDArray[np.int32], dropout: RowDropout) -> SparseRows:
    """Sparse rows after the dropout that dense ones have."""
    if not dropout.share:
        return values
    out = np.empty(len(values.values), np.float32)
    drop_entries(values.starts, values.columns, values.values, vertices, dropout.share, dropout.word, out)
    return values._replace(values=out)


def drop_dense(values: NDArray[Any], vertices: NDArray[np.int32], dropout: RowDropout) -> Rows:
    """Dense rows after dropout; a copy if something is dropped."""
    if not dropout.share:
        return np.asarray(values, np.float32)
    out = np.empty(values.shape, np.float32)
    drop_rows(as_read(values), vertices, dropout.share, dropout.word, _words(values), out)
    return out


def _words(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Room for the random words of a row."""
    return np.empty((values.shape[1] + 3) >> 2, np.uint64)


def _blocks(values: NDArray[Any]) -> Iterator[slice]:
    """Parts of rows that are still in a cache when they are multiplied after dropout."""
    return (slice(begin, begin + _BLOCK) for begin in range(0, len(values), _BLOCK))


def dropped_product(
    values: Inputs, vertices: NDArray[np.int32], dropout: RowDropout, matrix: Rows, short: bool = False
) -> Rows:
    """Rows after dropout times the transpose of a matrix [width of the result, width of the rows]; see `TensorFacts`
    for `short`."""
    if not isinstance(values, SparseRows):
        if short:
            return short_product(values, matrix.T, vertices, dropout.share, dropout.word)
        made, turned = np.empty((len(values), len(matrix)), np.float32), np.ascontiguousarray(matrix.T)
        for own in _blocks(values):
            np.matmul(drop_dense(values[own], vertices[own], dropout), turned, out=made[own])
        return made
    values = drop_sparse(values, vertices, dropout)
    out = np.empty((len(values.starts) - 1, len(matrix)), np.float32)
    multiply_rows(values.starts, values.columns, values.values, np.ascontiguousarray(matrix.T), out)
    return out


def matrix_gradient(
    gradient: Rows, values: Inputs, vertices: NDArray[np.int32], dropout: RowDropout, short: bool = False
) -> Rows:
    """Gradient of the matrix of `dropped_product` by that of its result."""
    if not isinstance(values, SparseRows):
        if short:
            return short_gradient(gradient, values, vertices, dropout.share, dropout.word)
        made = np.zeros((gradient.shape[1], values.shape[1]), np.float32)
        for own in _blocks(values):
            made += gradient[own].T @ drop_dense(values[own], vertices[own], dropout)
        return made
    values = drop_sparse(values, vertices, dropout)
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
        given: TensorFacts = {**facts, "then": None, "sparse": 4 if values is sparse else 0, "inner": values is rows}
        for back in (False, True):
            given["back"] = back
            more = [np.ones((2, heads), np.float32)] if back else []
            compute(given, weights, [np.arange(2, dtype=np.int32), *arrays_of(values), *more])


def compute_call(
    facts: Mapping[str, Any], shared: Sequence[NDArray[Any]], arrays: Sequence[NDArray[Any]]
) -> list[NDArray[Any]]:  # fmt: skip
    """Execute a task as a tensor worker does, and the one that follows it without a gather between them.

    Args:
        facts: `TensorFacts`, and `weights`, names of all `shared` arrays, a list for each layer.
        shared: weights of all layers.
        arrays: see `compute`; backwards, then the rows that the task that follows reads.

    Returns:
        As `compute`. If another follows, forwards the rows that it read and what it returned; backwards the gradient
        of the matrix, and what it returned.
    """
    names, given = facts["weights"], iter(shared)
    layers = [{name: next(given) for name in each} for each in names]
    own, then = layers[facts["layer"]], facts["then"]
    if then is None:
        return compute(facts, own, arrays)  # type: ignore[arg-type]
    further = layers[then["layer"]]
    if facts["back"]:
        matrix, change = compute(facts, own, arrays[:3])  # type: ignore[arg-type]
        return [matrix, *compute(then, further, [arrays[0], *arrays[3:], change])]
    (made,) = compute(facts, own, arrays)  # type: ignore[arg-type]
    activate(made, read_only(own[LINEAR_BIAS]), facts["elu"])
    return [made, *compute(then, further, [arrays[0], made])]
