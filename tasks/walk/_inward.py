"""Second-order walks for q > 1 on large graphs (node2vec; Grover & Leskovec, KDD 2016): they rather stay near t.

From v, reached from t, the next vertex x has probability proportional to ``w(v, x) * bias``, where bias is 1/p
for x = t, 1 where the edge t -> x exists, and 1/q elsewhere. So every edge of v has 1/q for certain; the return has
1/p - 1/q beside it (Yang et al., "KnightKing", SOSP 2019, fold outliers so), and a neighbour of t has 1 - 1/q more.

A trial has one dart for what is certain, which is nearly always taken (a return only in part where p > q), and before
it a geometric number of tries for the rest: an edge of v in proportion to w, taken if it leads to a neighbour of t.
Along an edge t -> v of no triangle (`_triangles`) no try can succeed, and the dart alone is the step: in a sparse
graph that is most of them, and they cost what first-order steps cost. Where many tries are due a try that is drawn
from all of the row replaces the rest of them, and after ``FREE_TRIALS`` rejected darts the step is, so no p and q can
make a walk hang, and the distribution is always the same.

A batch of walkers advances in step, in phases, as in `_first_order`. The tries of all walkers that have any go
through phases of their own while the darts' lines are on their way.
"""

import numba as nb
import numpy as np

from tasks.walk._alias import CLEAR_BIT, WIDE
from tasks.walk._pairs import filter_place, matrix_place
from tasks.walk._prefetch import prefetch
from tasks.walk._random import GAMMA, mix, start_positions, walk_state
from tasks.walk._rows import OPTIONS, PADDING, find, holds
from tasks.walk._trial import (
    FEW,
    FRACTION,
    FREE_TRIALS,
    TRIAL_WORDS,
    dart_beside,
    exact_edge,
    exact_near,
    few_tries,
    free_trials,
    more_tries,
    near_tries,
    throw,
    try_state,
    uniform_edge,
)

BATCH = 256
TOGETHER = 4  # tries of a walker that are looked up at once

# Fields of a walker,
FIELDS = 20
STATE, NODE, TOTAL, PREVIOUS, VERTEX, EDGE, COIN, WIDTH, HEIGHT, CHANCE = range(10)
SIDE, DUE, FOUND, FOUND_WEIGHT, MARKS, SPECIAL, CHOSEN, CHOSEN_WEIGHT = range(10, 18)
ALONE, WEIGHT = 18, 19  # of the edge by which it came: no triangle, weight
TRIES = MARKS  # in use at different times
# and of a try.
LANE, ROW, CAME_FROM, WORDS, AT, OWN_WEIGHT, CANDIDATE, WORD, PATTERN, SEEN, NEAR, DOUBTFUL = range(12)
SOUGHT, BASE, SPAN = WORD, PATTERN, SEEN  # of a doubt, when no try needs these any more

_12 = np.uint64(12)
_ZERO = np.uint64(0)
_LOW = np.uint64(0xFFFFFFFF)
_ONE, _2, _6, _63 = np.uint64(1), np.uint64(2), np.uint64(6), np.uint64(63)
_CLEAR_BIT = np.int64(CLEAR_BIT)
_VERTEX = np.int64((1 << 31) - 1)
_PADDING = np.uint64(PADDING)


