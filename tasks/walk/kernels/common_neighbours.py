"""Tries of walkers for a neighbour of the vertex before, many at a time (see `mixture`)."""

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.prefetch import prefetch
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.walk.kernels.adjacency import OPTIONS, PADDING, find, holds
from superworkflow.tasks.walk.kernels.alias_table import WIDE
from superworkflow.tasks.walk.kernels.edge_filter import filter_place
from superworkflow.tasks.walk.kernels.second_order import (
    FEW,
    FRACTION,
    FREE_TRIALS,
    TRIAL_WORDS,
    exact_edge,
    exact_near,
    few_tries,
    fraction_of,
    free_trials,
    more_tries,
    near_tries,
    throw,
    try_state,
    uniform_edge,
)

BATCH = 512
"""Walkers in step."""
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

_ZERO = np.uint64(0)
_LOW = np.uint64(0xFFFFFFFF)
_ONE, _2 = np.uint64(1), np.uint64(2)
_VERTEX = np.int64((1 << 31) - 1)
_PADDING = np.uint64(PADDING)


@nb.njit(inline="always")
def _alias_end(alias, reals, j, z):  # type: ignore[no-untyped-def]
    """(vertex, weight) of a column: of the edge itself or, by the coin at ``z`` + 2 GAMMA, of the other one."""
    entry = np.uint64(j * WIDE)
    entry += _2 if (mix(z + _2 * GAMMA) & _LOW) >= np.uint64(alias[entry]) else _ZERO
    return np.int64(alias[entry + _ONE]) & _VERTEX, np.float64(reals[entry + _2])


@nb.njit(**OPTIONS)
def workspace():  # type: ignore[no-untyped-def]
    """Signed and unsigned arrays of `try_near`: of walkers, and of their tries."""
    return np.empty((2, BATCH), np.int64), np.zeros((12, TOGETHER * (BATCH + 1)), np.uint64)


@nb.njit(**OPTIONS)
def try_near(graph, table, marked, q, lanes, n_lanes, u, work):  # type: ignore[no-untyped-def]
    """Set `CHOSEN` of each of the lanes to a neighbour of t, if one of its tries finds it, else to -1."""
    nodes, bits, indices, weights, alias, directed = graph
    reals = alias.view(np.float32)
    weighted = len(alias) > 0
    wide = 1 if weighted else 0
    words = np.uint64(len(table))
    mask = (_ONE << bits) - _ONE
    s, f = u.view(np.int64), u.view(np.float64)
    pending, tried = work[0][0], work[0][1]
    entry = work[1]
    signed, real = entry.view(np.int64), entry.view(np.float64)
    together = TOGETHER if marked else 2  # where tries often succeed, later ones of the same walker are wasted
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
            for j in range(together):  # perhaps more than it has: the next walker's overwrite them
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
        for e in range(size):
            entry[WORD, e], entry[PATTERN, e] = filter_place(entry[CAME_FROM, e], entry[CANDIDATE, e], words, directed)
        for e in range(size):
            prefetch(table, signed[WORD, e])
        for e in range(size):  # the rows in which it may have to be searched
            prefetch(nodes, signed[CAME_FROM, e] << wide)
            prefetch(nodes, signed[CANDIDATE, e] << wide)
        for e in range(size):
            entry[SEEN, e] = table[entry[WORD, e]]
        for e in range(size):
            pattern = entry[PATTERN, e]
            held = np.int64((entry[SEEN, e] & pattern) == pattern)
            signed[NEAR, e] = held & np.int64(signed[CANDIDATE, e] != signed[CAME_FROM, e])
        doubts = 0
        for e in range(size):
            signed[DOUBTFUL, doubts] = e
            doubts += signed[NEAR, e]
        if doubts > 0:
            _search(nodes, wide, bits, indices, directed, entry, doubts)
        for back in range(size):  # backwards: the first of a walker's tries counts
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
                fraction = fraction_of(mix(try_state(u[STATE, k])))
                j = exact_near(
                    indices, h >> bits, h & mask, weights, indices, row >> bits, row & mask, t, q, f[WIDTH, k], fraction
                )
                if j >= 0:
                    s[CHOSEN, k] = np.int64(indices[np.uint64(j)])
                    f[CHOSEN_WEIGHT, k] = np.float64(weights[np.uint64(j)]) if weighted else 1.0
        n = left


@nb.njit(**OPTIONS)
def _search(nodes, wide, bits, indices, directed, entry, doubts):  # type: ignore[no-untyped-def]
    """Clear `NEAR` of the tries in doubt whose vertex is not in the row of t; all searches advance in step."""
    mask = (_ONE << bits) - _ONE
    signed = entry.view(np.int64)
    for d in range(doubts):
        e = signed[DOUBTFUL, d]
        x, t = signed[CANDIDATE, e], signed[CAME_FROM, e]
        h = nodes[np.uint64(t << wide)]
        if not directed:  # the edge x -> t is equivalent: search the shorter row
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
def try_again(graph, p, q, returning, state, header, t, width):  # type: ignore[no-untyped-def]
    """(edge or -1 for the return by its own target, state) of a step whose first dart was rejected."""
    nodes, bits, indices, weights, alias, directed = graph
    reals = alias.view(np.float32)
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
        u = fraction_of(mix(state))
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
            fraction = fraction_of(mix(s))
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
    fraction = fraction_of(mix(state))
    j = exact_edge(indices, row, degree, weights, indices, near, near_degree, t, p, q, fraction)
    return j, state
