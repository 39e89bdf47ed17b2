"""Second-order walks (node2vec; Grover & Leskovec, KDD 2016) by rejection, without second-order tables.

From v, reached from t, the next vertex x has probability proportional to ``w(v, x) * bias``, where bias is 1/p
for x = t, 1 where the edge t -> x exists (x is at distance 1 from t), and 1/q elsewhere.

A trial throws a dart: an edge v -> x in proportion to w, and a height under the largest bias of the edges that do
not return, M = max(1, 1/q). It is accepted under the bias of x. Most heights decide without looking at the
neighbours of t: under min(1, 1/q) every x is taken, and above it the answer is only whether t -> x exists, which
a bit table (`_pairs`) mostly tells at once.
What the return edge has above M lies beside the board as a target of its own (Yang et al., "KnightKing",
SOSP 2019, fold outliers so), hence a small p costs no acceptance. After ``FREE_TRIALS + degree / 4`` trials the
step is drawn from the exact distribution of the row, so no p and q can make a walk hang; both ways have
the same distribution, and so has the mixture.

The walkers of a batch move in phases, each of which prefetches what the next one reads, like the first-order
ones; since they need different numbers of trials, each has its own place in its own walk and takes the
next walk of the range when it is done.
"""

import numba as nb
import numpy as np

from tasks.walk._first_order import start_vertex
from tasks.walk._pairs import locate
from tasks.walk._prefetch import prefetch
from tasks.walk._random import GAMMA, mix, walk_state
from tasks.walk._rows import OPTIONS, PADDING, find, holds

BATCH = 128
FREE_TRIALS = 16
_FRACTION = 2.0**-52  # a 52-bit fraction times a degree rounds to less than the degree
_12 = np.uint64(12)
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_PADDING = np.uint64(PADDING)


@nb.njit(**OPTIONS)
def exact_edge(headers, bits, indices, weights, previous, current, p, q, fraction):  # type: ignore[no-untyped-def]
    """Index of the edge that leaves ``current``, drawn from the whole row; O(degree log degree).

    ``weights`` is empty for an unweighted graph. ``fraction`` is uniform in [0, 1).
    """
    mask = (_ONE << bits) - _ONE
    row, row_degree = headers[current] >> bits, headers[current] & mask
    near, near_degree = headers[previous] >> bits, headers[previous] & mask
    total = 0.0
    target = np.inf
    for sweep in range(2):
        if sweep == 1:
            target = fraction * total
        total = 0.0
        for i in range(row_degree):
            x = np.int64(indices[row + np.uint64(i)])
            if x == previous:
                bias = 1.0 / p
            elif find(indices, near, near_degree, x) >= 0:
                bias = 1.0
            else:
                bias = 1.0 / q
            if len(weights) > 0:
                bias *= np.float64(weights[row + np.uint64(i)])
            total += bias
            if total > target:
                return np.int64(row + np.uint64(i))
    return np.int64(row + row_degree - _ONE)


