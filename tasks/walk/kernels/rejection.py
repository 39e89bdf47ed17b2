"""Second-order walks (node2vec; Grover & Leskovec, KDD 2016) by rejection, without second-order tables.

From v, reached from t, the next vertex x has probability proportional to ``w(v, x) * bias``, where bias is 1/p
for x = t, 1 where the edge t -> x exists (x is at distance 1 from t), and 1/q elsewhere.

A trial throws a dart: an edge v -> x in proportion to w, and a height under the largest bias of the edges that do
not return, M = max(1, 1/q). It is accepted under the bias of x. Most heights decide without looking at the
neighbours of t: under min(1, 1/q) every x is taken, and above it only the existence of t -> x decides, for which one
look into a bit table (`edge_filter`) is mostly enough.
The part of the return's bias above M is a target of its own next to the board (the outlier of Yang et al.,
"KnightKing", SOSP 2019), hence a small p does not lower the acceptance. After ``FREE_TRIALS + degree / 4`` trials the
step is drawn from the exact distribution of the row, so no p and q can make a walk hang; both ways have
the same distribution, and so has the mixture.

Walkers stand in lanes, `LANES` to a chunk, and the chunks go round through the phases of a trial: throw a dart, see
what it hit, ask the table, step. Each tick does every phase for another chunk, a quarter of the round apart, so that
what a phase prefetches has arrived when the next one reads it, and arithmetic and memory are always both at work. A
chunk's record is fields x lanes; a loop over its lanes has a fixed length and no branch, and chooses by masks, so that
the compiler makes vector instructions of it. What looks into the graph, lane by lane, is a loop by itself that runs a
tick before its values are used: a vector cannot be loaded from stores that are still under way. Lanes that search a
row, or have no walk left, go round with ``LIVE`` 0 and draw nothing.
"""

from typing import Any, NamedTuple

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.borrow import borrow, hold
from superworkflow.tasks.lib.kernels.conversions import real_of
from superworkflow.tasks.lib.kernels.prefetch import prefetch
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.walk.kernels.adjacency import OPTIONS, PADDING, WalkGraph, find, holds
from superworkflow.tasks.walk.kernels.alias_table import CLEAR_BIT, WIDE
from superworkflow.tasks.walk.kernels.edge_filter import filter_place, matrix_place
from superworkflow.tasks.walk.kernels.second_order import (
    FRACTION,
    FREE_TRIALS,
    WalkBias,
    acceptance,
    exact_edge,
    extra_width,
    fraction_of,
    throw,
)
from superworkflow.tasks.walk.kernels.starts import WalkRange, start_vertices, walk_state

CHUNKS = 16  # a power of two; with fewer the lines have not arrived yet
APART = CHUNKS // 4
AHEAD = 16  # walks whose first vertex is prefetched
LANES = 16
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)

# Fields of a chunk's record, and what is read from the graph for its next phase.
FIELDS = 19
STATE, NODE, EXTRA, DRAW, HIT, EDGE, PREVIOUS, CURRENT, CANDIDATE, WORD = range(10)
PATTERN, VERDICT, LIVE, LANDING, PLACE, END, TRIALS = range(10, 17)
WEIGHT, NEXT_WEIGHT = 17, 18  # of the edge by which the walker came, and of the candidate's
FIRST, FIRST_WEIGHT, SECOND, SECOND_WEIGHT, THRESHOLD, BITS, TOTAL = range(7)
OUTLIER = 4  # in HIT, above two bits: under the bias of an x that is not t, and of t
SURE = 1  # a VERDICT; 2 is unsure, 0 no

_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_2, _3, _4 = np.uint64(2), np.uint64(3), np.uint64(4)
_VERTEX = (_ONE << np.uint64(CLEAR_BIT)) - _ONE
_PADDING = np.uint64(PADDING)


