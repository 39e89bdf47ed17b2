"""Edges without a triangle: a second-order step knows them before it reads memory.

A walker that came to v by an edge t -> v of no triangle finds no neighbour of v at distance 1 from t, so that the
height of a dart alone decides. In a sparse graph that is most of the steps. The answer changes no walk.

Triangles are listed from their vertex of lowest degree (Chiba & Nishizeki, "Arboricity and subgraph listing
algorithms", SIAM J. Comput. 1985; Schank & Wagner, "Finding, counting and listing all triangles in large graphs",
WEA 2005): every edge is taken from its end of smaller degree to the other, so that no row is long.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from superworkflow.tasks.lib.kernels.prefetch import prefetch
from superworkflow.tasks.walk.kernels.adjacency import OPTIONS, find

SAMPLE = 2048
WORTH = 0.5
"""Share of the edges that has to lie in no triangle for the answer to be worth its making."""
LONGEST = 64
"""Entries of shortened rows to read for an edge, beyond which making it would take longer than it saves."""
_AHEAD = 8
_5, _31, _BIT = np.uint32(5), np.uint32(31), np.uint32(1)


def edges_of_no_triangle(
    indptr: npt.NDArray[np.int64], indices: npt.NDArray[Any], threads: int
) -> npt.NDArray[np.uint8] | None:
    """uint8[m]: 1 for each edge of an undirected graph whose ends have no common neighbour, 0 for others.

    An edge of a vertex that has an edge to itself counts as one in a triangle. None if too few of a sample are in
    none, if it would take too long, or for more than 2**32 vertices.

    Args:
        indptr: int64[n + 1], where rows begin.
        indices: neighbours, ascending in each row; may be longer than the m edges.
        threads: to use.
    """
    vertices, edges = len(indptr) - 1, int(indptr[-1])
    if edges == 0 or vertices > 2**32 or _sampled(indptr, indices, SAMPLE) < WORTH:
        return None
    cuts = np.searchsorted(indptr, np.linspace(0, edges, 8 * threads + 1)).clip(0, vertices)
    cuts[0], cuts[-1] = 0, vertices
    degrees = np.diff(indptr).astype(np.uint32)
    upward = np.zeros(vertices + 1, np.int64)
    with ThreadPoolExecutor(threads) as pool:

        def parallel(kernel: Any, *arguments: Any) -> list[Any]:
            pending: list[Future[Any]] = [pool.submit(kernel, *(*arguments, a, b)) for a, b in pairwise(cuts)]
            return [done.result() for done in pending]

        parallel(_count_upward, indptr, indices, degrees, upward)
        np.cumsum(upward, out=upward)
        heads = np.empty(int(upward[-1]), indices.dtype)
        reads = sum(parallel(_fill_upward, indptr, indices, degrees, upward, heads))
        if reads > LONGEST * edges:
            return None
        marked = np.zeros(len(heads), np.uint8)
        parallel(_list_triangles, upward, heads, marked)
        answer = np.ones(edges, np.uint8)
        parallel(_to_both_rows, indptr, indices, degrees, upward, heads, marked, answer)
        parallel(_mark_loops, indptr, indices, answer)
    return answer


def pack_bits(values: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """uint64[m // 64 + 1]: bit ``j % 64`` of word ``j // 64`` is value ``j``, 0 or 1."""
    packed = np.zeros(8 * (len(values) // 64 + 1), np.uint8)
    packed[: -(-len(values) // 8)] = np.packbits(values, bitorder="little")
    return packed.view(np.uint64)


@nb.njit(**OPTIONS)
def _sampled(indptr, indices, size):  # type: ignore[no-untyped-def]
    """Share of evenly spaced edges whose ends have no common neighbour."""
    edges = indptr[-1]
    clear = 0
    for i in range(size):
        j = edges * i // size
        t = np.searchsorted(indptr, j, side="right") - 1
        v = indices[j]
        a, a_end, b, b_end = indptr[t], indptr[t + 1], indptr[v], indptr[v + 1]
        while a < a_end and b < b_end and indices[a] != indices[b]:
            if indices[a] < indices[b]:
                a += 1
            else:
                b += 1
        clear += a == a_end or b == b_end
    return clear / size


@nb.njit(inline="always")
def _edge(indptr, indices, v, u):  # type: ignore[no-untyped-def]
    """Index of the edge v -> u, or -1."""
    return find(indices, np.uint64(indptr[v]), np.uint64(indptr[v + 1] - indptr[v]), u)


@nb.njit(inline="always")
def _is_upward(degrees, u, v):  # type: ignore[no-untyped-def]
    return (degrees[u] < degrees[v]) | ((degrees[u] == degrees[v]) & (u < v))


@nb.njit(**OPTIONS)
def _count_upward(indptr, indices, degrees, upward, first, last):  # type: ignore[no-untyped-def]
    """``upward[u + 1]``: neighbours of u with a greater degree, or the same and a greater number."""
    for u in range(first, last):
        count = 0
        for j in range(indptr[u], indptr[u + 1]):
            count += _is_upward(degrees, u, np.int64(indices[j]))
        upward[u + 1] = count


@nb.njit(**OPTIONS)
def _fill_upward(indptr, indices, degrees, upward, heads, first, last):  # type: ignore[no-untyped-def]
    """The neighbours upward, row after row, and how many entries of rows `_list_triangles` is going to read."""
    reads = 0
    for u in range(first, last):
        place = upward[u]
        for j in range(indptr[u], indptr[u + 1]):
            v = np.int64(indices[j])
            if _is_upward(degrees, u, v):
                heads[place] = v
                place += 1
                reads += upward[v + 1] - upward[v]
    return reads


@nb.njit(**OPTIONS)
def _list_triangles(upward, heads, marked, first, last):  # type: ignore[no-untyped-def]
    """Mark the upward edges of each triangle. Other threads write the same ones, and nobody reads them yet."""
    bits = np.zeros((len(upward) >> 5) + 1, np.uint32)  # the neighbours of u upward; small enough to stay in a cache
    for u in range(first, last):
        begin, end = upward[u], upward[u + 1]
        if end - begin < 2:
            continue
        for j in range(begin, end):
            v = np.uint32(heads[j])
            bits[v >> _5] |= _BIT << (v & _31)
            prefetch(upward, np.int64(v))
        for j in range(begin, min(begin + _AHEAD, end)):
            prefetch(heads, upward[heads[j]])
        for j in range(begin, end):
            if j + _AHEAD < end:
                prefetch(heads, upward[heads[j + _AHEAD]])
            v = heads[j]
            found = np.uint32(0)
            for k in range(upward[v], upward[v + 1]):
                x = np.uint32(heads[k])
                found |= bits[x >> _5] >> (x & _31)
            if found & _BIT:
                _mark(upward, heads, bits, marked, begin, end, j)
        for j in range(begin, end):
            bits[np.uint32(heads[j]) >> _5] = 0


@nb.njit(**OPTIONS)
def _mark(upward, heads, bits, marked, begin, end, j):  # type: ignore[no-untyped-def]
    """Mark the triangles of the edge ``j``, which is one of the row begin..end-1."""
    v = heads[j]
    i = begin
    for k in range(upward[v], upward[v + 1]):
        x = np.uint32(heads[k])
        if (bits[x >> _5] >> (x & _31)) & _BIT:
            while heads[i] != heads[k]:
                i += 1
            marked[j], marked[k], marked[i] = 1, 1, 1


@nb.njit(**OPTIONS)
def _to_both_rows(indptr, indices, degrees, upward, heads, marked, answer, first, last):  # type: ignore[no-untyped-def]
    """Carry the marks to the edges of both directions."""
    for u in range(first, last):
        place = upward[u]
        if place == upward[u + 1]:
            continue
        for j in range(indptr[u], indptr[u + 1]):
            v = np.int64(indices[j])
            if place < upward[u + 1] and v == heads[place]:
                if marked[place]:
                    answer[j] = 0
                    answer[_edge(indptr, indices, v, u)] = 0
                place += 1


@nb.njit(**OPTIONS)
def _mark_loops(indptr, indices, answer, first, last):  # type: ignore[no-untyped-def]
    """Vertices that have an edge to themselves: all of their edges, in both directions."""
    for u in range(first, last):
        if _edge(indptr, indices, u, u) >= 0:
            for j in range(indptr[u], indptr[u + 1]):
                answer[j] = 0
                answer[_edge(indptr, indices, np.int64(indices[j]), u)] = 0