@nb.njit(**OPTIONS)
def node2vec_walks(  # type: ignore[no-untyped-def]
    headers, bits, indices, weights, alias, totals, table, final, directed, p, q, starts, n_starts, seed, first, out
):
    """Fill ``out`` [walks, walk_length] with the walks first, first + 1, ...; -1 after a sink.

    ``weights``, ``alias`` and ``totals`` are empty for an unweighted graph.
    """
    rows, length = out.shape
    mask = (_ONE << bits) - _ONE
    weighted = len(alias) > 0
    vertices, words = np.uint64(len(headers) - 1), np.uint64(len(table))
    board = max(1.0, 1.0 / q)
    certain = min(1.0, 1.0 / q)
    returning = min(1.0 / p, board)
    beside = max(1.0 / p - board, 0.0) / board  # target beside the board, in edges of the row's mean weight
    taken_near = q >= 1.0  # above ``certain``, is x taken if t -> x exists, or if it does not?

    current = np.empty(BATCH, np.int64)
    header = np.empty(BATCH, np.uint64)
    previous = np.empty(BATCH, np.int64)
    previous_header = np.empty(BATCH, np.uint64)
    state = np.empty(BATCH, np.uint64)
    scale = np.empty(BATCH, np.float64)  # (degree + target beside) * 2**-52
    top = np.empty(BATCH, np.float64)  # board, or 0 for a first step: any dart is accepted
    trials = np.empty(BATCH, np.int32)  # trials left before the exact draw
    row = np.empty(BATCH, np.int32)
    step = np.empty(BATCH, np.int32)
    edge = np.empty(BATCH, np.int64)
    height = np.empty(BATCH, np.float64)
    candidate = np.empty(BATCH, np.int64)
    word = np.empty(BATCH, np.uint64)
    pattern = np.empty(BATCH, np.uint64)
    sought = np.empty(BATCH, np.int64)
    base = np.empty(BATCH, np.uint64)
    span = np.empty(BATCH, np.uint64)
    # Lists of walkers. They are appended to without a branch, so the entry after the last is written too.
    vacant = np.arange(BATCH + 1).astype(np.uint64)
    ready = np.empty(BATCH + 1, np.uint64)
    taken = np.empty(BATCH + 1, np.uint64)
    unsure = np.empty(BATCH + 1, np.uint64)
    search = np.empty(BATCH + 1, np.uint64)
    n_vacant, n_ready, n_search, made = BATCH, 0, 0, 0

    while True:
        # Walkers without a walk take the next ones.
        begun = min(n_vacant, rows - made)
        for i in range(begun):
            v = start_vertex(seed, np.uint64(first + made + i), starts, n_starts)
            current[vacant[i]] = v
            out[made + i, 0] = v
            prefetch(headers, v)
        n_vacant = 0
        for i in range(begun):
            k = vacant[i]
            h = headers[np.uint64(current[k])]
            if length > 1 and (h & mask) > _ZERO:
                header[k], previous[k], previous_header[k] = h, -1, _ZERO
                state[k] = walk_state(seed, np.uint64(first + made))
                scale[k] = np.float64(np.int64(h & mask)) * _FRACTION
                top[k], trials[k] = 0.0, FREE_TRIALS
                row[k], step[k] = made, 1
                ready[np.uint64(n_ready)] = k
                n_ready += 1
            else:
                out[made, 1:] = -1
                vacant[np.uint64(n_vacant)] = k
                n_vacant += 1
            made += 1
        if n_ready + n_search == 0 and made == rows:
            return

        # Throw a dart for each walker.
        for i in range(n_ready):
            k = ready[i]
            s = state[k] + GAMMA
            state[k] = s
            h = header[k]
            place = np.float64(np.int64(mix(s) >> _12)) * scale[k]
            column = np.int64(place)
            height[k] = (place - np.float64(column)) * top[k]
            j = np.int64(h >> bits) + column
            edge[k] = j if column < np.int64(h & mask) else -1
            trials[k] -= 1
            if weighted:
                prefetch(alias, j)
            else:
                prefetch(indices, j)
        if weighted:
            for i in range(n_ready):
                k = ready[i]
                j = edge[k]
                s = state[k] + GAMMA
                state[k] = s
                r = mix(s)
                if j >= 0:
                    entry = alias[np.uint64(j)]
                    other = np.int64((header[k] >> bits) + (entry & _LOW))
                    j = j if (r & _LOW) < (entry >> _32) else other
                    edge[k] = j
                    height[k] = np.float64(np.int64(r >> _32)) * (top[k] * 2.0**-32)
                    prefetch(indices, j)
                    if beside > 0.0:
                        prefetch(weights, j)

        # See what it hit.
        n_taken, n_unsure, n_missed = 0, 0, 0
        for i in range(n_ready):
            k = ready[i]
            j = edge[k]
            t = previous[k]
            if j >= 0:
                if trials[k] < 0:
                    s = state[k] + GAMMA
                    state[k] = s
                    fraction = np.float64(np.int64(mix(s) >> _12)) * _FRACTION
                    j = exact_edge(headers, bits, indices, weights, t, current[k], p, q, fraction)
                    edge[k] = j
                    height[k] = -1.0
                x = np.int64(indices[np.uint64(j)])
                candidate[k] = x
                back = x == t
                yes = height[k] < (returning if back else certain)
                taken[np.uint64(n_taken)] = k
                n_taken += yes
                unsure[np.uint64(n_unsure)] = k
                n_unsure += (not yes) & (not back)
                ready[np.uint64(n_missed)] = k
                n_missed += (not yes) & back
            elif directed and not weighted and find(indices, header[k] >> bits, header[k] & mask, t) < 0:
                # Beside the board there is no edge back to t: this step's next darts need not try it again.
                scale[k] = np.float64(np.int64(header[k] & mask)) * _FRACTION
                ready[np.uint64(n_missed)] = k
                n_missed += 1
            else:
                candidate[k] = t
                taken[np.uint64(n_taken)] = k
                n_taken += 1

        # Look up what the height did not decide: is there an edge t -> x?
        for i in range(n_unsure):
            k = unsure[i]
            w, bits_of_pair = locate(previous[k], candidate[k], vertices, words, directed, final)
            word[i] = w
            pattern[i] = bits_of_pair
            prefetch(table, w)
        n_before = n_search
        for i in range(n_unsure):
            k = unsure[i]
            near = (table[word[i]] & pattern[i]) == pattern[i]
            doubt = near & (not final)
            yes = (near == taken_near) & (not doubt)
            search[np.uint64(n_search)] = k
            n_search += doubt
            taken[np.uint64(n_taken)] = k
            n_taken += yes
            ready[np.uint64(n_missed)] = k
            n_missed += (not yes) & (not doubt)
        # Each sweep halves the rows of those that search, so that their misses too overlap with all else.
        n_left = 0
        for i in range(n_before):
            k = search[i]
            left = span[k]
            if left > _PADDING:
                half = left >> _ONE
                b = base[k]
                b = b + half if indices[b + half] <= sought[k] else b
                left -= half
                base[k] = b
                span[k] = left
                prefetch(indices, b + (left >> _ONE) if left > _PADDING else b)
                search[np.uint64(n_left)] = k
                n_left += 1
            else:
                yes = holds(indices, base[k], left, sought[k]) == taken_near
                taken[np.uint64(n_taken)] = k
                n_taken += yes
                ready[np.uint64(n_missed)] = k
                n_missed += not yes
        for i in range(n_before, n_search):
            k = search[i]
            x = candidate[k]
            h = previous_header[k]
            if not directed:  # the edge x -> t tells as much: take the shorter row
                other_header = headers[np.uint64(x)]
                if (other_header & mask) < (h & mask):
                    h = other_header
                    x = previous[k]
            left = h & mask
            sought[k] = x
            base[k] = h >> bits
            span[k] = left
            prefetch(indices, (h >> bits) + (left >> _ONE) if left > _PADDING else h >> bits)
            search[np.uint64(n_left)] = k
            n_left += 1
        n_search = n_left

        # Step.
        for i in range(n_taken):
            prefetch(headers, candidate[taken[i]])
            if weighted and beside > 0.0:
                prefetch(totals, candidate[taken[i]])
        n_ready = n_missed
        for i in range(n_taken):
            k = taken[i]
            x = candidate[k]
            place_in_walk = step[k]
            out[np.uint64(row[k]), np.uint64(place_in_walk)] = x
            v = current[k]
            h = headers[np.uint64(x)]
            degree = h & mask
            edges = np.float64(np.int64(degree))
            if weighted:
                scale[k] = edges * _FRACTION
                if beside > 0.0 and degree > _ZERO:
                    way_back = edge[k]
                    if directed or way_back < 0:
                        way_back = find(indices, h >> bits, degree, v)
                    if way_back >= 0:
                        share = np.float64(weights[np.uint64(way_back)]) / totals[np.uint64(x)]
                        scale[k] = (edges + edges * share * beside) * _FRACTION
            else:
                scale[k] = (edges + beside) * _FRACTION
            previous[k] = v
            previous_header[k] = header[k]
            current[k] = x
            header[k] = h
            top[k] = board
            trials[k] = FREE_TRIALS + np.int64(degree >> np.uint64(2))
            step[k] = place_in_walk + 1
            if place_in_walk + 1 < length and degree > _ZERO:
                ready[np.uint64(n_ready)] = k
                n_ready += 1
            else:
                for rest in range(place_in_walk + 1, length):
                    out[row[k], rest] = -1
                vacant[np.uint64(n_vacant)] = k
                n_vacant += 1