@nb.njit(**OPTIONS)
def inward_walks(  # type: ignore[no-untyped-def]
    nodes, bits, indices, weights, alias, clear, table, final, directed, p, q, starts, n_starts, seed, first, out
):
    """Fill ``out`` [walks, walk_length] with the walks first, first + 1, ...; -1 after a sink.

    Args are those of `dart_walks`, and ``clear``: a bit for each edge, set if it is known to lie in no triangle, or
    empty. A weighted graph has these bits in ``alias``.
    """
    rows, length = out.shape
    weighted = len(alias) > 0
    wide = 1 if weighted else 0
    totals, reals = nodes.view(np.float64), alias.view(np.float32)
    sink = np.int64((len(nodes) >> wide) - 1)
    mask = (_ONE << bits) - _ONE
    known = len(clear) > 0
    beside, returning = dart_beside(p, q)
    more = q - 1.0
    looks_back = directed and beside > 0.0
    looks = 1 if looks_back else 0

    begins = np.empty(rows, np.int64)
    start_positions(seed, np.uint64(first), n_starts, begins)
    if len(starts) > 0:
        for i in range(rows):
            begins[i] = starts[begins[i]]

    u = np.zeros((FIELDS, BATCH), np.uint64)
    s, f = u.view(np.int64), u.view(np.float64)
    trying = np.empty(BATCH, np.int64)
    work = _workspace()
    graph = (nodes, bits, indices, weights, alias, reals, table, final, directed)

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
                extra = edges * (f[WEIGHT, k] / f[TOTAL, k]) * beside if weighted else beside
                width = edges + extra if came else edges
                f[WIDTH, k] = width
                column, height = throw(mix(z + GAMMA), width * FRACTION)
                inside = np.int64(column < degree)
                f[HEIGHT, k] = height
                s[SIDE, k] = inside ^ 1
                s[EDGE, k] = np.int64(u[NODE, k] >> bits) + (column & -inside)
                if weighted:
                    u[COIN, k] = mix(z + _2 * GAMMA) & _LOW
                chance = np.float64(np.int64(mix(z + TRIAL_WORDS) >> _12)) * FRACTION
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
                if known:
                    for k in range(active):
                        prefetch(clear, s[EDGE, k] >> 6)
            n_trying = 0
            for k in range(active):
                trying[n_trying] = k
                n_trying += s[DUE, k]
            if n_trying > 0:
                _try_near(graph, known, q, trying, n_trying, u, work)

            # See what the darts hit.
            if weighted:
                for k in range(active):
                    at = np.uint64(s[EDGE, k] * WIDE)
                    at += _2 if u[COIN, k] >= np.uint64(alias[at]) else _ZERO
                    u[FOUND, k] = np.uint64(alias[at + _ONE])
                    f[FOUND_WEIGHT, k] = np.float64(reals[at + _2])
                for k in range(active):
                    entry, beside_it = s[FOUND, k], -s[SIDE, k]
                    old = s[WEIGHT, k]
                    s[WEIGHT, k] = old ^ ((old ^ s[FOUND_WEIGHT, k]) & ~beside_it)
                    old = s[ALONE, k]
                    s[ALONE, k] = old ^ ((old ^ (entry >> _CLEAR_BIT)) & ~beside_it)
                    s[FOUND, k] = entry & _VERTEX
            else:
                for k in range(active):
                    s[FOUND, k] = np.int64(indices[np.uint64(s[EDGE, k])])
                if known:
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
                    j, u[STATE, k] = _try_again(graph, p, q, beside, returning, u[STATE, k], h, t, f[WIDTH, k])
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


@nb.njit(inline="always")
def _alias_end(alias, reals, j, z):  # type: ignore[no-untyped-def]
    """(vertex, weight) of a column: of the edge itself or, by the coin at ``z`` + 2 GAMMA, of the other one."""
    at = np.uint64(j * WIDE)
    at += _2 if (mix(z + _2 * GAMMA) & _LOW) >= np.uint64(alias[at]) else _ZERO
    return np.int64(alias[at + _ONE]) & _VERTEX, np.float64(reals[at + _2])


@nb.njit(**OPTIONS)
def _workspace():  # type: ignore[no-untyped-def]
    """Signed and unsigned arrays of `_try_near`: of walkers, and of their tries."""
    return np.empty((2, BATCH), np.int64), np.zeros((12, TOGETHER * (BATCH + 1)), np.uint64)


