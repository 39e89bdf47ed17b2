"""Step with tries of a travelling walker, as far as the task of its vertex can decide it, by the rules of `mixture`."""

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.walk.kernels.adjacency import OPTIONS, find
from superworkflow.tasks.walk.kernels.second_order import (
    FRACTION,
    FREE_TRIALS,
    TRIAL_WORDS,
    alias_edge,
    dart_acceptance,
    exact_edge,
    exact_near,
    extra_width,
    fraction_of,
    free_trials,
    near_tries,
    throw,
    try_state,
    uniform_edge,
)

TAKEN, ASKS, WANTS_NEAR, WANTS_EDGE, NO_SPACE = 0, 1, 2, 3, 4
"""Outcome: the next vertex; with tries to ask about; with a row to draw from at the task of t, what is left
of its tries or all of it; with more words than there is space for."""

_LOW = np.uint64(0xFFFFFFFF)
_NONE = np.int64(-1)


@nb.njit(inline="always")
def drawn_edge(alias, j, row, word, weighted):  # type: ignore[no-untyped-def]
    """The edge of a column, by the coin ``word`` if there are weights."""
    return alias_edge(alias[j], word & _LOW, j, row) if weighted else j


@nb.njit(**OPTIONS)
def step_inward(  # type: ignore[no-untyped-def]
    state, t, trials, tried, low, high, headers, bits, header, indices, weights, alias, total, directed, p, q,
    out_words, n_words, list_words, certain,
):  # fmt: skip
    """(end, vertex, state, trials, tried, words, width): one step, from the row of its vertex, which is ``header``.

    ``trials`` darts were rejected so far, and ``tried`` tries of this trial are answered. Words, as many as are
    returned, are written to ``out_words`` from ``n_words``: vertices to ask about, the last one with ``certain`` set
    if it is to be taken in any case. If the end is `WANTS_NEAR` the vertex is the dart's, or -1 if it is rejected.
    """
    mask = (np.uint64(1) << bits) - np.uint64(1)
    weighted = len(alias) > 0
    row, degree = header >> bits, header & mask
    edges = np.float64(np.int64(degree))
    outlier, returning = dart_acceptance(p, q)
    width = edges
    way_back = _NONE
    if t >= 0 and outlier > 0.0:
        way_back = find(indices, row, degree, t) if weighted or directed else np.int64(0)
        if not weighted:
            width = edges + outlier
        elif way_back >= 0:
            width = edges + extra_width(edges, np.float64(weights[way_back]) / total, outlier)
    most = free_trials(degree)
    t_here = low <= t < high
    near_header = headers[t - low] if t_here else np.uint64(0)
    near, near_degree = near_header >> bits, near_header & mask
    while True:
        if trials == FREE_TRIALS:
            state += GAMMA
            if not t_here:
                return WANTS_EDGE, _NONE, state, trials, tried, 0, width
            fraction = fraction_of(mix(state))
            j = exact_edge(indices, row, degree, weights, indices, near, near_degree, t, p, q, fraction)
            return TAKEN, np.int64(indices[j]), state, trials, tried, 0, width
        end = state + TRIAL_WORDS
        s = try_state(end)
        kept = 0
        tries = near_tries(fraction_of(mix(end)), edges, width, q, most) if t >= 0 else np.int64(0)
        while tried < min(tries, most):
            word = s + np.uint64(2 * tried) * GAMMA
            place = uniform_edge(mix(word + GAMMA), row, degree)
            j = drawn_edge(alias, place, row, mix(word + GAMMA + GAMMA), weighted)
            x = np.int64(indices[j])
            tried += 1
            if x == t:
                continue
            if t_here or (not directed and low <= x < high):
                if t_here:
                    is_near = find(indices, near, near_degree, x) >= 0
                else:
                    other = headers[x - low]
                    is_near = find(indices, other >> bits, other & mask, t) >= 0
                if not is_near:
                    continue
                if kept == 0:
                    return TAKEN, x, end, trials, tried, 0, width
                if n_words + kept >= len(out_words):
                    return NO_SPACE, _NONE, state, trials, tried, 0, width
                out_words[n_words + kept] = x | certain
                return ASKS, _NONE, state, trials, tried, kept + 1, width
            if n_words + kept >= len(out_words):
                return NO_SPACE, _NONE, state, trials, tried, 0, width
            out_words[n_words + kept] = x
            kept += 1
            if kept == list_words:
                return ASKS, _NONE, state, trials, tried, kept, width

        column, height = throw(mix(state + GAMMA), width * FRACTION)
        if column >= np.int64(degree):
            x = t if weighted or way_back >= 0 else _NONE
        else:
            j = drawn_edge(alias, np.int64(row) + column, row, mix(state + GAMMA + GAMMA), weighted)
            x = np.int64(indices[j])
            if x == t and height >= returning:
                x = _NONE
        if tries > most:
            if kept > 0:
                return ASKS, _NONE, state, trials, tried, kept, width
            if not t_here:
                return WANTS_NEAR, x, state, trials, tried, 0, width
            j = exact_near(
                indices, row, degree, weights, indices, near, near_degree, t, q, width, fraction_of(mix(s))
            )  # fmt: skip
            if j >= 0:
                return TAKEN, np.int64(indices[j]), end, trials, tried, 0, width
        if kept > 0:
            if x >= 0:
                if n_words + kept >= len(out_words):
                    return NO_SPACE, _NONE, state, trials, tried, 0, width
                out_words[n_words + kept] = x | certain
                kept += 1
            return ASKS, _NONE, state, trials, tried, kept, width
        if x >= 0:
            return TAKEN, x, end, trials, tried, 0, width
        state = end
        trials += 1
        tried = 0
