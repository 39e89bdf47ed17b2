"""First-order walks: the next vertex depends on the present one alone (p = q = 1).

A single walker waits for memory at each step. Here a batch of walkers advances in step, in phases: draw an
edge for every walker and prefetch it; then read every edge and prefetch the row it leads to. By the time a
phase reads, the lines have come, and dozens of misses are in flight at once.
"""

import numba as nb
import numpy as np

from tasks.walk._prefetch import prefetch
from tasks.walk._random import GAMMA, mix, start_position, walk_state
from tasks.walk._rows import OPTIONS
from tasks.walk._trial import alias_column, alias_edge, uniform_edge

BATCH = 256
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)


@nb.njit(inline="always")
def start_vertex(seed, walk, starts, n_starts):  # type: ignore[no-untyped-def]
    """Start of a walk: entry of ``starts``, or the vertex itself where ``starts`` is empty (all vertices)."""
    position = start_position(seed, walk // n_starts, walk % n_starts, n_starts)
    return np.int64(starts[position]) if len(starts) > 0 else np.int64(position)


@nb.njit(**OPTIONS)
def uniform_walks(headers, bits, indices, starts, n_starts, seed, first, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` [walks, walk_length] with the walks first, first + 1, ...; -1 after a sink.

    A neighbour is drawn by the high word of (32 random bits x degree): exact to 2**-32.
    """
    rows, length = out.shape
    sink = np.int64(len(headers) - 1)
    mask = (_ONE << bits) - _ONE
    vertex = np.empty(BATCH, np.int64)
    edge = np.empty(BATCH, np.int64)
    state = np.empty(BATCH, np.uint64)
    # Rows a multiple of 2 KiB apart share a few sets of the first-level cache: fewer of them at once.
    batch = 64 if length % 512 == 0 else BATCH
    for row in range(0, rows, batch):
        active = min(batch, rows - row)
        for k in range(active):
            walk = np.uint64(first + row + k)
            v = start_vertex(seed, walk, starts, n_starts)
            vertex[k] = v
            state[k] = walk_state(seed, walk)
            out[row + k, 0] = v
            prefetch(headers, v)
        for step in range(1, length):
            for k in range(active):
                header = headers[np.uint64(vertex[k])]
                degree = header & mask
                s = state[k] + GAMMA
                state[k] = s
                j = uniform_edge(mix(s), header >> bits, degree)
                edge[k] = j if degree > 0 else -1
                prefetch(indices, j)
            for k in range(active):
                j = edge[k]
                if j >= 0:
                    x = np.int64(indices[np.uint64(j)])
                    out[row + k, step] = x
                else:
                    x = sink
                    out[row + k, step] = -1
                vertex[k] = x
                prefetch(headers, x)


@nb.njit(**OPTIONS)
def weighted_walks(headers, bits, indices, alias, starts, n_starts, seed, first, out):  # type: ignore[no-untyped-def]
    """As `uniform_walks`, an edge drawn in proportion to its weight by the rows' alias tables.

    One 64-bit draw gives both the column (high word of draw x degree) and the height in it (the fraction).
    """
    rows, length = out.shape
    sink = np.int64(len(headers) - 1)
    mask = (_ONE << bits) - _ONE
    vertex = np.empty(BATCH, np.int64)
    edge = np.empty(BATCH, np.int64)
    base = np.empty(BATCH, np.uint64)
    height = np.empty(BATCH, np.uint64)
    state = np.empty(BATCH, np.uint64)
    batch = 64 if length % 512 == 0 else BATCH
    for row in range(0, rows, batch):
        active = min(batch, rows - row)
        for k in range(active):
            walk = np.uint64(first + row + k)
            v = start_vertex(seed, walk, starts, n_starts)
            vertex[k] = v
            state[k] = walk_state(seed, walk)
            out[row + k, 0] = v
            prefetch(headers, v)
        for step in range(1, length):
            for k in range(active):
                header = headers[np.uint64(vertex[k])]
                degree = header & mask
                s = state[k] + GAMMA
                state[k] = s
                product = alias_column(mix(s), degree)
                j = np.int64((header >> bits) + (product >> _32))
                base[k] = header >> bits
                height[k] = product & _LOW
                edge[k] = j if degree > 0 else -1
                prefetch(alias, j)
            for k in range(active):
                j = edge[k]
                if j >= 0:
                    j = alias_edge(alias[np.uint64(j)], height[k], j, base[k])
                    edge[k] = j
                    prefetch(indices, j)
            for k in range(active):
                j = edge[k]
                if j >= 0:
                    x = np.int64(indices[np.uint64(j)])
                    out[row + k, step] = x
                else:
                    x = sink
                    out[row + k, step] = -1
                vertex[k] = x
                prefetch(headers, x)
