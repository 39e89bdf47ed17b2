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

from superworkflow.tasks.lib.kernels.borrow import borrow, hold
from superworkflow.tasks.lib.kernels.conversions import real_of
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
    nodes, bits, indices, weights, alias, directed = graph = borrow(graph)
    clear, bias, out = borrow((clear, bias, out))
    starts, n_starts, seed, first = walks
    rows, length = out.shape
    weighted = len(alias) > 0
    wide = 1 if weighted else 0
    totals = nodes.view(np.float64)
    sink = np.int64((len(nodes) >> wide) - 1)
    mask = (_ONE << bits) - _ONE
    marked = len(clear) > 0
    outlier, returning = dart_acceptance(bias.p, bias.q)
    looks_back = directed and outlier > 0.0

    begins = start_vertices(seed, first, n_starts, starts, rows)

    own_u, own_trying, own_work = np.zeros((FIELDS, BATCH), np.uint64), np.empty(BATCH, np.int64), workspace()
    u, trying, work = borrow((own_u, own_trying, own_work))
    s, f = u.view(np.int64), u.view(np.float64)

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

            _throw(active, mask, bits, weighted, outlier, bias.q, u, s, f)
            _prefetch_edges(active, alias, indices, clear, s)
            n_trying = 0
            for k in range(active):
                trying[n_trying] = k
                n_trying += s[DUE, k]
            if n_trying > 0:
                try_near(graph, bias.table, marked, bias.q, trying, n_trying, u, work)

            _see_hits(active, graph, clear, u, s, f)
            n_special = _choose(active, n_trying, trying, mask, returning, 1 if looks_back else 0, u, s, f)
            if n_special > 0:
                _resolve(active, graph, bias.p, bias.q, returning, sink, u, s, f)

            for k in range(active):
                s[PREVIOUS, k] = s[VERTEX, k]
                s[VERTEX, k] = s[FOUND, k]
            for k in range(active):
                prefetch(nodes, s[VERTEX, k] << wide)
            for k in range(active):
                x = s[VERTEX, k]
                out[row + k, step] = x if x < sink else -1
    hold((own_u, own_trying, own_work))


@nb.njit(inline="always")
def _throw(active, mask, bits, weighted, outlier, q, u, s, f):  # type: ignore[no-untyped-def]
    """A dart for each walker: column uniform in width = degree + degree x (share of the return's weight) x outlier.

    `DUE` is set where there are tries before it, P(any) = a / (a + width) with a = (q - 1) degree.
    """
    more = q - 1.0
    for k in range(active):
        z = u[STATE, k]
        degree = np.int64(u[NODE, k] & mask)
        edges = real_of(degree)
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


@nb.njit(inline="always")
def _prefetch_edges(active, alias, indices, clear, s):  # type: ignore[no-untyped-def]
    weighted, marked = len(alias) > 0, len(clear) > 0
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


@nb.njit(inline="always")
def _see_hits(active, graph, clear, u, s, f):  # type: ignore[no-untyped-def]
    """Vertex and weight of the edge that each dart hit, and whether it lies in no triangle; unchanged by an outlier."""
    _, _, indices, _, alias, _ = graph
    reals = alias.view(np.float32)
    weighted, marked = len(alias) > 0, len(clear) > 0
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


@nb.njit(inline="always")
def _choose(active, n_trying, trying, mask, returning, looks, u, s, f):  # type: ignore[no-untyped-def]
    """Next vertex: the neighbour of t that a try has found, else the dart's, t for the outlier; how many are special.

    `SPECIAL` is set at sinks, for a return on the board above min(q / p, 1), and, with ``looks``, for an outlier.
    """
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
    return n_special


@nb.njit(inline="always")
def _resolve(active, graph, p, q, returning, sink, u, s, f):  # type: ignore[no-untyped-def]
    """Next vertex of the special ones: the sink's mark, t if there is an edge back, or that of another trial."""
    _, bits, indices, weights, alias, _ = graph
    weighted = len(alias) > 0
    mask = (_ONE << bits) - _ONE
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


@nb.njit(inline="always")
def _way_back(indices, weights, row, degree, t):  # type: ignore[no-untyped-def]
    """Weight of the edge back to t, or 0."""
    j = find(indices, row, degree, t)
    return np.float64(weights[np.uint64(j)]) if j >= 0 else 0.0
