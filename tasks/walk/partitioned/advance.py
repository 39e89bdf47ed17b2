"""Walkers on a part of the graph: each advances until it needs a row of another task.

The adjacency is cut into ranges of vertices (`vertex_ranges`); a task has the rows of one. A walker is a record that
holds all of its state, so any task that has the row of its vertex can advance it. A step of a first-order walk needs
no other row. A second-order step throws its darts where the row of its vertex is, and lists those for which the edge
t -> x decides, up to the first that is taken in any case. The list is answered at a task that has the row of t,
or, for an undirected graph, that of the x in question, and the walker continues at the x that is taken. Random
numbers are those of `rejection` and `mixture`, word for word: a dart is listed with the number of words drawn until
then. If steps have tries (`mixture_step`), these are listed, and last the dart that is taken if none of them is.

A step that is drawn from the whole row carries the row to the task of t. Such a row may be long, so a task sends only
a limited number of words at once; further walkers wait where they are.
"""

from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.walk.kernels.adjacency import OPTIONS, find
from superworkflow.tasks.walk.kernels.second_order import (
    FRACTION,
    FREE_TRIALS,
    TRIAL_WORDS,
    acceptance,
    alias_column,
    alias_edge,
    exact_edge,
    exact_near,
    extra_width,
    fraction_of,
    free_trials,
    throw,
    try_state,
    uniform_edge,
)
from superworkflow.tasks.walk.kernels.starts import start_vertices, walk_state
from superworkflow.tasks.walk.partitioned.mixture_step import ASKS, NO_SPACE, TAKEN, WANTS_NEAR, step_inward

ARRIVE, TRY, ASK, EXACT, ENDED = 0, 1, 2, 3, 4
"""Phases of a step: arrived at the vertex; back there for more darts; with darts to ask about; with a row to draw from;
end of the walk."""

MOST_VERTICES = 1 << 40  # a listed dart is certain << 63 | words drawn << 40 | vertex
_VERTEX_BITS = 40
_VERTEX = (1 << _VERTEX_BITS) - 1
_DRAWS = (1 << 23) - 1
_CERTAIN = -(1 << 63)
_NONE = np.int64(-1)
_LOW, _32, _ONE = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(1)


def walker_type(vertex: npt.DTypeLike) -> np.dtype[Any]:
    """Record of a walker. `walk` counts from the first of its batch; `words` and `tokens` count what it
    carries of the list and of the walk; `closed` is set if there is no edge back to t, or if the row that it carries
    is for the rest of its tries, of which `tried` are answered."""
    return np.dtype(
        [
            ("state", "u8"), ("walk", "i4"), ("position", "i4"), ("trials", "i4"), ("tried", "i4"), ("words", "i4"),
            ("tokens", "i4"), ("previous", vertex), ("current", vertex), ("phase", "i1"), ("closed", "i1"),
        ]
    )  # fmt: skip


@nb.njit(inline="always")
def owner(v, walk, cuts, copies):  # type: ignore[no-untyped-def]
    """The task of a vertex for a walk: range r, cuts[r] <= v < cuts[r + 1], has the tasks copies[r]..copies[r + 1]."""
    low, high = 0, len(cuts) - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if cuts[middle] <= v:
            low = middle
        else:
            high = middle
    return copies[low] + walk % (copies[low + 1] - copies[low])


@nb.njit(**OPTIONS)
def begin(seed, starts, n_starts, first, base, cuts, copies, walkers, tokens, to):  # type: ignore[no-untyped-def]
    """The walks first, first + 1, … of the batch that begins with walk ``base``, at their start vertices."""
    for i, v in enumerate(start_vertices(seed, first, n_starts, starts, len(walkers))):
        w = walkers[i]
        w.state, w.walk, w.position, w.trials = walk_state(seed, np.uint64(first + i)), first + i - base, 0, 0
        w.words, w.tokens, w.previous, w.current = 0, 1, -1, v
        w.phase, w.closed, w.tried = ARRIVE, 0, 0
        tokens[i] = v
        to[i] = owner(v, first + i - base, cuts, copies)


