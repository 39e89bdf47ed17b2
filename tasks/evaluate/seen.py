"""Held-out edges that another run's embeddings have been trained on, which would be no question to them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.graph.integrity import unfit
from superworkflow.tasks.lib.graph.sparse_rows import has_arcs


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
