"""Kernels of the holdout stage: a random spanning forest, the edges to hide, pairs that no edge joins."""

from __future__ import annotations

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.edge_list.bipartite import SideVertices
from superworkflow.tasks.lib.graph.csr import Edges
from superworkflow.tasks.lib.kernels.permutation import half_bits_of, ordered_pair, permuted, unordered_pair

_U = np.uint64
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_CHUNK = 1 << 20  # candidate pairs tried at a time


@nb.njit(cache=True)
def edges_of(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], directed: bool, edges: Edges, arcs: NDArray[np.int64]
) -> int:
    """Write each edge once, packed and ascending, to `edges`, and the position of its arc to `arcs`, if that has room.

    Without direction the arc to the larger end counts.

    Returns:
        How many there are; if there are more than `edges` has room for, one more than that.
    """
    count = 0
    for u in range(len(indptr) - 1):
        for arc in range(indptr[u], indptr[u + 1]):
            if directed or indices[arc] > u:
                if count == len(edges):
                    return count + 1
                edges[count] = (_U(u) << _HALF) | _U(indices[arc])
                if len(arcs):
                    arcs[count] = arc
                count += 1
    return count


@nb.njit(cache=True)
def _root(parent: NDArray[np.int32], vertex: np.int64) -> np.int64:
    """Root of a vertex' tree; shortens the path to it in `parent`."""
    while parent[vertex] != vertex:
        parent[vertex] = parent[parent[vertex]]
        vertex = np.int64(parent[vertex])
    return vertex


@nb.njit(cache=True)
def spanning_forest(edges: Edges, vertices: int, key: np.uint64, in_forest: NDArray[np.bool_]) -> int:
    """Mark the edges of a random spanning forest in `in_forest`: Kruskal's algorithm on the edges in random order.

    Returns:
        The number of edges in the forest, which is vertices less connected components.
    """
    parent = np.arange(vertices).astype(np.int32)
    size, half_bits = _U(len(edges)), half_bits_of(_U(len(edges)))
    found = 0
    for turn in range(len(edges)):
        edge = np.int64(permuted(_U(turn), size, half_bits, key))
        one, two = _root(parent, np.int64(edges[edge] >> _HALF)), _root(parent, np.int64(edges[edge] & _LOW))
        if one != two:
            # The smaller id is the root: ids ascend by degree from the highest, so trees stay flat.
            parent[max(one, two)] = min(one, two)
            in_forest[edge] = True
            found += 1
            if found == vertices - 1:
                break
    return found


@nb.njit(cache=True)
def draw(taken: NDArray[np.bool_], count: int, key: np.uint64) -> NDArray[np.int64]:
    """The first `count` numbers in random order that are not taken."""
    size, half_bits = _U(len(taken)), half_bits_of(_U(len(taken)))
    drawn = np.empty(count, np.int64)
    found = 0
    for turn in range(len(taken)):
        if found == count:
            break
        number = np.int64(permuted(_U(turn), size, half_bits, key))
        if not taken[number]:
            drawn[found] = number
            found += 1
    return drawn[:found]


@nb.njit(cache=True, parallel=True)
def _non_edges_of(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    directed: bool,
    start: int,
    key: np.uint64,
    sides: SideVertices,
    pairs: NDArray[np.int64],
    good: NDArray[np.bool_],
) -> None:
    """Write candidates number `start`, `start` + 1, … in random order to `pairs`; `good`: no edge joins them."""
    vertices, (sources, targets) = np.int64(len(indptr) - 1), sides
    width = np.int64(len(targets))
    if width:
        size = _U(len(sources)) * _U(width)
    elif directed:
        size = _U(vertices) * _U(vertices - 1)
    else:
        size = _U(vertices) * _U(vertices - 1) // _U(2)
    half_bits = half_bits_of(size)
    for i in nb.prange(len(pairs)):
        number = np.int64(permuted(_U(start + i), size, half_bits, key))
        if width:
            u, v = np.int64(sources[number // width]), np.int64(targets[number % width])
            if not directed and u > v:
                u, v = v, u
        elif directed:
            u, v = ordered_pair(number, vertices)
        else:
            v, u = unordered_pair(number)
        row = indices[indptr[u] : indptr[u + 1]]
        position = np.searchsorted(row, v)
        good[i] = position == len(row) or row[position] != v
        pairs[i, 0], pairs[i, 1] = u, v


def candidate_pairs(vertices: int, directed: bool, sides: SideVertices | None) -> int:
    """Number of the pairs that an edge may join: of different vertices, in a bipartite graph of different sides."""
    if sides is not None:
        return len(sides[0]) * len(sides[1])
    return vertices * (vertices - 1) // (1 if directed else 2)


def non_edges(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    directed: bool,
    count: int,
    key: np.uint64,
    sides: SideVertices | None = None,
) -> NDArray[np.int64]:
    """Distinct uniform pairs of different vertices that no edge joins.

    Args:
        indptr, indices: the whole graph, rows ascending.
        directed: pairs have an order; if not, the smaller id comes first.
        count: how many; there must be that many.
        key: of the random order.
        sides: of a bipartite graph, the vertices that are sources, and targets: a pair has one of each.

    Returns:
        int64 [count, 2], in random order; a larger `count` only adds pairs at the end.
    """
    candidates = candidate_pairs(len(indptr) - 1, directed, sides)
    given = sides if sides is not None else (np.empty(0, np.int32), np.empty(0, np.int32))
    result = np.empty((count, 2), np.int64)
    filled = start = 0
    while filled < count:
        size = min(_CHUNK, candidates - start)
        pairs, good = np.empty((size, 2), np.int64), np.empty(size, np.bool_)
        _non_edges_of(indptr, indices, directed, start, key, given, pairs, good)
        chosen = pairs[good][: count - filled]
        result[filled : filled + len(chosen)] = chosen
        filled += len(chosen)
        start += size
    return result