@nb.njit(**OPTIONS)
def _try_near(graph, known, q, lanes, n_lanes, u, work):  # type: ignore[no-untyped-def]
    """Set `CHOSEN` of each of the lanes to a neighbour of t, if one of its tries finds it, else to -1."""
    nodes, bits, indices, weights, alias, reals, table, final, directed = graph
    weighted = len(alias) > 0
    wide = 1 if weighted else 0
    vertices, words = np.uint64((len(nodes) >> wide) - 1), np.uint64(len(table))
    mask = (_ONE << bits) - _ONE
    s, f = u.view(np.int64), u.view(np.float64)
    pending, tried = work[0][0], work[0][1]
    entry = work[1]
    signed, real = entry.view(np.int64), entry.view(np.float64)
    together = TOGETHER if known else 2  # where a try often succeeds, those behind it are in vain
    n = n_lanes
    for i in range(n):
        k = lanes[i]
        pending[i], tried[i] = k, 0
        real[CANDIDATE, i], real[WORD, i], signed[AT, i] = f[CHANCE, k], f[WIDTH, k], np.int64(u[NODE, k] & mask)
        s[CHOSEN, k] = -1
    for i in range(n):
        signed[NEAR, i] = few_tries(real[CANDIDATE, i], np.float64(signed[AT, i]), real[WORD, i], q)
    for i in range(n):
        number = signed[NEAR, i]
        if number == FEW:
            most = free_trials(np.uint64(signed[AT, i]))
            number = more_tries(real[CANDIDATE, i], np.float64(signed[AT, i]), real[WORD, i], q, most)
        s[TRIES, pending[i]] = number
    while n > 0:
        size = 0
        for i in range(n):
            k = pending[i]
            h, t = u[NODE, k], s[PREVIOUS, k]
            z = try_state(u[STATE, k]) + np.uint64(tried[i]) * (_2 * GAMMA)
            for j in range(together):  # more than it has, perhaps: the next walker's lie over them
                signed[LANE, size + j], entry[WORDS, size + j] = k, z + np.uint64(j) * (_2 * GAMMA)
                entry[ROW, size + j], signed[CAME_FROM, size + j] = h, t
            size += min(together, min(s[TRIES, k], free_trials(h & mask)) - tried[i])
        for e in range(size):
            h = entry[ROW, e]
            signed[AT, e] = uniform_edge(mix(entry[WORDS, e] + GAMMA), h >> bits, h & mask)
        if weighted:
            for e in range(size):
                prefetch(alias, signed[AT, e] * WIDE)
                prefetch(alias, signed[AT, e] * WIDE + (WIDE - 1))
        else:
            for e in range(size):
                prefetch(indices, signed[AT, e])
        if weighted:
            for e in range(size):
                signed[CANDIDATE, e], real[OWN_WEIGHT, e] = _alias_end(alias, reals, signed[AT, e], entry[WORDS, e])
        else:
            for e in range(size):
                signed[CANDIDATE, e] = np.int64(indices[np.uint64(signed[AT, e])])
        if final:
            for e in range(size):
                entry[WORD, e], entry[PATTERN, e] = matrix_place(
                    entry[CAME_FROM, e], entry[CANDIDATE, e], vertices, directed
                )
        else:
            for e in range(size):
                entry[WORD, e], entry[PATTERN, e] = filter_place(
                    entry[CAME_FROM, e], entry[CANDIDATE, e], words, directed
                )
        for e in range(size):
            prefetch(table, signed[WORD, e])
        if not final:  # the rows in which it may have to be searched
            for e in range(size):
                prefetch(nodes, signed[CAME_FROM, e] << wide)
                prefetch(nodes, signed[CANDIDATE, e] << wide)
        for e in range(size):
            entry[SEEN, e] = table[entry[WORD, e]]
        for e in range(size):
            pattern = entry[PATTERN, e]
            held = np.int64((entry[SEEN, e] & pattern) == pattern)
            signed[NEAR, e] = held & np.int64(signed[CANDIDATE, e] != signed[CAME_FROM, e])
        if not final:
            doubts = 0
            for e in range(size):
                signed[DOUBTFUL, doubts] = e
                doubts += signed[NEAR, e]
            if doubts > 0:
                _search(nodes, wide, bits, indices, directed, entry, doubts)
        for back in range(size):  # the first of a walker's counts
            e = size - 1 - back
            k, near = signed[LANE, e], -signed[NEAR, e]
            old = s[CHOSEN, k]
            s[CHOSEN, k] = old ^ ((old ^ signed[CANDIDATE, e]) & near)
            old = s[CHOSEN_WEIGHT, k]
            s[CHOSEN_WEIGHT, k] = old ^ ((old ^ signed[OWN_WEIGHT, e]) & near)
        left = 0
        for i in range(n):
            k = pending[i]
            if s[CHOSEN, k] >= 0:
                continue
            h, t = u[NODE, k], s[PREVIOUS, k]
            done, most = tried[i] + together, free_trials(h & mask)
            if done < min(s[TRIES, k], most):
                pending[left], tried[left] = k, done
                left += 1
            elif s[TRIES, k] > most:
                row = nodes[np.uint64(t << wide)]
                fraction = np.float64(np.int64(mix(try_state(u[STATE, k])) >> _12)) * FRACTION
                j = exact_near(
                    indices, h >> bits, h & mask, weights, indices, row >> bits, row & mask, t, q, f[WIDTH, k], fraction
                )
                if j >= 0:
                    s[CHOSEN, k] = np.int64(indices[np.uint64(j)])
                    f[CHOSEN_WEIGHT, k] = np.float64(weights[np.uint64(j)]) if weighted else 1.0
        n = left