class _Lanes(NamedTuple):
    """Walkers, a chunk of them in each phase, and the searches of those in doubt.

    Args:
        u, s, f: uint64, int64 and float64 [CHUNKS, FIELDS, LANES], the same memory.
        seen, seen_real: uint64 and float64 [7, LANES], the same memory: what was read for a chunk's next phase.
        search: int64 [CHUNKS, LANES], lanes that search a row; the bit table says that the edge is possible.
        n_search: int64 [CHUNKS].
        sought, base, span: [CHUNKS, LANES], vertex that a lane searches for, and entries of the row that are left.
    """

    u: Any
    s: Any
    f: Any
    seen: Any
    seen_real: Any
    search: Any
    n_search: Any
    sought: Any
    base: Any
    span: Any


@nb.njit(**OPTIONS)
def dart_walks(graph: WalkGraph, bias: WalkBias, walks: WalkRange, out: Any) -> None:
    """Make second-order walks by darts alone.

    Their distribution is that of `transition` in tests/tasks/test_walk_distribution.py.

    Writes:
        out: int32 or int64 [walks, walk_length], the walks first, first + 1, ...; -1 after a sink.
    """
    starts, n_starts, seed, first = walks
    u, seen = np.zeros((CHUNKS, FIELDS, LANES), np.uint64), np.zeros((7, LANES), np.uint64)
    own_lanes = _Lanes(
        u, u.view(np.int64), u.view(np.float64), seen, seen.view(np.float64),
        np.empty((CHUNKS, LANES), np.int64), np.zeros(CHUNKS, np.int64), np.empty((CHUNKS, LANES), np.int64),
        np.empty((CHUNKS, LANES), np.uint64), np.empty((CHUNKS, LANES), np.uint64),
    )  # fmt: skip
    own_begins = start_vertices(seed, first, n_starts, starts, len(out))
    graph, bias, walks, out = borrow((graph, bias, walks, out))
    begins, lanes = borrow((own_begins, own_lanes))
    nodes, bits, _, _, alias, directed = graph
    u, s, f, seen, seen_real, _, _, _, _, _ = lanes
    table = bias.table
    rows = len(out)
    mask = (_ONE << bits) - _ONE
    weighted = len(alias) > 0
    wide = 1 if weighted else 0
    node_totals = nodes.view(np.float64)
    accepted = acceptance(bias.p, bias.q)
    has_outlier = weighted and accepted[3] > 0.0
    seen_real[0, 0] = accepted[3]
    outlier_bits = np.int64(seen[0, 0])

    flat = out.reshape(-1)
    for i in range(min(AHEAD, rows)):
        prefetch(nodes, begins[i] << wide)
    if rows > 0:
        s[:, CANDIDATE], s[:, END] = begins[0], 1
    made = 0
    walking = 0
    tick = 0
    while walking > 0 or made < rows:
        # The chunk that is in each phase; the last one is the first in a chunk's round.
        c4, c3, c2, c1 = (
            (tick - 3 * APART) & (CHUNKS - 1),
            (tick - 2 * APART) & (CHUNKS - 1),
            (tick - APART) & (CHUNKS - 1),
            tick & (CHUNKS - 1),
        )
        done = _step(c4, graph, accepted[3], outlier_bits, lanes)
        if done > 0:
            for k in range(LANES):
                if s[c4, VERDICT, k] != 0 and (s[c4, PLACE, k] == s[c4, END, k] or (u[c4, NODE, k] & mask) == _ZERO):
                    flat[s[c4, PLACE, k] : s[c4, END, k]] = -1
                    walking -= s[c4, LIVE, k]
                    made = _take(u, s, f, c4, k, nodes, wide, mask, begins, walks, made, out)
                    walking += s[c4, LIVE, k]

        n4 = (c4 + 1) & (CHUNKS - 1)
        for k in range(LANES):
            u[n4, NODE, k] = nodes[np.uint64(s[n4, LANDING, k] << wide)]
        for k in range(LANES):
            flat[np.uint64(s[n4, PLACE, k])] = s[n4, CANDIDATE, k]
        if has_outlier:
            for k in range(LANES):
                seen_real[TOTAL, k] = node_totals[np.uint64((s[n4, LANDING, k] << wide) + 1)]

        _decide(c3, graph, bias.final, accepted, lanes)
        n3 = (c3 + 1) & (CHUNKS - 1)
        for k in range(LANES):
            seen[BITS, k] = table[u[n3, WORD, k]]

        _see_hits(c2, graph, bias, accepted, lanes)
        _look_up_pairs(c2, len(nodes) >> wide, bias, directed, lanes)
        n2 = (c2 + 1) & (CHUNKS - 1)
        _read_edges(n2, graph, lanes)

        if tick < CHUNKS:
            for k in range(LANES):
                made = _take(u, s, f, c1, k, nodes, wide, mask, begins, walks, made, out)
                walking += s[c1, LIVE, k]
        _throw(c1, graph, accepted, lanes)
        tick += 1
    hold((own_begins, own_lanes))