@nb.njit(**OPTIONS)
def advance(  # type: ignore[no-untyped-def]
    walkers, words, tokens, out, out_words, out_tokens, to, cursor, here, cuts, copies,
    low, high, headers, bits, indices, weights, alias, totals, directed, second_order, inward, p, q, length,
    list_words, row_words,
):  # fmt: skip
    """Advance each walker as far as possible, and set in ``to`` the task that it needs next.

    Reads ``walkers``, ``words`` and ``tokens`` from ``cursor[0:3]`` on and writes ``out``, ``out_words`` and
    ``out_tokens`` from ``cursor[3:5]`` on (a walker keeps its place). False if the space for words or tokens does
    not suffice: call again with more, to continue from the cursor. ``headers``, ``indices``, … are the rows of
    the vertices low..high-1; ``weights`` and ``alias`` are empty for an unweighted graph. No walker asks about more
    than ``list_words`` darts at a time, and none takes a row along once there are ``row_words`` words.
    """
    mask = (_ONE << bits) - _ONE
    weighted = len(alias) > 0
    board, certain, returning, outlier, taken_near = acceptance(p, q)
    asks_previous = directed or taken_near  # else the x's own task, where the walker mostly stays
    reals, out_reals = words.view(np.float64), out_words.view(np.float64)
    phase: Any
    closed: Any
    kept: Any
    i, word_at, token_at, n_words, n_tokens = cursor[0], cursor[1], cursor[2], cursor[3], cursor[4]
    while i < len(walkers):
        cursor[0], cursor[1], cursor[2], cursor[3], cursor[4] = i, word_at, token_at, n_words, n_tokens
        w = walkers[i]
        state, walk, position, trials = w.state, np.int64(w.walk), np.int64(w.position), np.int64(w.trials)
        t, v, phase, closed = np.int64(w.previous), np.int64(w.current), np.int64(w.phase), np.int64(w.closed)
        tried = np.int64(w.tried)
        listed, carried = np.int64(w.words), np.int64(w.tokens)
        if n_tokens + carried + length - position > len(out_tokens):
            return False
        for k in range(carried):
            out_tokens[n_tokens + k] = tokens[token_at + k]
        target = here
        kept = 0  # words that it takes along
        x = _NONE  # vertex that is taken

        if phase == EXACT:
            ahead = 2 if closed and inward else 0  # the dart's vertex and the width of its target
            degree = (listed - ahead) // 2 if weighted else listed - ahead
            header = headers[t - low]
            row, t_row, t_degree = np.uint64(word_at + ahead), header >> bits, header & mask
            row_weights = reals[degree:] if weighted else reals[:0]
            if ahead:
                state += TRIAL_WORDS
                fraction = fraction_of(mix(try_state(state)))
                j = exact_near(
                    words, row, degree, row_weights, indices, t_row, t_degree, t, q, reals[word_at + 1], fraction
                )
                x = words[j] if j >= 0 else words[word_at]
                if x < 0:
                    trials += 1
                    tried = np.int64(0)
                phase = TRY
            else:
                fraction = fraction_of(mix(state))
                j = exact_edge(words, row, degree, row_weights, indices, t_row, t_degree, t, p, q, fraction)
                x = words[j]
        elif phase == ASK:
            drawn = np.uint64(0)
            phase = TRY
            for k in range(listed):
                word = words[word_at + k]
                candidate = word & _VERTEX
                yes = word < 0
                if not yes:
                    if low <= t < high:
                        header = headers[t - low]
                        near = find(indices, header >> bits, header & mask, candidate) >= 0
                    elif not directed and low <= candidate < high:
                        header = headers[candidate - low]
                        near = find(indices, header >> bits, header & mask, t) >= 0
                    else:  # the rest is to be asked about elsewhere
                        kept = listed - k
                        if n_words + kept > len(out_words):
                            return False
                        for rest in range(kept):
                            out_words[n_words + rest] = words[word_at + k + rest]
                        target = owner(t if asks_previous else candidate, walk, cuts, copies)
                        phase = ASK
                        break
                    yes = near == taken_near
                drawn = np.uint64((word >> _VERTEX_BITS) & _DRAWS)
                if yes:
                    x = candidate
                    break
            if phase == TRY and inward:
                state += TRIAL_WORDS if x >= 0 else np.uint64(0)
            elif phase == TRY:
                state += drawn * GAMMA

        while phase != ASK:
            if x >= 0:
                position += 1
                out_tokens[n_tokens + carried] = x
                carried += 1
                t, v, x = v, x, _NONE
                phase = ARRIVE
            if position == length - 1:
                phase = ENDED
                break
            if not low <= v < high:
                target = owner(v, walk, cuts, copies)
                break
            header = headers[v - low]
            row, degree = header >> bits, header & mask
            if degree == 0:
                phase = ENDED
                break
            if not second_order:
                state += GAMMA
                r = mix(state)
                if weighted:
                    product = alias_column(r, degree)
                    j = np.int64(row + (product >> _32))
                    j = alias_edge(alias[j], product & _LOW, j, row)
                else:
                    j = uniform_edge(r, row, degree)
                x = np.int64(indices[j])
                continue

            if inward:
                if phase == ARRIVE:
                    trials, tried = np.int64(0), np.int64(0)
                total = totals[v - low] if weighted else 0.0
                end, x, state, trials, tried, kept, width = step_inward(
                    state, t, trials, tried, low, high, headers, bits, header, indices, weights, alias, total, directed,
                    p, q, out_words, n_words, list_words, _CERTAIN,
                )  # fmt: skip
                if end == TAKEN:
                    continue
                if end == NO_SPACE:
                    return False
                if end == ASKS:
                    phase = ASK
                    target = owner(t if asks_previous else out_words[n_words] & _VERTEX, walk, cuts, copies)
                    break
                ahead = 2 if end == WANTS_NEAR else 0
                kept = ahead + np.int64(degree) * (2 if weighted else 1)
                if n_words >= row_words:
                    # Too much of this is on its way: the step begins again from where it was, with its tries answered.
                    if end != WANTS_NEAR:
                        state -= GAMMA
                    phase, kept, x = TRY, 0, _NONE
                    break
                if n_words + kept > len(out_words):
                    return False
                if ahead:
                    out_words[n_words], out_reals[n_words + 1] = x, width
                for k in range(np.int64(degree)):
                    out_words[n_words + ahead + k] = indices[np.int64(row) + k]
                    if weighted:
                        out_reals[n_words + ahead + np.int64(degree) + k] = weights[np.int64(row) + k]
                phase, closed, x = EXACT, 1 if ahead else 0, _NONE
                target = owner(t, walk, cuts, copies)
                break

            edges = np.float64(np.int64(degree))
            if phase == ARRIVE:
                trials = free_trials(degree) if t >= 0 else np.int64(FREE_TRIALS)
                closed = 0
            scale = edges * FRACTION
            if t >= 0 and outlier > 0.0:
                if weighted:
                    j = find(indices, row, degree, t)
                    if j >= 0:
                        share = np.float64(weights[j]) / totals[v - low]
                        scale = (edges + extra_width(edges, share, outlier)) * FRACTION
                elif closed == 0:
                    scale = (edges + outlier) * FRACTION
            # Throw darts until one is taken in any case. What stays open before it is noted in a list, together with
            # all that the walker needs to come back if none of the list is taken.
            s, draws, left, missing = state, 0, trials, closed
            while True:
                s += GAMMA
                draws += 1
                column, height = throw(mix(s), scale)
                left -= 1
                candidate = t
                yes = True
                if column < np.int64(degree):
                    j = np.int64(row) + column
                    height *= board
                    if weighted:
                        s += GAMMA
                        draws += 1
                        j = alias_edge(alias[j], mix(s) & _LOW, j, row)
                    if left < 0:
                        if kept > 0:
                            break
                        s += GAMMA
                        if low <= t < high:
                            h = headers[t - low]
                            fraction = fraction_of(mix(s))
                            j = exact_edge(
                                indices, row, degree, weights, indices, h >> bits, h & mask, t, p, q, fraction
                            )
                            candidate = np.int64(indices[j])
                        else:
                            phase = EXACT
                            break
                    else:
                        candidate = np.int64(indices[j])
                        back = candidate == t
                        yes = (height < (returning if back else certain)) or t < 0
                        if not yes:
                            if back:
                                continue
                            if low <= t < high:
                                h = headers[t - low]
                                yes = (find(indices, h >> bits, h & mask, candidate) >= 0) == taken_near
                                if not yes:
                                    continue
                            elif not directed and low <= candidate < high:
                                h = headers[candidate - low]
                                yes = (find(indices, h >> bits, h & mask, t) >= 0) == taken_near
                                if not yes:
                                    continue
                elif directed and not weighted and find(indices, row, degree, t) < 0:
                    scale = edges * FRACTION
                    missing = 1
                    continue
                if yes and kept == 0:
                    x = candidate
                    state = s
                    break
                if n_words + kept >= len(out_words):
                    return False
                noted = candidate | (np.int64(draws) << _VERTEX_BITS)
                out_words[n_words + kept] = (noted | _CERTAIN) if yes else noted
                kept += 1
                trials, closed = left, missing
                if yes or kept == list_words:
                    break
            if x >= 0:
                continue
            if kept > 0:
                phase = ASK
                target = owner(t if asks_previous else out_words[n_words] & _VERTEX, walk, cuts, copies)
                break
            # The whole row goes to the task of t, unless too much of this is on its way already.
            if n_words >= row_words:
                phase = TRY
                break
            kept = np.int64(degree) * (2 if weighted else 1)
            if n_words + kept > len(out_words):
                return False
            for k in range(np.int64(degree)):
                out_words[n_words + k] = indices[np.int64(row) + k]
                if weighted:
                    out_reals[n_words + np.int64(degree) + k] = weights[np.int64(row) + k]
            state = s
            target = owner(t, walk, cuts, copies)
            break

        w = out[i]
        w.state, w.walk, w.position, w.trials, w.words, w.tokens = state, walk, position, trials, kept, carried
        w.previous, w.current, w.phase, w.closed, w.tried = t, v, phase, closed, tried
        to[i] = target
        word_at += listed
        token_at += np.int64(walkers[i].tokens)
        n_words += kept
        n_tokens += carried
        i += 1
    cursor[0], cursor[1], cursor[2], cursor[3], cursor[4] = i, word_at, token_at, n_words, n_tokens
    return True


