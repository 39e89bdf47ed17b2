"""Coreness by peeling: the vertices of lowest degree go first, level after level.

Each vertex goes when the neighbours that are left are as few as the level (Batagelj and Zaversnik, "An O(m) Algorithm
for Cores Decomposition of Networks", 2003). Those of a level are found by a look at all that are left, as in PKC
(Kabir and Madduri, "Parallel k-core Decomposition on Multicore Platforms", 2017), which needs no buckets: a vertex is
looked at once a level up to its coreness, so that all looks together are fewer than the arcs.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.kernels.prefetch import AHEAD, prefetch_list

load_kernels_fast()


@nb.njit(nogil=True, cache=True)
def peel(indptr: Any, indices: Any, in_indptr: Any, in_indices: Any, core: Any, left: Any, queue: Any) -> None:
    """Find the coreness of each vertex.

    Args:
        indptr, in_indptr: int64 [vertices + 1]; of in-edges [0] where each edge is in the rows of both ends.
        indices, in_indices: int32 [arcs].
        core: int32 [vertices], the degrees; becomes the result.
        left: int32 [vertices], memory.
        queue: int32 [vertices + 1], memory.
    """
    count, level, vertices = len(core), 0, len(core)
    for vertex in range(vertices):
        left[vertex] = vertex
    while count:
        kept, end, least = 0, 0, vertices + len(indices) + len(in_indices)
        for place in range(count):
            vertex = left[place]
            if core[vertex] > level:
                left[kept] = vertex
                kept += 1
                least = min(least, core[vertex])
            elif core[vertex] == level:  # those below have gone before
                queue[end] = vertex
                end += 1
        count, place = kept, 0
        if end == 0:
            level = least
            continue
        while place < end:
            vertex = queue[place]
            place += 1
            for side in range(2 if len(in_indptr) else 1):
                starts, ends = (indptr, indices) if side == 0 else (in_indptr, in_indices)
                if place + 2 * AHEAD < end:
                    prefetch_list(starts, ends, np.int64(queue[place + AHEAD]), np.int64(queue[place + 2 * AHEAD]))
                for arc in range(starts[vertex], starts[vertex + 1]):
                    other = ends[arc]
                    degree = core[other]
                    core[other] = degree - (degree > level)
                    queue[end] = other  # stays if it has come down to this level
                    end += degree == level + 1
        level += 1
