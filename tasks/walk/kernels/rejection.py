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

from typing import Any

import numba as nb
import numpy as np

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


@nb.njit(**OPTIONS)
def dart_walks(graph: WalkGraph, bias: WalkBias, walks: WalkRange, out: Any) -> None:
    """Make second-order walks by darts alone.

    Their distribution is that of `transition` in tests/tasks/test_walk_distribution.py.

    Writes:
        out: int32 or int64 [walks, walk_length], the walks first, first + 1, ...; -1 after a sink.
    """
    nodes, bits, indices, weights, alias, directed = graph
    p, q, table, final = bias
    starts, n_starts, seed, first = walks
    rows = len(out)
    mask = (_ONE << bits) - _ONE
    weighted = len(alias) > 0
    wide = 1 if weighted else 0
    node_totals = nodes.view(np.float64)
    vertices, words = np.uint64((len(nodes) >> wide) - 1), np.uint64(len(table))
    board, certain, returning, outlier, taken_near = acceptance(p, q)
    has_outlier = weighted and outlier > 0.0
    tested = -1 if directed and not weighted else 0  # a dart at the outlier has to look for an edge back

    u = np.zeros((CHUNKS, FIELDS, LANES), np.uint64)
    s, f = u.view(np.int64), u.view(np.float64)
    seen = np.zeros((7, LANES), np.uint64)
    seen_real = seen.view(np.float64)
    alias_real = alias.view(np.float32)
    seen_real[0, 0] = outlier
    outlier_bits = np.int64(seen[0, 0])
    # Lanes in doubt: the edge is possible by the bit table, and the row has to be searched.
    search = np.empty((CHUNKS, LANES), np.int64)
    n_search = np.zeros(CHUNKS, np.int64)
    sought = np.empty((CHUNKS, LANES), np.int64)
    base, span = np.empty((CHUNKS, LANES), np.uint64), np.empty((CHUNKS, LANES), np.uint64)

    flat = out.reshape(-1)
    begins = start_vertices(seed, first, n_starts, starts, rows)
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
        # Step to the vertices that were taken.
        if has_outlier and not directed:
            for k in range(LANES):
                came = -(s[c4, VERDICT, k] & ~(s[c4, EDGE, k] >> 63))
                old = s[c4, WEIGHT, k]
                s[c4, WEIGHT, k] = old ^ ((old ^ s[c4, NEXT_WEIGHT, k]) & came)
            for k in range(LANES):
                edges = np.float64(np.int64(u[c4, NODE, k] & mask))
                f[c4, EXTRA, k] = extra_width(edges, f[c4, WEIGHT, k] / seen_real[TOTAL, k], outlier)
        done = 0
        for k in range(LANES):
            yes = -s[c4, VERDICT, k]
            degree = np.int64(u[c4, NODE, k] & mask)
            old = s[c4, TRIALS, k]
            s[c4, TRIALS, k] = old ^ ((old ^ (FREE_TRIALS + (degree >> 2))) & yes)
            old = s[c4, PREVIOUS, k]
            s[c4, PREVIOUS, k] = old ^ ((old ^ s[c4, CURRENT, k]) & yes)
            s[c4, CURRENT, k] = s[c4, LANDING, k]
            if not weighted:
                old = s[c4, EXTRA, k]
                s[c4, EXTRA, k] = old ^ ((old ^ outlier_bits) & yes)
            spot = s[c4, PLACE, k] - yes
            s[c4, PLACE, k] = spot
            done += yes & (np.int64(spot == s[c4, END, k]) | np.int64(degree == 0))
        if has_outlier and directed:
            for k in range(LANES):
                if s[c4, VERDICT, k] != 0:
                    x, h = s[c4, CURRENT, k], u[c4, NODE, k]
                    way_back = find(indices, h >> bits, h & mask, s[c4, PREVIOUS, k])
                    f[c4, EXTRA, k] = 0.0
                    if way_back >= 0:
                        share = np.float64(weights[np.uint64(way_back)]) / node_totals[np.uint64(2 * x + 1)]
                        f[c4, EXTRA, k] = extra_width(np.float64(np.int64(h & mask)), share, outlier)
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

        # Read the bits of the table; search the row where they are not final.
        doubts = 0
        for k in range(LANES):
            verdict = s[c3, VERDICT, k]
            pattern = u[c3, PATTERN, k]
            near = np.int64((seen[BITS, k] & pattern) == pattern)
            unsure = verdict >> 1
            doubt = 0 if final else unsure & near
            yes = (verdict & 1) | (unsure & (near ^ np.int64(taken_near) ^ 1) & (doubt ^ 1))
            s[c3, VERDICT, k] = yes
            s[c3, LIVE, k] += doubt
            doubts += doubt
        n_left = 0
        for i in range(n_search[c3]):
            k = search[c3, i]
            left = span[c3, k]
            if left > _PADDING:
                half = left >> _ONE
                b = base[c3, k]
                b = b + half if indices[b + half] <= sought[c3, k] else b
                left -= half
                base[c3, k] = b
                span[c3, k] = left
                prefetch(indices, b + (left >> _ONE) if left > _PADDING else b)
                search[c3, n_left] = k
                n_left += 1
            else:
                s[c3, LIVE, k] = 1
                s[c3, VERDICT, k] = np.int64(holds(indices, base[c3, k], left, sought[c3, k]) == taken_near)
        n_search[c3] = n_left
        if doubts > 0:
            for k in range(LANES):
                if s[c3, LIVE, k] == 2:
                    s[c3, LIVE, k] = 0
                    x, t = s[c3, CANDIDATE, k], s[c3, PREVIOUS, k]
                    h = nodes[np.uint64(t << wide)]
                    if not directed:  # the edge x -> t is equivalent: search the shorter row
                        other = nodes[np.uint64(x << wide)]
                        if (other & mask) < (h & mask):
                            h = other
                            x = t
                    left = h & mask
                    sought[c3, k] = x
                    base[c3, k] = h >> bits
                    span[c3, k] = left
                    prefetch(indices, (h >> bits) + (left >> _ONE) if left > _PADDING else h >> bits)
                    search[c3, n_search[c3]] = k
                    n_search[c3] += 1
        for k in range(LANES):
            yes = -s[c3, VERDICT, k]
            v = s[c3, CURRENT, k]
            s[c3, LANDING, k] = v ^ ((v ^ s[c3, CANDIDATE, k]) & yes)
        for k in range(LANES):
            prefetch(nodes, s[c3, LANDING, k] << wide)

        n3 = (c3 + 1) & (CHUNKS - 1)
        for k in range(LANES):
            seen[BITS, k] = table[u[n3, WORD, k]]

        # See what the darts hit.
        if weighted:
            for k in range(LANES):
                itself = (u[c2, DRAW, k] & _LOW) < seen[THRESHOLD, k]
                seen[FIRST, k] = (seen[FIRST, k] if itself else seen[SECOND, k]) & _VERTEX
                f[c2, NEXT_WEIGHT, k] = seen_real[FIRST_WEIGHT, k] if itself else seen_real[SECOND_WEIGHT, k]
        special = 0
        for k in range(LANES):
            live = -s[c2, LIVE, k]
            hit = s[c2, HIT, k]
            t = s[c2, PREVIOUS, k]
            aside = -(hit >> 2)
            x = np.int64(seen[FIRST, k])
            x = x ^ ((x ^ t) & aside)
            back = np.int64(x == t)
            sure = ((hit >> back) | np.int64(t < 0)) & 1
            s[c2, VERDICT, k] = (sure | ((sure ^ 1) & (back ^ 1)) << 1) & live
            old = s[c2, CANDIDATE, k]
            s[c2, CANDIDATE, k] = old ^ ((old ^ x) & live)
            s[c2, EDGE, k] = s[c2, EDGE, k] | (aside & live)
            special |= ((aside & tested) | (s[c2, TRIALS, k] >> 63)) & live
        if special != 0:
            for k in range(LANES):
                if s[c2, LIVE, k] != 0 and s[c2, HIT, k] >= OUTLIER:
                    h = u[c2, NODE, k]
                    if directed and not weighted and find(indices, h >> bits, h & mask, s[c2, PREVIOUS, k]) < 0:
                        # There is no edge back to t: this step's next darts have no outlier.
                        f[c2, EXTRA, k] = 0.0
                        s[c2, VERDICT, k] = 0
                elif s[c2, LIVE, k] != 0 and s[c2, TRIALS, k] < 0:
                    z = u[c2, STATE, k] + GAMMA
                    u[c2, STATE, k] = z
                    fraction = fraction_of(mix(z))
                    h, near_row = u[c2, NODE, k], nodes[np.uint64(s[c2, PREVIOUS, k] << wide)]
                    j = exact_edge(
                        indices, h >> bits, h & mask, weights, indices, near_row >> bits, near_row & mask,
                        s[c2, PREVIOUS, k], p, q, fraction,
                    )  # fmt: skip
                    s[c2, EDGE, k] = j
                    s[c2, CANDIDATE, k] = np.int64(indices[np.uint64(j)])
                    if weighted:
                        f[c2, NEXT_WEIGHT, k] = np.float64(weights[np.uint64(j)])
                    s[c2, VERDICT, k] = SURE
        if final:
            for k in range(LANES):
                word, bit = matrix_place(u[c2, PREVIOUS, k], u[c2, CANDIDATE, k], vertices, directed)
                u[c2, WORD, k] = word & np.uint64(-(s[c2, VERDICT, k] >> 1))
                u[c2, PATTERN, k] = bit
        else:
            for k in range(LANES):
                word, pattern = filter_place(u[c2, PREVIOUS, k], u[c2, CANDIDATE, k], words, directed)
                u[c2, WORD, k] = word & np.uint64(-(s[c2, VERDICT, k] >> 1))
                u[c2, PATTERN, k] = pattern
        for k in range(LANES):
            prefetch(table, u[c2, WORD, k])

        n2 = (c2 + 1) & (CHUNKS - 1)
        if weighted:
            for k in range(LANES):
                entry = np.uint64(s[n2, EDGE, k] * WIDE)
                seen[THRESHOLD, k] = alias[entry]
                seen[FIRST, k] = alias[entry + _ONE]
                seen_real[FIRST_WEIGHT, k] = alias_real[entry + _2]
                seen[SECOND, k] = alias[entry + _3]
                seen_real[SECOND_WEIGHT, k] = alias_real[entry + _4]
        else:
            for k in range(LANES):
                seen[FIRST, k] = np.uint64(np.int64(indices[np.uint64(s[n2, EDGE, k])]))

        # Throw the next darts.
        if tick < CHUNKS:
            for k in range(LANES):
                made = _take(u, s, f, c1, k, nodes, wide, mask, begins, walks, made, out)
                walking += s[c1, LIVE, k]
        if weighted:
            for k in range(LANES):
                z = u[c1, STATE, k] + GAMMA
                h = u[c1, NODE, k]
                degree = np.int64(h & mask)
                live = -s[c1, LIVE, k]
                column, height = throw(mix(z), (np.float64(degree) + f[c1, EXTRA, k]) * FRACTION)
                inside = np.int64(column < degree)
                height = height * board
                coin = u[c1, DRAW, k]
                u[c1, DRAW, k] = coin ^ ((coin ^ mix(z + GAMMA)) & np.uint64(live))
                hit = np.int64(height < certain) | (np.int64(height < returning) << 1)
                s[c1, HIT, k] = hit | (7 & (inside - 1))
                draws = GAMMA + (GAMMA & np.uint64(-inside))
                u[c1, STATE, k] += draws & np.uint64(live)
                kept = s[c1, EDGE, k]
                s[c1, EDGE, k] = kept ^ ((kept ^ (np.int64(h >> bits) + (column & -inside))) & live)
                s[c1, TRIALS, k] += live
        else:
            for k in range(LANES):
                z = u[c1, STATE, k] + GAMMA
                h = u[c1, NODE, k]
                degree = np.int64(h & mask)
                live = -s[c1, LIVE, k]
                column, height = throw(mix(z), (np.float64(degree) + f[c1, EXTRA, k]) * FRACTION)
                inside = np.int64(column < degree)
                height = height * board
                hit = np.int64(height < certain) | (np.int64(height < returning) << 1)
                s[c1, HIT, k] = hit | (7 & (inside - 1))
                u[c1, STATE, k] += GAMMA & np.uint64(live)
                kept = s[c1, EDGE, k]
                s[c1, EDGE, k] = kept ^ ((kept ^ (np.int64(h >> bits) + (column & -inside))) & live)
                s[c1, TRIALS, k] += live
        if weighted:
            for k in range(LANES):
                prefetch(alias, s[c1, EDGE, k] * WIDE)
                prefetch(alias, s[c1, EDGE, k] * WIDE + (WIDE - 1))
        else:
            for k in range(LANES):
                prefetch(indices, s[c1, EDGE, k])
        tick += 1


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