@nb.njit(**OPTIONS)
def sort_by_task(walkers, words, tokens, to, tasks, out, out_words, out_tokens):  # type: ignore[no-untyped-def]
    """Bring walkers with their words and tokens into the order of their tasks; int64[tasks + 1, 3]: where each
    task's walkers, words and tokens begin."""
    begins = np.zeros((tasks + 1, 3), np.int64)
    for i in range(len(walkers)):
        place = begins[to[i] + 1]
        place[0] += 1
        place[1] += walkers[i].words
        place[2] += walkers[i].tokens
    for k in range(tasks):
        for field in range(3):
            begins[k + 1, field] += begins[k, field]
    ends = begins[:-1].copy()
    word_at = token_at = np.int64(0)
    for i in range(len(walkers)):
        place = ends[to[i]]
        w = walkers[i]
        out[place[0]] = w
        n_words, n_tokens = np.int64(w.words), np.int64(w.tokens)
        for k in range(n_words):
            out_words[place[1] + k] = words[word_at + k]
        for k in range(n_tokens):
            out_tokens[place[2] + k] = tokens[token_at + k]
        place[0] += 1
        place[1] += n_words
        place[2] += n_tokens
        word_at += n_words
        token_at += n_tokens
    return begins


@nb.njit(**OPTIONS)
def place_tokens(walks, positions, counts, tokens, first, shard):  # type: ignore[no-untyped-def]
    """Write pieces of walks into the rows of a shard [walks, length] that begins with walk ``first``."""
    token = 0
    for i in range(len(walks)):
        row = shard[walks[i] - first]
        for k in range(counts[i]):
            row[positions[i] + k] = tokens[token + k]
        token += counts[i]
