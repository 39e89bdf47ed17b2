"""Step with tries of a travelling walker, as far as the task of its vertex can decide it, by the rules of `mixture`."""

from typing import Any

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.borrow import borrow
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.walk.kernels.adjacency import OPTIONS, find
from superworkflow.tasks.walk.kernels.second_order import (
    FRACTION,
    FREE_TRIALS,
    TRIAL_WORDS,
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
from superworkflow.tasks.walk.partitioned.step_rules import (
    ASKS,
    CERTAIN,
    NO_SPACE,
    NONE,
    TAKEN,
    WAITS,
    WANTS_EDGE,
    WANTS_NEAR,
    StepRules,
    drawn_edge,
    near_here,
)
from superworkflow.tasks.walk.partitioned.vertex_ranges import VertexRows


@nb.njit(**OPTIONS)
def step_inward(
    state: Any,
    t: Any,
    v: Any,
    trials: Any,
    tried: Any,
    rows: VertexRows,
    rules: StepRules,
    out_words: Any,
    n_words: Any,
) -> Any:
    """Make one step of a walker that came from t to v, whose row is here, as far as this task can decide it.

    The distribution of steps is that of `transition` in tests/tasks/test_walk_distribution.py.

    Args:
        state: of the walker's random stream.
        trials: darts of this step that were rejected.
        tried: tries of this trial that are answered.

    Writes:
        out_words: from ``n_words`` on, vertices to ask about, the last one with `CERTAIN` if it is to be taken in any
            case.

    Returns:
        (outcome, vertex, state, trials, tried, words written, width of the dart's target). For `WANTS_NEAR` the vertex
        is the dart's, or -1 if it is rejected.
    """
    low, high, bits, headers, indices, weights, alias, totals = borrow(rows)
    p, q, directed = rules.p, rules.q, rules.directed
    mask = (np.uint64(1) << bits) - np.uint64(1)
    weighted = len(alias) > 0
    row, degree = headers[v - low] >> bits, headers[v - low] & mask
    t_here = low <= t < high
    near_header = headers[t - low] if t_here else np.uint64(0)
    near, near_degree = near_header >> bits, near_header & mask
    busy = n_words >= rules.row_words

    # Dart's target: width = degree + degree x (share of the return's weight) x max(q / p - 1, 0).
    edges = np.float64(np.int64(degree))
    outlier, returning = dart_acceptance(p, q)
    width = edges
    way_back = NONE
    if t >= 0 and outlier > 0.0:
        way_back = find(indices, row, degree, t) if weighted or directed else np.int64(0)
        if not weighted:
            width = edges + outlier
        elif way_back >= 0:
            width = edges + extra_width(edges, np.float64(weights[way_back]) / totals[v - low], outlier)
    most = free_trials(degree)
    while True:
        if trials == FREE_TRIALS:  # P(x) ~ w(v, x) bias(t, x), from the whole row
            if not t_here:
                return WAITS if busy else WANTS_EDGE, NONE, state if busy else state + GAMMA, trials, tried, 0, width
            state += GAMMA
            fraction = fraction_of(mix(state))
            j = exact_edge(indices, row, degree, weights, indices, near, near_degree, t, p, q, fraction)
            return TAKEN, np.int64(indices[j]), state, trials, tried, 0, width

        # Tries: P(number >= k) = (a / (a + width))^k, a = (q - 1) degree; each takes x ~ w(v, x) if t -> x exists.
        end = state + TRIAL_WORDS
        s = try_state(end)
        kept = 0
        tries = near_tries(fraction_of(mix(end)), edges, width, q, most) if t >= 0 else np.int64(0)
        while tried < min(tries, most):
            word = s + np.uint64(2 * tried) * GAMMA
            column = uniform_edge(mix(word + GAMMA), row, degree)
            x = np.int64(indices[drawn_edge(alias, column, row, mix(word + GAMMA + GAMMA), weighted)])
            tried += 1
            if x == t:
                continue
            is_near = near_here(headers, bits, indices, low, high, directed, t, x)
            if is_near == 0:
                continue
            if is_near == 1 and kept == 0:
                return TAKEN, x, end, trials, tried, 0, width
            if n_words + kept >= len(out_words):
                return NO_SPACE, NONE, state, trials, tried, 0, width
            out_words[n_words + kept] = x | CERTAIN if is_near == 1 else x
            kept += 1
            if is_near == 1 or kept == rules.list_words:
                return ASKS, NONE, state, trials, tried, kept, width

        # Dart: a column of the row, of which a return is taken under min(q / p, 1), or the outlier, the return itself.
        column, height = throw(mix(state + GAMMA), width * FRACTION)
        if column >= np.int64(degree):
            x = t if weighted or way_back >= 0 else NONE
        else:
            column += np.int64(row)
            x = np.int64(indices[drawn_edge(alias, column, row, mix(state + GAMMA + GAMMA), weighted)])
            if x == t and height >= returning:
                x = NONE
        if tries > most and kept == 0:  # one draw from the row replaces the tries that are left
            if not t_here:
                return WAITS if busy else WANTS_NEAR, x, state, trials, tried, 0, width
            j = exact_near(indices, row, degree, weights, indices, near, near_degree, t, q, width, fraction_of(mix(s)))
            if j >= 0:
                return TAKEN, np.int64(indices[j]), end, trials, tried, 0, width
        if kept > 0:
            if x >= 0 and tries <= most:
                if n_words + kept >= len(out_words):
                    return NO_SPACE, NONE, state, trials, tried, 0, width
                out_words[n_words + kept] = x | CERTAIN
                kept += 1
            return ASKS, NONE, state, trials, tried, kept, width
        if x >= 0:
            return TAKEN, x, end, trials, tried, 0, width
        state = end
        trials += 1
        tried = 0
