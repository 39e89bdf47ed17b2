"""Second-order walks for q > 1 on large graphs (node2vec; Grover & Leskovec, KDD 2016): they tend to stay near t.

From v, reached from t, the next vertex x has probability proportional to ``w(v, x) * bias``, where bias is 1/p
for x = t, 1 where the edge t -> x exists, and 1/q elsewhere. So every edge of v has 1/q for certain; the return has an
extra 1/p - 1/q as a target of its own (the outlier of Yang et al., "KnightKing", SOSP 2019), and a neighbour of t has
1 - 1/q more.

A trial has one dart for what is certain, which is nearly always taken (a return only in part where p > q), and before
it a geometric number of tries for the rest: an edge of v in proportion to w, taken if it leads to a neighbour of t.
Along an edge t -> v of no triangle (`triangles`) no try can succeed, and the dart alone is the step: in a sparse
graph that is most of them, and they cost what first-order steps cost. Where many tries are due a try that is drawn
from all of the row replaces the rest of them, and after ``FREE_TRIALS`` rejected darts the step is, so no p and q can
make a walk hang, and the distribution is always the same.

A batch of walkers advances in step, in phases, as in `first_order`. The tries of all walkers that have any go
through phases of their own while the darts' lines are on their way.
"""

from typing import Any

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.prefetch import prefetch
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.walk.kernels.adjacency import OPTIONS, WalkGraph, find
from superworkflow.tasks.walk.kernels.alias_table import CLEAR_BIT, WIDE
from superworkflow.tasks.walk.kernels.common_neighbours import (
    ALONE,
    BATCH,
    CHANCE,
    CHOSEN,
    CHOSEN_WEIGHT,
    COIN,
    DUE,
    EDGE,
    FIELDS,
    FOUND,
    FOUND_WEIGHT,
    HEIGHT,
    MARKS,
    NODE,
    PREVIOUS,
    SIDE,
    SPECIAL,
    STATE,
    TOTAL,
    VERTEX,
    WEIGHT,
    WIDTH,
    try_again,
    try_near,
    workspace,
)  # fmt: skip
from superworkflow.tasks.walk.kernels.second_order import (
    FRACTION,
    TRIAL_WORDS,
    WalkBias,
    dart_acceptance,
    extra_width,
    fraction_of,
    throw,
)
from superworkflow.tasks.walk.kernels.starts import WalkRange, start_vertices, walk_state

_ZERO = np.uint64(0)
_LOW = np.uint64(0xFFFFFFFF)
_ONE, _2, _6, _63 = np.uint64(1), np.uint64(2), np.uint64(6), np.uint64(63)
_CLEAR_BIT = np.int64(CLEAR_BIT)
_VERTEX = np.int64((1 << 31) - 1)


