"""In-edges from out-edges."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def transposed(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], weights: NDArray[np.float32] | None
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Rows of in-edges: indptr, indices ascending in each row, and weights, or [0] without."""
    size = len(indptr) - 1
    data = np.ones(len(indices), np.int8) if weights is None else weights
    made = sp.csr_array((data, indices, indptr), shape=(size, size)).tocsc()
    return (made.indptr.astype(np.int64), made.indices.astype(np.int32),
            np.empty(0, np.float32) if weights is None else made.data)  # fmt: skip


def in_edges(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], directed: bool
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Rows of in-edges; [0] where each edge is in both rows already."""
    if not directed:
        return np.empty(0, np.int64), np.empty(0, np.int32)
    in_indptr, in_indices, _ = transposed(indptr, indices, None)
    return in_indptr, in_indices
