"""Link prediction by the node2vec protocol.

Grover, Leskovec: node2vec, KDD 2016, section 4.4: edges are held out, as many pairs without an edge are drawn, and the
vectors of the two ends, learnt without the held-out edges, become features of the pair by one of four operators
(table 1). Logistic regression trains on pairs of the remaining graph; the area under the ROC curve is taken on the
held-out ones. The score without training, cosine or dot product of the ends, is reported as well.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.graph.integrity import unfit
from superworkflow.tasks.lib.graph.sparse_rows import has_arcs
from superworkflow.tasks.lib.kernels.ordered_sums import row_dots
from superworkflow.tasks.lib.metrics.figures import area_under_curve
from superworkflow.tasks.lib.metrics.logistic_regression import decision_function, fit_one_vs_rest

Vectors = NDArray[np.float32]
Pairs = NDArray[np.int64]

OPERATORS: dict[str, Callable[[Vectors, Vectors], Vectors]] = {
    "average": lambda u, v: (u + v) * np.float32(0.5),
    "hadamard": lambda u, v: u * v,
    "weighted-l1": lambda u, v: np.abs(u - v),
    "weighted-l2": lambda u, v: np.square(u - v),
}
"""Binary operators of the paper's table 1, elementwise on the vectors of the two ends."""

_BLOCK = 1 << 16


def link_auc(vectors: Vectors, train: tuple[Pairs, Pairs], test: tuple[Pairs, Pairs], operator: str, C: float) -> float:
    """AUC on the test pairs with one operator.

    Args:
        vectors: `[n, d]`.
        train: positive and negative pairs, each `[m, 2]` of rows of `vectors`.
        test: the same, held out.
        operator: a key of `OPERATORS`.
        C: inverse strength of the penalty.
    """
    combine = OPERATORS[operator]
    pairs = np.concatenate(train)
    targets = np.arange(len(pairs)) < len(train[0])
    weights = fit_one_vs_rest(combine(vectors[pairs[:, 0]], vectors[pairs[:, 1]]), targets[:, None], C=C)
    scored = [
        _blockwise(part, lambda u, v: decision_function(combine(vectors[u], vectors[v]), weights)[:, 0])
        for part in test
    ]
    return area_under_curve(*scored)


def score_auc(vectors: Vectors, test: tuple[Pairs, Pairs], score: str) -> float:
    """AUC of the plain `cosine` or `dot` product of the two ends; a zero vector has cosine 0."""
    if score == "cosine":
        lengths = np.sqrt(row_dots(vectors, vectors)).astype(np.float32)[:, None]
        vectors = np.asarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny), np.float32)
    scored = [_blockwise(part, lambda u, v: row_dots(vectors[u], vectors[v])) for part in test]
    return area_under_curve(*scored)


def sample_pairs(pairs: Pairs, limit: int, seed: list[int]) -> Pairs:
    """At most `limit` of the pairs, drawn without replacement and kept in order."""
    if len(pairs) <= limit:
        return np.asarray(pairs, dtype=np.int64)
    chosen = np.random.default_rng(seed).choice(len(pairs), limit, replace=False)
    return np.asarray(pairs[np.sort(chosen)], dtype=np.int64)


def _blockwise(pairs: Pairs, score: Callable[[Pairs, Pairs], NDArray[np.floating]]) -> NDArray[np.float64]:
    result = np.empty(len(pairs))
    for first in range(0, len(pairs), _BLOCK):
        part = pairs[first : first + _BLOCK]
        result[first : first + _BLOCK] = score(part[:, 0], part[:, 1])
    return result


def unseen(pairs: NDArray[np.int64], nodes: pa.ChunkedArray, seen: Dataset) -> NDArray[np.int64]:
    """Those of the pairs that no edge of another graph joins; its vertices are matched by label.

    Args:
        pairs: `[m, 2]`, vertices of this graph.
        nodes: labels of this graph's vertices.
        seen: holdout dataset, whose graph is the other one.
    """
    ends, rows = np.unique(pairs, return_inverse=True)
    there = _vertices(pc.cast(nodes.take(pa.array(ends)).combine_chunks(), pa.large_string()), seen)
    indptr, indices = seen.array("indptr.npy"), seen.array("indices.npy")
    if len(there) and there.max() >= len(indptr) - 1:
        raise unfit(seen.uri, "more vertices than rows")
    other = there[rows.reshape(-1, 2)]
    shared = (other >= 0).all(axis=1)
    joined = np.zeros(len(pairs), dtype=bool)
    joined[shared] = has_arcs(indptr, indices, *other[shared].T)
    return pairs[~joined]


def _vertices(nodes: pa.Array, seen: Dataset) -> NDArray[np.int64]:
    """Ids of distinct nodes in the other graph, -1 for those that it does not have; takes memory for those only."""
    ids = np.full(len(nodes), -1, dtype=np.int64)
    first = 0
    with seen.parquet("vertices.parquet") as file:
        for batch in file.iter_batches(1 << 17, columns=["node"]):
            place = pc.index_in(batch["node"].cast(nodes.type), value_set=nodes)
            valid = np.flatnonzero(place.is_valid().to_numpy(zero_copy_only=False))
            ids[pc.drop_null(place).to_numpy()] = first + valid
            first += len(batch)
    return ids