@nb.njit(**OPTIONS)
def inward_walks(graph: WalkGraph, clear: Any, bias: WalkBias, walks: WalkRange, out: Any) -> None:
    """Make second-order walks by tries and a dart.

    Their distribution is that of `transition` in tests/tasks/test_walk_distribution.py.

    Args:
        clear: uint64 [m / 64], a bit for each edge, set if it is known to lie in no triangle; or empty. A weighted
            graph has these bits in its alias tables.

    Writes:
        out: as in `dart_walks`.
    """
    nodes, bits, indices, weights, alias, directed = graph
    p, q, _, _ = bias
    starts, n_starts, seed, first = walks
    rows, length = out.shape
    weighted = len(alias) > 0
    wide = 1 if weighted else 0
    totals, reals = nodes.view(np.float64), alias.view(np.float32)
    sink = np.int64((len(nodes) >> wide) - 1)
    mask = (_ONE << bits) - _ONE
    marked = len(clear) > 0
    outlier, returning = dart_acceptance(p, q)
    more = q - 1.0
    looks_back = directed and outlier > 0.0
    looks = 1 if looks_back else 0

    begins = start_vertices(seed, first, n_starts, starts, rows)

    u = np.zeros((FIELDS, BATCH), np.uint64)
    s, f = u.view(np.int64), u.view(np.float64)
    trying = np.empty(BATCH, np.int64)
    work = workspace()

    # Rows a multiple of 2 KiB apart share a few sets of the first-level cache: fewer of them at once.
    batch = 64 if length % 512 == 0 else BATCH
    for row in range(0, rows, batch):
        active = min(batch, rows - row)
        for k in range(active):
            v = begins[row + k]
            s[VERTEX, k], s[PREVIOUS, k], s[ALONE, k], f[WEIGHT, k], f[TOTAL, k] = v, -1, 0, 0.0, 1.0
            u[STATE, k] = walk_state(seed, np.uint64(first + row + k))
            out[row + k, 0] = v
            prefetch(nodes, v << wide)
        for step in range(1, length):
            for k in range(active):
                u[NODE, k] = nodes[np.uint64(s[VERTEX, k] << wide)]
            if weighted:
                for k in range(active):
                    f[TOTAL, k] = totals[np.uint64((s[VERTEX, k] << wide) + 1)]
            if looks_back and weighted:
                for k in range(active):
                    f[WEIGHT, k] = _way_back(indices, weights, u[NODE, k] >> bits, u[NODE, k] & mask, s[PREVIOUS, k])

            # A dart for each walker, and whether it has tries before.
            for k in range(active):
                z = u[STATE, k]
                degree = np.int64(u[NODE, k] & mask)
                edges = np.float64(degree)
                came = np.int64(s[PREVIOUS, k] >= 0) & np.int64(degree > 0)
                extra = extra_width(edges, f[WEIGHT, k] / f[TOTAL, k], outlier) if weighted else outlier
                width = edges + extra if came else edges
                f[WIDTH, k] = width
                column, height = throw(mix(z + GAMMA), width * FRACTION)
                inside = np.int64(column < degree)
                f[HEIGHT, k] = height
                s[SIDE, k] = inside ^ 1
                s[EDGE, k] = np.int64(u[NODE, k] >> bits) + (column & -inside)
                if weighted:
                    u[COIN, k] = mix(z + _2 * GAMMA) & _LOW
                chance = fraction_of(mix(z + TRIAL_WORDS))
                f[CHANCE, k] = chance
                s[DUE, k] = np.int64(chance * (more * edges + width) < more * edges) & came & (s[ALONE, k] ^ 1)
                u[STATE, k] = z + TRIAL_WORDS
            if weighted:
                for k in range(active):
                    prefetch(alias, s[EDGE, k] * WIDE)
                    prefetch(alias, s[EDGE, k] * WIDE + (WIDE - 1))
            else:
                for k in range(active):
                    prefetch(indices, s[EDGE, k])
                if marked:
                    for k in range(active):
                        prefetch(clear, s[EDGE, k] >> 6)
            n_trying = 0
            for k in range(active):
                trying[n_trying] = k
                n_trying += s[DUE, k]
            if n_trying > 0:
                try_near(graph, bias.table, marked, q, trying, n_trying, u, work)

            # See what the darts hit.
            if weighted:
                for k in range(active):
                    entry = np.uint64(s[EDGE, k] * WIDE)
                    entry += _2 if u[COIN, k] >= np.uint64(alias[entry]) else _ZERO
                    u[FOUND, k] = np.uint64(alias[entry + _ONE])
                    f[FOUND_WEIGHT, k] = np.float64(reals[entry + _2])
                for k in range(active):
                    found, inside = s[FOUND, k], s[SIDE, k] - 1
                    old = s[WEIGHT, k]
                    s[WEIGHT, k] = old ^ ((old ^ s[FOUND_WEIGHT, k]) & inside)
                    old = s[ALONE, k]
                    s[ALONE, k] = old ^ ((old ^ (found >> _CLEAR_BIT)) & inside)
                    s[FOUND, k] = found & _VERTEX
            else:
                for k in range(active):
                    s[FOUND, k] = np.int64(indices[np.uint64(s[EDGE, k])])
                if marked:
                    for k in range(active):
                        u[MARKS, k] = clear[u[EDGE, k] >> _6]
                    for k in range(active):
                        mark = np.int64((u[MARKS, k] >> (u[EDGE, k] & _63)) & _ONE)
                        old = s[ALONE, k]
                        s[ALONE, k] = old ^ ((old ^ mark) & (s[SIDE, k] - 1))
            n_special = 0
            for k in range(active):
                t, side = s[PREVIOUS, k], s[SIDE, k]
                x = s[FOUND, k]
                refused = (side ^ 1) & np.int64(x == t) & np.int64(f[HEIGHT, k] >= returning)
                special = refused | (side & looks) | np.int64((u[NODE, k] & mask) == _ZERO)
                s[SPECIAL, k] = special
                n_special += special
                s[FOUND, k] = x ^ ((x ^ t) & -side)
            for i in range(n_trying):
                k = trying[i]
                dart = s[CHOSEN, k] >> 63  # all ones if no try has found one
                n_special -= s[SPECIAL, k] & ~dart
                s[SPECIAL, k] &= dart
                s[ALONE, k] &= dart
                chosen, weight = s[CHOSEN, k], s[CHOSEN_WEIGHT, k]
                s[FOUND, k] = chosen ^ ((chosen ^ s[FOUND, k]) & dart)
                s[WEIGHT, k] = weight ^ ((weight ^ s[WEIGHT, k]) & dart)
            if n_special > 0:
                for k in range(active):
                    if s[SPECIAL, k] == 0:
                        continue
                    h, t = u[NODE, k], s[PREVIOUS, k]
                    if (h & mask) == _ZERO:
                        s[FOUND, k] = sink
                        continue
                    if s[SIDE, k] == 1 and (weighted or find(indices, h >> bits, h & mask, t) >= 0):
                        continue
                    j, u[STATE, k] = try_again(graph, p, q, returning, u[STATE, k], h, t, f[WIDTH, k])
                    s[FOUND, k] = t
                    if j >= 0:
                        s[FOUND, k], s[ALONE, k] = np.int64(indices[np.uint64(j)]), 0
                        if weighted:
                            f[WEIGHT, k] = np.float64(weights[np.uint64(j)])

            for k in range(active):
                s[PREVIOUS, k] = s[VERTEX, k]
                s[VERTEX, k] = s[FOUND, k]
            for k in range(active):
                prefetch(nodes, s[VERTEX, k] << wide)
            for k in range(active):
                x = s[VERTEX, k]
                out[row + k, step] = x if x < sink else -1


@nb.njit(inline="always")
def _way_back(indices, weights, row, degree, t):  # type: ignore[no-untyped-def]
    """Weight of the edge back to t, or 0."""
    j = find(indices, row, degree, t)
    return np.float64(weights[np.uint64(j)]) if j >= 0 else 0.0
