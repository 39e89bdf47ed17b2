"""Is there an edge t -> x? A bit table that answers most of the time with one look into memory.

For a small graph the table is the adjacency matrix itself, a bit per pair, and every answer is final. For a
larger one it is a Bloom filter (Bloom, CACM 1970) whose bits for one pair lie in one 64-bit word (Putze, Sanders &
Singler, "Cache-, hash- and space-efficient Bloom filters", JEA 2010): "no" is final, "yes" has to be searched for
in the row. About 2% of the pairs without an edge get a "yes".

An undirected edge is entered once, for both of its directions.
"""

from itertools import pairwise
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from superworkflow.tasks.walk.kernels.adjacency import OPTIONS
from superworkflow.tasks.walk.kernels.edge_filter_size import table_bytes

_ONE = np.uint64(1)
_3, _6, _12, _32, _63 = np.uint64(3), np.uint64(6), np.uint64(12), np.uint64(32), np.uint64(63)
_FACTOR_1 = np.uint64(0x9E3779B97F4A7C15)
_FACTOR_2 = np.uint64(0xD6E8FEB86659FD93)


@nb.njit(inline="always")
def locate(t, x, vertices, words, directed, final):  # type: ignore[no-untyped-def]
    """(word, bits of the word) of a pair; vertices and words as uint64, t and x as int64."""
    a, b = np.uint64(t), np.uint64(x)
    return matrix_place(a, b, vertices, directed) if final else filter_place(a, b, words, directed)


@nb.njit(inline="always")
def matrix_place(a, b, vertices, directed):  # type: ignore[no-untyped-def]
    """`locate` in the adjacency matrix; all as uint64."""
    low, high = min(a, b), max(a, b)
    place = a * vertices + b if directed else (high * (high + _ONE) >> _ONE) + low
    return place >> _6, _ONE << (place & _63)


@nb.njit(inline="always")
def filter_place(a, b, words, directed):  # type: ignore[no-untyped-def]
    """`locate` in the Bloom filter; all as uint64."""
    low, high = min(a, b), max(a, b)
    z = ((a if directed else high) * _FACTOR_1 + (b if directed else low)) * _FACTOR_2
    z = (z ^ (z >> _32)) * _FACTOR_1
    bits = (_ONE << ((z >> _12) & _63)) | (_ONE << ((z >> _6) & _63)) | (_ONE << (z & _63))
    return ((z >> _32) * words) >> _32, bits


@nb.njit(**OPTIONS)
def _enter(indptr, indices, directed, final, table, first_word, last_word):  # type: ignore[no-untyped-def]
    vertices, words = np.uint64(len(indptr) - 1), np.uint64(len(table))
    for v in range(len(indptr) - 1):
        for j in range(indptr[v], indptr[v + 1]):
            x = np.int64(indices[j])
            if directed or x <= v:
                word, bits = locate(v, x, vertices, words, directed, final)
                if first_word <= word < last_word:
                    table[word] |= bits


def build_table(
    indptr: npt.NDArray[np.int64], indices: npt.NDArray[Any], directed: bool, pool: Any, parts: int
) -> tuple[npt.NDArray[np.uint64], bool]:
    """The table and whether all its answers are final. Each part of the work owns a range of words."""
    size, final = table_bytes(len(indptr) - 1, len(indices), directed)
    table = np.zeros(size // 8, np.uint64)
    cuts = np.linspace(0, len(table), parts + 1).astype(np.uint64)
    for done in [pool.submit(_enter, indptr, indices, directed, final, table, a, b) for a, b in pairwise(cuts)]:
        done.result()
    return table, final