@nb.njit(**OPTIONS)
def _search(nodes, wide, bits, indices, directed, entry, doubts):  # type: ignore[no-untyped-def]
    """Clear `NEAR` of the tries in doubt whose vertex is not in the row of t; all searches go on in step."""
    mask = (_ONE << bits) - _ONE
    signed = entry.view(np.int64)
    for d in range(doubts):
        e = signed[DOUBTFUL, d]
        x, t = signed[CANDIDATE, e], signed[CAME_FROM, e]
        h = nodes[np.uint64(t << wide)]
        if not directed:  # the edge x -> t tells as much: take the shorter row
            other = nodes[np.uint64(x << wide)]
            if (other & mask) < (h & mask):
                h = other
                x = t
        base, left = h >> bits, h & mask
        signed[SOUGHT, d], entry[BASE, d], entry[SPAN, d] = x, base, left
        prefetch(indices, np.int64(base + (left >> _ONE) if left > _PADDING else base))
    going = True
    while going:
        going = False
        for d in range(doubts):
            left = entry[SPAN, d]
            if left > _PADDING:
                half = left >> _ONE
                base = entry[BASE, d]
                base = base + half if indices[base + half] <= signed[SOUGHT, d] else base
                left -= half
                entry[BASE, d], entry[SPAN, d] = base, left
                prefetch(indices, np.int64(base + (left >> _ONE) if left > _PADDING else base))
                going = True
    for d in range(doubts):
        if not holds(indices, entry[BASE, d], entry[SPAN, d], signed[SOUGHT, d]):
            signed[NEAR, signed[DOUBTFUL, d]] = 0


@nb.njit(**OPTIONS)
def _try_again(graph, p, q, beside, returning, state, header, t, width):  # type: ignore[no-untyped-def]
    """(edge or -1 for the return beside, state) of a step whose first dart was rejected."""
    nodes, bits, indices, weights, alias, reals, _, _, directed = graph
    weighted = len(alias) > 0
    wide = 1 if weighted else 0
    mask = (_ONE << bits) - _ONE
    row, degree = header >> bits, header & mask
    edges = np.float64(np.int64(degree))
    near_header = nodes[np.uint64(t << wide)]
    near, near_degree = near_header >> bits, near_header & mask
    for _trial in range(1, FREE_TRIALS):
        z = state
        state = z + TRIAL_WORDS
        u = np.float64(np.int64(mix(state) >> _12)) * FRACTION
        most = free_trials(degree)
        tries = near_tries(u, edges, width, q, most)
        s = try_state(state)
        for i in range(min(tries, most)):
            word = s + np.uint64(i) * _2 * GAMMA
            j = uniform_edge(mix(word + GAMMA), row, degree)
            x = _alias_end(alias, reals, j, word)[0] if weighted else np.int64(indices[np.uint64(j)])
            if x != t and find(indices, near, near_degree, x) >= 0:
                return find(indices, row, degree, x), state
        if tries > most:
            fraction = np.float64(np.int64(mix(s) >> _12)) * FRACTION
            j = exact_near(indices, row, degree, weights, indices, near, near_degree, t, q, width, fraction)
            if j >= 0:
                return j, state
        column, height = throw(mix(z + GAMMA), width * FRACTION)
        if column >= np.int64(degree):
            if not directed or weighted or find(indices, row, degree, t) >= 0:
                return np.int64(-1), state
            continue
        j = np.int64(row) + column
        x = _alias_end(alias, reals, j, z)[0] if weighted else np.int64(indices[np.uint64(j)])
        if x != t or height < returning:
            return find(indices, row, degree, x), state
    state += GAMMA
    fraction = np.float64(np.int64(mix(state) >> _12)) * FRACTION
    j = exact_edge(indices, row, degree, weights, indices, near, near_degree, t, p, q, fraction)
    return j, state