@nb.njit(inline="always")
def _step(c, graph, outlier, outlier_bits, lanes):  # type: ignore[no-untyped-def]
    """Step to the vertices that were taken; minus the number of walks that are at their end.

    The next target has width = degree + degree x (share of the return's weight) x outlier.
    """
    nodes, bits, indices, weights, alias, directed = graph
    u, s, f, _, seen_real, _, _, _, _, _ = lanes
    mask = (_ONE << bits) - _ONE
    weighted = len(alias) > 0
    has_outlier = weighted and outlier > 0.0
    node_totals = nodes.view(np.float64)
    if has_outlier and not directed:
        for k in range(LANES):
            came = -(s[c, VERDICT, k] & ~(s[c, EDGE, k] >> 63))
            old = s[c, WEIGHT, k]
            s[c, WEIGHT, k] = old ^ ((old ^ s[c, NEXT_WEIGHT, k]) & came)
        for k in range(LANES):
            edges = real_of(np.int64(u[c, NODE, k] & mask))
            f[c, EXTRA, k] = extra_width(edges, f[c, WEIGHT, k] / seen_real[TOTAL, k], outlier)
    done = 0
    for k in range(LANES):
        yes = -s[c, VERDICT, k]
        degree = np.int64(u[c, NODE, k] & mask)
        old = s[c, TRIALS, k]
        s[c, TRIALS, k] = old ^ ((old ^ (FREE_TRIALS + (degree >> 2))) & yes)
        old = s[c, PREVIOUS, k]
        s[c, PREVIOUS, k] = old ^ ((old ^ s[c, CURRENT, k]) & yes)
        s[c, CURRENT, k] = s[c, LANDING, k]
        if not weighted:
            old = s[c, EXTRA, k]
            s[c, EXTRA, k] = old ^ ((old ^ outlier_bits) & yes)
        spot = s[c, PLACE, k] - yes
        s[c, PLACE, k] = spot
        done += yes & (np.int64(spot == s[c, END, k]) | np.int64(degree == 0))
    if has_outlier and directed:
        for k in range(LANES):
            if s[c, VERDICT, k] != 0:
                x, h = s[c, CURRENT, k], u[c, NODE, k]
                way_back = find(indices, h >> bits, h & mask, s[c, PREVIOUS, k])
                f[c, EXTRA, k] = 0.0
                if way_back >= 0:
                    share = np.float64(weights[np.uint64(way_back)]) / node_totals[np.uint64(2 * x + 1)]
                    f[c, EXTRA, k] = extra_width(np.float64(np.int64(h & mask)), share, outlier)
    return done


