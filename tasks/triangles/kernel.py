"""Triangles by intersecting rows of neighbours with lower numbers, which are those of higher degree.

A triangle is found once, at the vertex of its highest number (Ortmann and Brandes, "Triangle Listing Algorithms: Back
from the Diversion", ALENEX 2014): it marks its lower neighbours, and each of these looks for marks in its own row.
Rows are short, as hubs have low numbers, and marks lie close to each other for the same reason.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.atomic import fetch_add
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.kernels.prefetch import prefetch_list

load_kernels_fast()

BLOCK = 1 << 10
"""Vertices that a thread takes at a time."""
_AHEAD = 8
"""Neighbours by which their rows are prefetched; with 16 a tenth is lost."""


@nb.njit(nogil=True, cache=True)
def lower_rows(indptr: Any, indices: Any, starts: Any, lower: Any) -> Any:
    """Keep of each row the numbers below the row's own.

    Args:
        indptr: int64 [vertices + 1].
        indices: int32 [arcs], ascending in each row.
        starts: int64 [vertices + 1], becomes the begins of the new rows.
        lower: int32 [at least as many as there are], becomes the new rows.
    """
    end = 0
    for vertex in range(len(indptr) - 1):
        starts[vertex] = end
        for arc in range(indptr[vertex], indptr[vertex + 1]):
            if indices[arc] >= vertex:
                break
            lower[end] = indices[arc]
            end += 1
    starts[len(indptr) - 1] = end


@nb.njit(nogil=True, cache=True)
def count_triangles(starts: Any, lower: Any, claims: Any, marks: Any, counts: Any) -> None:
    """Add the triangles of the blocks of vertices that this thread claims.

    Args:
        starts: int64 [vertices + 1].
        lower: int32 [edges], ascending neighbours below the row's own number.
        claims: int64 [1], blocks that threads have claimed.
        marks: uint8 [vertices], zeros; this thread's own.
        counts: int64 [vertices], this thread's own, to which the triangles of each vertex are added.
    """
    vertices = len(starts) - 1
    blocks = (vertices + BLOCK - 1) // BLOCK
    while True:
        block = blocks - 1 - fetch_add(claims, 0, 1)  # long rows, which are at the end of the work, first
        if block < 0:
            break
        for vertex in range(block * BLOCK, min((block + 1) * BLOCK, vertices)):
            first, last = starts[vertex], starts[vertex + 1]
            if last - first < 2:
                continue
            for arc in range(first, last):
                marks[lower[arc]] = 1
            found = 0
            for arc in range(first + 1, last):
                other = lower[arc]
                if arc + 2 * _AHEAD < len(lower):
                    prefetch_list(starts, lower, np.int64(lower[arc + _AHEAD]), np.int64(lower[arc + 2 * _AHEAD]))
                closed = 0
                for further in range(starts[other], starts[other + 1]):
                    third = lower[further]
                    if marks[third]:
                        counts[third] += 1
                        closed += 1
                counts[other] += closed
                found += closed
            counts[vertex] += found
            for arc in range(first, last):
                marks[lower[arc]] = 0
