"""Connected components by union-find, each named after its smallest vertex.

A parent is never larger than its child, so that a root is the smallest vertex of its tree; trees are joined by Rem's
algorithm, which walks up both at once (Patwary, Blair and Manne, "Experiments on Union-Find Algorithms for the
Disjoint-Set Data Structure", 2010). Most graphs are nearly one component after two edges of each vertex; the rest of
its rows is then not read where the other end has each edge too (Sutton, Ben-Nun and Barak, "Optimizing Parallel Graph
Connectivity Computation via Subgraph Sampling", 2018).
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()
_FIRST, _SAMPLES = 2, 1024


@nb.njit(nogil=True)
def _join(parent: Any, one: Any, other: Any) -> None:
    while parent[one] != parent[other]:
        if parent[one] < parent[other]:
            one, other = other, one
        above = parent[one]
        parent[one] = parent[other]
        if above == one:
            return
        one = above


@nb.njit(nogil=True)
def _flatten(parent: Any) -> None:
    """Make each vertex a child of its root: those before it already are."""
    for vertex in range(len(parent)):
        parent[vertex] = parent[parent[vertex]]


@nb.njit(nogil=True)
def _frequent(parent: Any) -> Any:
    """The root of most vertices of a sample."""
    step = max(1, len(parent) // _SAMPLES)
    roots = np.sort(parent[::step])
    best, longest, begin = roots[0], 0, 0
    for place in range(1, len(roots) + 1):
        if place == len(roots) or roots[place] != roots[begin]:
            if place - begin > longest:
                best, longest = roots[begin], place - begin
            begin = place
    return best


@nb.njit(nogil=True, cache=True)
def unite(indptr: Any, indices: Any, directed: bool, parent: Any) -> int:
    """Find the component of each vertex.

    Args:
        indptr: int64 [vertices + 1].
        indices: int32 [arcs].
        directed: each edge is in the row of one end alone.
        parent: int32 [vertices], each its own number; becomes the smallest vertex of its component.

    Returns:
        How many arcs were read.
    """
    vertices, read = len(parent), 0
    if not vertices:
        return read
    for nth in range(_FIRST):
        for vertex in range(vertices):
            arc = indptr[vertex] + nth
            if arc < indptr[vertex + 1]:
                read += 1
                _join(parent, np.int32(vertex), indices[arc])
        _flatten(parent)
    largest = _frequent(parent)
    for vertex in range(vertices):
        if directed or parent[vertex] != largest:
            for arc in range(indptr[vertex] + _FIRST, indptr[vertex + 1]):
                read += 1
                _join(parent, np.int32(vertex), indices[arc])
    _flatten(parent)
    return read