@nb.njit(inline="always")
def _decide(c, graph, final, accepted, lanes):  # type: ignore[no-untyped-def]
    """Take the darts above the certain part for which (t -> x exists) = (q >= 1), by the bits of the table.

    Lanes whose bits are not final search the row of t, or that of x, a halving in each round.
    """
    nodes, bits, indices, _, alias, directed = graph
    u, s, _, seen, _, search, n_search, sought, base, span = lanes
    taken_near = accepted[4]
    mask = (_ONE << bits) - _ONE
    wide = 1 if len(alias) > 0 else 0
    doubts = 0
    for k in range(LANES):
        verdict = s[c, VERDICT, k]
        pattern = u[c, PATTERN, k]
        near = np.int64((seen[BITS, k] & pattern) == pattern)
        unsure = verdict >> 1
        doubt = 0 if final else unsure & near
        yes = (verdict & 1) | (unsure & (near ^ np.int64(taken_near) ^ 1) & (doubt ^ 1))
        s[c, VERDICT, k] = yes
        s[c, LIVE, k] += doubt
        doubts += doubt
    n_left = 0
    for i in range(n_search[c]):
        k = search[c, i]
        left = span[c, k]
        if left > _PADDING:
            half = left >> _ONE
            b = base[c, k]
            b = b + half if indices[b + half] <= sought[c, k] else b
            left -= half
            base[c, k] = b
            span[c, k] = left
            prefetch(indices, b + (left >> _ONE) if left > _PADDING else b)
            search[c, n_left] = k
            n_left += 1
        else:
            s[c, LIVE, k] = 1
            s[c, VERDICT, k] = np.int64(holds(indices, base[c, k], left, sought[c, k]) == taken_near)
    n_search[c] = n_left
    if doubts > 0:
        for k in range(LANES):
            if s[c, LIVE, k] == 2:
                s[c, LIVE, k] = 0
                x, t = s[c, CANDIDATE, k], s[c, PREVIOUS, k]
                h = nodes[np.uint64(t << wide)]
                if not directed:  # the edge x -> t is equivalent: search the shorter row
                    other = nodes[np.uint64(x << wide)]
                    if (other & mask) < (h & mask):
                        h = other
                        x = t
                left = h & mask
                sought[c, k] = x
                base[c, k] = h >> bits
                span[c, k] = left
                prefetch(indices, (h >> bits) + (left >> _ONE) if left > _PADDING else h >> bits)
                search[c, n_search[c]] = k
                n_search[c] += 1
    for k in range(LANES):
        yes = -s[c, VERDICT, k]
        v = s[c, CURRENT, k]
        s[c, LANDING, k] = v ^ ((v ^ s[c, CANDIDATE, k]) & yes)
    for k in range(LANES):
        prefetch(nodes, s[c, LANDING, k] << wide)


