"""First-order walks: the next vertex depends on the present one alone (p = q = 1).

A single walker waits for memory at each step. Here a batch of walkers advances in step, in phases: random
numbers for all, which touches no graph and compiles to vectors; draw an edge for every walker and prefetch it;
then read every edge and prefetch the row it leads to. By the time a phase reads, the lines have come, and
dozens of misses are in flight at once.
"""

from typing import Any

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.prefetch import prefetch
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.walk.kernels.adjacency import OPTIONS, WalkGraph
from superworkflow.tasks.walk.kernels.second_order import alias_column, alias_edge, uniform_edge
from superworkflow.tasks.walk.kernels.starts import WalkRange, start_vertices, walk_state

BATCH = 256
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)


@nb.njit(**OPTIONS)
def _begin(headers, starts, n_starts, seed, first, vertex, state, out):  # type: ignore[no-untyped-def]
    """Starts and random states of the walks first, first + 1, ..., one for each row of ``out``."""
    begins = start_vertices(seed, first, n_starts, starts, len(out))
    for k, v in enumerate(begins):
        vertex[k] = v
        state[k] = walk_state(seed, np.uint64(first + k))
        out[k, 0] = v
        prefetch(headers, v)


@nb.njit(**OPTIONS)
def _draw(state, draw, active):  # type: ignore[no-untyped-def]
    """The next 64 random bits of every walker."""
    for k in range(active):
        s = state[k] + GAMMA
        state[k] = s
        draw[k] = mix(s)


@nb.njit(**OPTIONS)
def uniform_walks(graph: WalkGraph, walks: WalkRange, out: Any) -> None:
    """Make first-order walks of an unweighted graph: P(x | v) = 1 / degree(v) for each edge v -> x.

    A neighbour is drawn by the high word of (32 random bits x degree): exact to 2**-32.

    Writes:
        out: int32 or int64 [walks, walk_length], the walks first, first + 1, ...; -1 after a sink.
    """
    headers, bits, indices, _, _, _ = graph
    starts, n_starts, seed, first = walks
    rows, length = out.shape
    sink = np.int64(len(headers) - 1)
    mask = (_ONE << bits) - _ONE
    vertex = np.empty(BATCH, np.int64)
    edge = np.empty(BATCH, np.int64)
    state, draw = np.empty(BATCH, np.uint64), np.empty(BATCH, np.uint64)
    # Rows a multiple of 2 KiB apart share a few sets of the first-level cache: fewer of them at once.
    batch = 64 if length % 512 == 0 else BATCH
    for row in range(0, rows, batch):
        active = min(batch, rows - row)
        _begin(headers, starts, n_starts, seed, first + row, vertex, state, out[row : row + active])
        for step in range(1, length):
            _draw(state, draw, active)
            for k in range(active):
                header = headers[np.uint64(vertex[k])]
                degree = header & mask
                j = uniform_edge(draw[k], header >> bits, degree)
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
def weighted_walks(graph: WalkGraph, walks: WalkRange, out: Any) -> None:
    """Make first-order walks of a weighted graph: P(x | v) = w(v, x) / sum_y w(v, y), by the rows' alias tables.

    One 64-bit draw gives both the column (high word of draw x degree) and the height in it (the fraction).

    Writes:
        out: as in `uniform_walks`.
    """
    headers, bits, indices, _, alias, _ = graph
    starts, n_starts, seed, first = walks
    rows, length = out.shape
    sink = np.int64(len(headers) - 1)
    mask = (_ONE << bits) - _ONE
    vertex = np.empty(BATCH, np.int64)
    edge = np.empty(BATCH, np.int64)
    base = np.empty(BATCH, np.uint64)
    height = np.empty(BATCH, np.uint64)
    state, draw = np.empty(BATCH, np.uint64), np.empty(BATCH, np.uint64)
    batch = 64 if length % 512 == 0 else BATCH
    for row in range(0, rows, batch):
        active = min(batch, rows - row)
        _begin(headers, starts, n_starts, seed, first + row, vertex, state, out[row : row + active])
        for step in range(1, length):
            _draw(state, draw, active)
            for k in range(active):
                header = headers[np.uint64(vertex[k])]
                degree = header & mask
                product = alias_column(draw[k], degree)
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
