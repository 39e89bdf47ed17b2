"""Step by darts alone of a travelling walker, as far as the task of its vertex can decide it, by the rules of
`rejection`."""

from typing import Any

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.walk.kernels.adjacency import find
from superworkflow.tasks.walk.kernels.second_order import FRACTION, exact_edge, extra_width, fraction_of, throw
from superworkflow.tasks.walk.partitioned.step_rules import (
    ASKS,
    CERTAIN,
    NO_SPACE,
    NONE,
    TAKEN,
    WAITS,
    WANTS_EDGE,
    StepRules,
    drawn_edge,
    near_here,
)
from superworkflow.tasks.walk.partitioned.vertex_ranges import VertexRows

VERTEX_BITS = 40
"""Bits of a listed dart for its vertex: certain << 63 | words drawn << 40 | vertex."""


@nb.njit(inline="always")
def step_by_darts(
    state: Any, t: Any, v: Any, trials: Any, closed: Any, rows: VertexRows, rules: StepRules, accepted: Any,
    out_words: Any, n_words: Any,
) -> Any:  # fmt: skip
    """Make one step of a walker that came from t to v, whose row is here, as far as this task can decide it.

    The distribution of steps is that of `transition` in tests/tasks/test_walk_distribution.py.

    Args:
        state: of the walker's random stream.
        trials: darts left before the step is drawn from the whole row.
        closed: 1 if there is no edge back to t, found out in this step.
        accepted: result of `acceptance`.

    Writes:
        out_words: from ``n_words`` on, darts to ask about, the last one with `CERTAIN` if it is to be taken in any
            case.

    Returns:
        (outcome, vertex, state, trials, closed, words written).
    """
    low, high, bits, headers, indices, weights, alias, totals = rows
    board, certain, returning, outlier, taken_near = accepted
    mask = (np.uint64(1) << bits) - np.uint64(1)
    weighted, directed = len(alias) > 0, rules.directed
    row, degree = headers[v - low] >> bits, headers[v - low] & mask

    # Target: width = degree + degree x (share of the return's weight) x max(1 / p - board, 0) / board.
    edges = np.float64(np.int64(degree))
    width = edges
    if t >= 0 and outlier > 0.0:
        if weighted:
            j = find(indices, row, degree, t)
            if j >= 0:
                width = edges + extra_width(edges, np.float64(weights[j]) / totals[v - low], outlier)
        elif closed == 0:
            width = edges + outlier
    scale = width * FRACTION

    # Throw darts until one is taken in any case. What stays open before it is listed, together with all that the
    # walker needs to come back if none of the list is taken.
    outcome: Any = np.int64(TAKEN)
    taken, kept = NONE, 0
    s, draws, left, missing = state, 0, trials, closed
    while True:
        s += GAMMA
        draws += 1
        column, height = throw(mix(s), scale)
        left -= 1
        candidate = t
        yes = True
        if column < np.int64(degree):
            height *= board
            word = s
            if weighted:
                s += GAMMA
                draws += 1
                word = mix(s)
            j = drawn_edge(alias, np.int64(row) + column, row, word, weighted)
            if left < 0:  # P(x) ~ w(v, x) bias(t, x), from the whole row
                if kept > 0:
                    outcome = ASKS
                    break
                s += GAMMA
                if not low <= t < high:
                    outcome = WAITS if n_words >= rules.row_words else WANTS_EDGE
                    break
                near = headers[t - low]
                fraction = fraction_of(mix(s))
                j = exact_edge(
                    indices, row, degree, weights, indices, near >> bits, near & mask, t, rules.p, rules.q, fraction
                )
                candidate = np.int64(indices[j])
            else:  # taken under min(1, 1 / q), a return under 1 / p; above it if (t -> x exists) = (q >= 1)
                candidate = np.int64(indices[j])
                back = candidate == t
                yes = (height < (returning if back else certain)) or t < 0
                if not yes:
                    if back:
                        continue
                    is_near = near_here(headers, bits, indices, low, high, directed, t, candidate)
                    yes = is_near >= 0 and (is_near == 1) == taken_near
                    if is_near >= 0 and not yes:
                        continue
        elif directed and not weighted and find(indices, row, degree, t) < 0:
            scale = edges * FRACTION
            missing = np.int64(1)
            continue
        if yes and kept == 0:
            taken = candidate
            break
        if n_words + kept >= len(out_words):
            outcome = NO_SPACE
            break
        listed = candidate | (np.int64(draws) << VERTEX_BITS)
        out_words[n_words + kept] = (listed | CERTAIN) if yes else listed
        kept += 1
        trials, closed = left, missing
        if yes or kept == rules.list_words:
            outcome = ASKS
            break
    if outcome in (TAKEN, WANTS_EDGE):  # else the step continues from its begin when the list is answered
        state = s
    return outcome, taken, state, trials, closed, kept