@nb.njit(inline="always")
def _see_hits(c, graph, bias, accepted, lanes):  # type: ignore[no-untyped-def]
    """Candidate x of each dart, and the verdict if its height decides: under min(1, 1/q) taken, a return under 1/p.

    A step without free trials is drawn from the whole row, P(x) ~ w(v, x) bias(t, x).
    """
    nodes, bits, indices, weights, alias, directed = graph
    u, s, f, seen, seen_real, _, _, _, _, _ = lanes
    mask = (_ONE << bits) - _ONE
    weighted = len(alias) > 0
    wide = 1 if weighted else 0
    tested = -1 if directed and not weighted else 0  # a dart at the outlier has to look for an edge back
    if weighted:
        for k in range(LANES):
            itself = (u[c, DRAW, k] & _LOW) < seen[THRESHOLD, k]
            seen[FIRST, k] = (seen[FIRST, k] if itself else seen[SECOND, k]) & _VERTEX
            f[c, NEXT_WEIGHT, k] = seen_real[FIRST_WEIGHT, k] if itself else seen_real[SECOND_WEIGHT, k]
    special = 0
    for k in range(LANES):
        live = -s[c, LIVE, k]
        hit = s[c, HIT, k]
        t = s[c, PREVIOUS, k]
        aside = -(hit >> 2)
        x = np.int64(seen[FIRST, k])
        x = x ^ ((x ^ t) & aside)
        back = np.int64(x == t)
        sure = ((hit >> back) | np.int64(t < 0)) & 1
        s[c, VERDICT, k] = (sure | ((sure ^ 1) & (back ^ 1)) << 1) & live
        old = s[c, CANDIDATE, k]
        s[c, CANDIDATE, k] = old ^ ((old ^ x) & live)
        s[c, EDGE, k] = s[c, EDGE, k] | (aside & live)
        special |= ((aside & tested) | (s[c, TRIALS, k] >> 63)) & live
    if special != 0:
        for k in range(LANES):
            if s[c, LIVE, k] != 0 and s[c, HIT, k] >= OUTLIER:
                h = u[c, NODE, k]
                if directed and not weighted and find(indices, h >> bits, h & mask, s[c, PREVIOUS, k]) < 0:
                    # There is no edge back to t: this step's next darts have no outlier.
                    f[c, EXTRA, k] = 0.0
                    s[c, VERDICT, k] = 0
            elif s[c, LIVE, k] != 0 and s[c, TRIALS, k] < 0:
                z = u[c, STATE, k] + GAMMA
                u[c, STATE, k] = z
                fraction = fraction_of(mix(z))
                h, near_row = u[c, NODE, k], nodes[np.uint64(s[c, PREVIOUS, k] << wide)]
                j = exact_edge(
                    indices, h >> bits, h & mask, weights, indices, near_row >> bits, near_row & mask,
                    s[c, PREVIOUS, k], bias.p, bias.q, fraction,
                )  # fmt: skip
                s[c, EDGE, k] = j
                s[c, CANDIDATE, k] = np.int64(indices[np.uint64(j)])
                if weighted:
                    f[c, NEXT_WEIGHT, k] = np.float64(weights[np.uint64(j)])
                s[c, VERDICT, k] = SURE


@nb.njit(inline="always")
def _look_up_pairs(c, n_vertices, bias, directed, lanes):  # type: ignore[no-untyped-def]
    """Places of the pairs (t, x) in the table, of the lanes without a verdict."""
    u, s, table = lanes.u, lanes.s, bias.table
    vertices, words = np.uint64(n_vertices - 1), np.uint64(len(table))
    if bias.final:
        for k in range(LANES):
            word, bit = matrix_place(u[c, PREVIOUS, k], u[c, CANDIDATE, k], vertices, directed)
            u[c, WORD, k] = word & np.uint64(-(s[c, VERDICT, k] >> 1))
            u[c, PATTERN, k] = bit
    else:
        for k in range(LANES):
            word, pattern = filter_place(u[c, PREVIOUS, k], u[c, CANDIDATE, k], words, directed)
            u[c, WORD, k] = word & np.uint64(-(s[c, VERDICT, k] >> 1))
            u[c, PATTERN, k] = pattern
    for k in range(LANES):
        prefetch(table, u[c, WORD, k])


@nb.njit(inline="always")
def _read_edges(n, graph, lanes):  # type: ignore[no-untyped-def]
    """Read the edges that darts have hit: the neighbour, or both ends of a column of the alias table."""
    _, _, indices, _, alias, _ = graph
    _, s, _, seen, seen_real, _, _, _, _, _ = lanes
    alias_real = alias.view(np.float32)
    weighted = len(alias) > 0
    if weighted:
        for k in range(LANES):
            entry = np.uint64(s[n, EDGE, k] * WIDE)
            seen[THRESHOLD, k] = alias[entry]
            seen[FIRST, k] = alias[entry + _ONE]
            seen_real[FIRST_WEIGHT, k] = alias_real[entry + _2]
            seen[SECOND, k] = alias[entry + _3]
            seen_real[SECOND_WEIGHT, k] = alias_real[entry + _4]
    else:
        for k in range(LANES):
            seen[FIRST, k] = np.uint64(np.int64(indices[np.uint64(s[n, EDGE, k])]))


