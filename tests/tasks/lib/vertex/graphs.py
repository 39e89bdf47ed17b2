"""Small graphs whose vertices are coloured."""

import numpy as np
import scipy.sparse as sp

from superworkflow.tasks.lib.vertex.colours import by_colour, conflict, greedy
from superworkflow.tasks.lib.vertex.run import Coloured
from superworkflow.tasks.lib.vertex.transpose import transposed

NONE = np.empty(0, np.int64), np.empty(0, np.int32)


def coloured(matrix: sp.csr_array, distance: int, directed: bool = False, weighted: bool = False) -> Coloured:
    indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    size = matrix.shape[0]
    colours, count = np.zeros(size, np.int32), 1
    if distance:
        colours[:] = -1
        into = transposed(indptr, indices, None)[:2] if directed else NONE
        count = greedy(indptr, indices, *into, distance, colours)
        assert conflict(indptr, indices, *into, distance, colours) == -1
    order, bounds = np.empty(size, np.int32), np.zeros(count + 1, np.int64)
    by_colour(colours, count, order, bounds)
    weights = matrix.data.astype(np.float32) if weighted else None
    return Coloured(indptr, indices, weights, order, bounds, directed)


def graph_of(edges: list[tuple[int, int]], size: int) -> sp.csr_array:
    pairs = {(u % size, v % size) for u, v in edges if u % size != v % size}
    both = sorted(pairs | {(v, u) for u, v in pairs})
    rows, columns = (np.array([pair[end] for pair in both], np.int64) for end in (0, 1))
    return sp.csr_array((np.ones(len(both)), (rows, columns)), shape=(size, size))
