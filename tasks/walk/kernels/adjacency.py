"""The graph as the kernels read it: one 64-bit header per vertex, and searches in sorted rows.

A header packs ``first edge << degree_bits | degree``: locating a row takes one cache miss, where ``indptr`` may
take two. Rows hold their neighbours in ascending order.
"""

from typing import Any, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "boundscheck": False}
PADDING = 16  # readable entries after the last edge: searches compare a full cache line at a time
_ONE = np.uint64(1)


class WalkGraph(NamedTuple):
    """Adjacency in compressed sparse rows, as a walk kernel reads it.

    Args:
        nodes: uint64 [n + 1], the headers; for second-order walks on a weighted graph uint64 [2 * (n + 1)], with the
            sum of the vertex's weights, as float64, after each header.
        bits: uint64, bits of a header that hold the degree.
        indices: int32 or int64 [m + PADDING], neighbours, ascending in each row.
        weights: float32 [m]; empty for an unweighted graph, and for first-order walks.
        alias: alias tables of the rows (`alias_table`), empty for an unweighted graph.
        directed: an edge may lack its reverse.
    """

    nodes: npt.NDArray[np.uint64]
    bits: np.uint64
    indices: npt.NDArray[Any]
    weights: npt.NDArray[np.float32]
    alias: npt.NDArray[Any]
    directed: bool


def degree_bits(indptr: npt.NDArray[np.int64]) -> int:
    """Bits of a header for the degree; ValueError if degree and edge index do not fit 64 bits together."""
    largest = int(np.diff(indptr).max(initial=0))
    bits = max(1, largest.bit_length())
    if bits + int(indptr[-1]).bit_length() > 64:
        raise ValueError(f"{int(indptr[-1])} edges with a degree of {largest} do not fit a 64-bit header")
    return bits


def pack_headers(indptr: npt.NDArray[np.int64], bits: int) -> npt.NDArray[np.uint64]:
    """uint64[n + 1]: the header of each vertex, and one of degree 0 for the vertex n that ends walks."""
    headers = np.zeros(len(indptr), np.uint64)
    _pack(indptr, np.uint64(bits), headers)
    return headers


@nb.njit(**OPTIONS)
def _pack(indptr, bits, headers):  # type: ignore[no-untyped-def]
    for v in range(len(indptr) - 1):
        headers[v] = (np.uint64(indptr[v]) << bits) | np.uint64(indptr[v + 1] - indptr[v])


@nb.njit(inline="always")
def narrow(indices, base, length, vertex, stop):  # type: ignore[no-untyped-def]
    """Halve the row until at most ``stop`` entries are left that may hold the vertex; (base, length)."""
    while length > stop:
        half = length >> _ONE
        base = base + half if indices[base + half] <= vertex else base
        length -= half
    return base, length


@nb.njit(inline="always")
def find(indices, base, length, vertex):  # type: ignore[no-untyped-def]
    """Index of the edge to ``vertex`` in a row (uint64 base and length), or -1."""
    if length == 0:
        return np.int64(-1)
    base, length = narrow(indices, base, length, vertex, _ONE)
    return np.int64(base) if indices[base] == vertex else np.int64(-1)


@nb.njit(inline="always")
def holds(indices, base, length, vertex):  # type: ignore[no-untyped-def]
    """True if one of ``length <= PADDING`` entries from ``base`` is the vertex; no branch, one vector compare."""
    found = 0
    for i in range(PADDING):
        found |= (indices[base + np.uint64(i)] == vertex) & (np.uint64(i) < length)
    return found != 0