@nb.njit(inline="always")
def _throw(c, graph, accepted, lanes):  # type: ignore[no-untyped-def]
    """A dart for each lane: column uniform in width = degree + outlier, height uniform under max(1, 1/q)."""
    _, bits, indices, _, alias, _ = graph
    u, s, f, _, _, _, _, _, _, _ = lanes
    board, certain, returning, _, _ = accepted
    mask = (_ONE << bits) - _ONE
    weighted = len(alias) > 0
    if weighted:
        for k in range(LANES):
            z = u[c, STATE, k] + GAMMA
            h = u[c, NODE, k]
            degree = np.int64(h & mask)
            live = -s[c, LIVE, k]
            column, height = throw(mix(z), (real_of(degree) + f[c, EXTRA, k]) * FRACTION)
            inside = np.int64(column < degree)
            height = height * board
            coin = u[c, DRAW, k]
            u[c, DRAW, k] = coin ^ ((coin ^ mix(z + GAMMA)) & np.uint64(live))
            hit = np.int64(height < certain) | (np.int64(height < returning) << 1)
            s[c, HIT, k] = hit | (7 & (inside - 1))
            draws = GAMMA + (GAMMA & np.uint64(-inside))
            u[c, STATE, k] += draws & np.uint64(live)
            kept = s[c, EDGE, k]
            s[c, EDGE, k] = kept ^ ((kept ^ (np.int64(h >> bits) + (column & -inside))) & live)
            s[c, TRIALS, k] += live
    else:
        for k in range(LANES):
            z = u[c, STATE, k] + GAMMA
            h = u[c, NODE, k]
            degree = np.int64(h & mask)
            live = -s[c, LIVE, k]
            column, height = throw(mix(z), (real_of(degree) + f[c, EXTRA, k]) * FRACTION)
            inside = np.int64(column < degree)
            height = height * board
            hit = np.int64(height < certain) | (np.int64(height < returning) << 1)
            s[c, HIT, k] = hit | (7 & (inside - 1))
            u[c, STATE, k] += GAMMA & np.uint64(live)
            kept = s[c, EDGE, k]
            s[c, EDGE, k] = kept ^ ((kept ^ (np.int64(h >> bits) + (column & -inside))) & live)
            s[c, TRIALS, k] += live
    if weighted:
        for k in range(LANES):
            prefetch(alias, s[c, EDGE, k] * WIDE)
            prefetch(alias, s[c, EDGE, k] * WIDE + (WIDE - 1))
    else:
        for k in range(LANES):
            prefetch(indices, s[c, EDGE, k])


@nb.njit(**OPTIONS)
def _take(u, s, f, c, k, nodes, wide, mask, begins, walks, made, out):  # type: ignore[no-untyped-def]
    """Give a lane the next walk that can step, if there is one; returns the number of walks given out or finished."""
    rows, length = out.shape
    s[c, LIVE, k] = 0
    while made < rows and s[c, LIVE, k] == 0:
        v = begins[made]
        out[made, 0] = v
        if made + AHEAD < rows:
            prefetch(nodes, begins[made + AHEAD] << wide)
        h = nodes[np.uint64(v << wide)]
        if length > 1 and (h & mask) > _ZERO:
            u[c, NODE, k], u[c, STATE, k] = h, walk_state(walks.seed, np.uint64(walks.first + made))
            s[c, PREVIOUS, k], s[c, CURRENT, k] = -1, v
            s[c, PLACE, k], s[c, END, k] = made * length + 1, made * length + length
            s[c, TRIALS, k], f[c, EXTRA, k] = FREE_TRIALS, 0.0
            s[c, LIVE, k] = 1
        else:
            out[made, 1:] = -1
        made += 1
    if s[c, LIVE, k] == 0:
        # An idle lane keeps writing the last vertex that it wrote.
        s[c, EDGE, k] = 0
        s[c, PLACE, k] = s[c, END, k] - 1
        s[c, CANDIDATE, k] = out.reshape(-1)[s[c, PLACE, k]]
    return made
