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

from superworkflow.tasks.lib.kernels.borrow import borrow
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.walk.kernels.adjacency import OPTIONS
from superworkflow.tasks.walk.kernels.second_order import (
    FREE_TRIALS,
    TRIAL_WORDS,
    acceptance,
    alias_column,
    alias_edge,
    exact_edge,
    exact_near,
    fraction_of,
    free_trials,
    try_state,
    uniform_edge,
)
from superworkflow.tasks.walk.kernels.starts import start_vertices, walk_state
from superworkflow.tasks.walk.partitioned.dart_step import VERTEX_BITS, step_by_darts
from superworkflow.tasks.walk.partitioned.mixture_step import step_inward
from superworkflow.tasks.walk.partitioned.step_rules import (
    ASKS,
    NO_SPACE,
    NONE,
    TAKEN,
    WAITS,
    WANTS_NEAR,
    StepRules,
    near_here,
)
from superworkflow.tasks.walk.partitioned.vertex_ranges import VertexRanges, VertexRows

ARRIVE, TRY, ASK, EXACT, ENDED = 0, 1, 2, 3, 4
"""Phases of a step: arrived at the vertex; back there for more darts; with darts to ask about; with a row to draw from;
end of the walk."""

MOST_VERTICES = 1 << VERTEX_BITS
_VERTEX = MOST_VERTICES - 1
_DRAWS = (1 << 23) - 1
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
def advance(
    batch: Any, out: Any, to: Any, cursor: Any, here: int, ranges: VertexRanges, rows: VertexRows, rules: StepRules
) -> bool:
    """Advance each walker as far as the rows of a task allow; False if ``out`` has no space for its words or tokens.

    Their distribution is that of `transition` in tests/tasks/test_walk_distribution.py. After False, call again with
    more space: the cursor is where to continue.

    Args:
        batch: a `WalkerBatch`, read from ``cursor[0:3]`` on.
        here: number of the task.

    Writes:
        out: a `WalkerBatch`, from ``cursor[3:5]`` on; a walker keeps its place.
        to: int32 [walkers], the task that each walker needs next.
        cursor: int64 [5], walkers, words and tokens read, words and tokens written.
    """
    walkers, words, tokens = borrow(batch)
    out_walkers, out_words, out_tokens = borrow(out)
    rows, ranges = borrow(rows), borrow(ranges)
    out_reals = out_words.view(np.float64)
    cuts, copies = ranges
    low, high, bits, headers, indices, weights, alias, _ = rows
    mask = (_ONE << bits) - _ONE
    weighted = len(alias) > 0
    accepted = acceptance(rules.p, rules.q)
    taken_near = accepted[4]
    asks_previous = rules.directed or taken_near  # else the x's own task, where the walker mostly stays
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
        if n_tokens + carried + rules.length - position > len(out_tokens):
            return False
        for k in range(carried):
            out_tokens[n_tokens + k] = tokens[token_at + k]
        target = here
        kept = 0  # words that it takes along
        x = NONE  # vertex that is taken

        # Finish the step with which it came, by the row of t or a list of darts.
        if phase == EXACT:
            ahead = 2 if closed and rules.tries else 0
            x, state = _draw_from_carried(words[word_at : word_at + listed], ahead, state, t, rows, rules)
            if x < 0:
                trials += 1
                tried = np.int64(0)
            phase = TRY
        elif phase == ASK:
            x, drawn, kept = _answer(words, word_at, listed, t, rows, rules.directed, taken_near)
            if kept > 0:  # the rest is to be asked about elsewhere
                if n_words + kept > len(out_words):
                    return False
                for k in range(kept):
                    out_words[n_words + k] = words[word_at + listed - kept + k]
                target = owner(t if asks_previous else out_words[n_words] & _VERTEX, walk, cuts, copies)
            else:
                phase = TRY
                if not rules.tries:
                    state += drawn * GAMMA
                elif x >= 0:
                    state += TRIAL_WORDS

        # Step from vertex to vertex until a row of another task is needed.
        while phase != ASK:
            if x >= 0:
                position += 1
                out_tokens[n_tokens + carried] = x
                carried += 1
                t, v, x = v, x, NONE
                phase = ARRIVE
            if position == rules.length - 1:
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
            if not rules.second_order:  # P(x) ~ w(v, x)
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

            # P(x) ~ w(v, x) bias(t, x)
            width = 0.0
            if rules.tries:
                if phase == ARRIVE:
                    trials, tried = np.int64(0), np.int64(0)
                outcome, x, state, trials, tried, kept, width = step_inward(
                    state, t, v, trials, tried, rows, rules, out_words, n_words
                )
            else:
                if phase == ARRIVE:
                    trials = free_trials(degree) if t >= 0 else np.int64(FREE_TRIALS)
                    closed = np.int64(0)
                outcome, x, state, trials, closed, kept = step_by_darts(
                    state, t, v, trials, closed, rows, rules, accepted, out_words, n_words
                )
            if outcome == TAKEN:
                continue
            if outcome == NO_SPACE:
                return False
            if outcome == WAITS:  # the step begins again from where it was, with its tries answered
                phase, kept, x = TRY, 0, NONE
                break
            if outcome == ASKS:
                phase = ASK
                target = owner(t if asks_previous else out_words[n_words] & _VERTEX, walk, cuts, copies)
                break
            # Take the row along to the task of t, behind the vertex of the dart and the width of its target.
            ahead = 2 if outcome == WANTS_NEAR else 0
            kept = ahead + np.int64(degree) * (2 if weighted else 1)
            if n_words + kept > len(out_words):
                return False
            if ahead:
                out_words[n_words], out_reals[n_words + 1] = x, width
            for k in range(np.int64(degree)):
                out_words[n_words + ahead + k] = indices[np.int64(row) + k]
                if weighted:
                    out_reals[n_words + ahead + np.int64(degree) + k] = weights[np.int64(row) + k]
            phase, closed, x = EXACT, 1 if ahead else 0, NONE
            target = owner(t, walk, cuts, copies)
            break

        w = out_walkers[i]
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
def _draw_from_carried(words, ahead, state, t, rows, rules):  # type: ignore[no-untyped-def]
    """(vertex or -1, state) of a step that is drawn from the row in ``words``, at the task of t.

    P(x) ~ w(v, x) bias(t, x); or, with the dart's vertex and the width of its target ``ahead`` of the row, what is left
    of a trial: a neighbour x of t ~ (q - 1) w(v, x), or the dart ~ width.
    """
    low, _, bits, headers, indices, _, alias, _ = rows
    mask = (_ONE << bits) - _ONE
    weighted = len(alias) > 0
    reals = words.view(np.float64)
    degree = (len(words) - ahead) // 2 if weighted else len(words) - ahead
    row, row_weights = np.uint64(ahead), reals[degree:] if weighted else reals[:0]
    near, near_degree = headers[t - low] >> bits, headers[t - low] & mask
    if ahead:
        state += TRIAL_WORDS
        fraction = fraction_of(mix(try_state(state)))
        j = exact_near(words, row, degree, row_weights, indices, near, near_degree, t, rules.q, reals[1], fraction)
        return words[j] if j >= 0 else words[0], state
    fraction = fraction_of(mix(state))
    j = exact_edge(words, row, degree, row_weights, indices, near, near_degree, t, rules.p, rules.q, fraction)
    return words[j], state


@nb.njit(inline="always")
def _answer(words, first, count, t, rows, directed, taken_near):  # type: ignore[no-untyped-def]
    """(vertex that is taken or -1, random words drawn until then, darts left to ask about elsewhere) of a list."""
    low, high, bits, headers, indices, _, _, _ = rows
    x, drawn, left = NONE, np.uint64(0), 0
    for k in range(count):
        word = words[first + k]
        candidate = word & _VERTEX
        yes = word < 0
        if not yes:
            is_near = near_here(headers, bits, indices, low, high, directed, t, candidate)
            if is_near < 0:
                left = count - k
                break
            yes = (is_near == 1) == taken_near
        drawn = np.uint64((word >> VERTEX_BITS) & _DRAWS)
        if yes:
            x = candidate
            break
    return x, drawn, left


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
