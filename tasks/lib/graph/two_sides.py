"""The two sides of a graph all of whose edges join nodes of different sides, by its edges alone.

A graph of one kind of nodes has odd cycles: the chance that all of many independent cycles are even by accident is
that of as many coins.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

_LEAST_CYCLES = 16


def two_sides(indptr: NDArray[np.int64], indices: NDArray[Any]) -> NDArray[np.int8]:
    """Side of each node, 1 or 2, or 0 of a node without edges; empty if there are none, or too few cycles.

    In each component the side with more nodes is 1.

    Args:
        indptr: begins of the rows [nodes + 1].
        indices: the other end of each arc; an edge is in the rows of both its ends.
    """
    sides = np.zeros(len(indptr) - 1, np.int8)
    components = _colour(indptr, indices, sides)
    cycles = len(indices) // 2 - int(np.count_nonzero(sides)) + components
    return sides if components >= 0 and cycles >= _LEAST_CYCLES else np.empty(0, np.int8)


def nodes_by_side(sides: NDArray[np.int8]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Nodes of side 1 and of side 2, ascending."""
    return np.flatnonzero(sides == 1).astype(np.int32), np.flatnonzero(sides == 2).astype(np.int32)


@nb.njit(cache=True, nogil=True)
def _colour(indptr: NDArray[np.int64], indices: NDArray[Any], sides: NDArray[np.int8]) -> int:
    """Fill `sides`; the number of components with edges, -1 if an edge joins two nodes of one side."""
    queue = np.empty(len(sides), np.int64)
    components = 0
    for start in range(len(sides)):
        if sides[start] != 0 or indptr[start] == indptr[start + 1]:
            continue
        components += 1
        queue[0], sides[start] = start, 1
        read, filled, first = 0, 1, 1
        while read < filled:
            node = queue[read]
            read += 1
            for place in range(indptr[node], indptr[node + 1]):
                other = indices[place]
                if sides[other] == 0:
                    sides[other] = 3 - sides[node]
                    first += sides[other] == 1
                    queue[filled] = other
                    filled += 1
                elif sides[other] == sides[node]:
                    return -1
        if 2 * first < filled:
            for place in range(filled):
                sides[queue[place]] = 3 - sides[queue[place]]
    return components
