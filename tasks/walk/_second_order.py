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

The walkers of a batch move in phases, like the first-order ones; but since they need different numbers of trials,
each is in the phase that it has reached, has its own place in its own walk, and takes the next walk of the
range when it is done. What a phase prefetches, another one reads a sweep later.
"""

import numba as nb
import numpy as np

from tasks.walk._first_order import start_vertex
from tasks.walk._pairs import locate
from tasks.walk._prefetch import prefetch
from tasks.walk._random import GAMMA, mix, walk_state
from tasks.walk._rows import OPTIONS, PADDING, find, holds
from tasks.walk._trial import (
    FRACTION,
    FREE_TRIALS,
    acceptance,
    alias_edge,
    exact_edge,
    free_trials,
    second_height,
    throw,
)

BATCH = 128
_12 = np.uint64(12)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_PADDING = np.uint64(PADDING)

# Fields of a walker's record; a walker is named by the place of its record.
_FIELDS = np.uint64(16)
STATE, HEADER, SCALE, EDGE = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)
HEIGHT, PREVIOUS, CURRENT, CANDIDATE = np.uint64(4), np.uint64(5), np.uint64(6), np.uint64(7)
TRIALS, PLACE, END = np.uint64(8), np.uint64(9), np.uint64(10)
WORD, PATTERN, SOUGHT, BASE, SPAN = np.uint64(11), np.uint64(12), np.uint64(13), np.uint64(14), np.uint64(15)


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
    board, certain, returning, beside, taken_near = acceptance(p, q)

    # One record of 16 words for each walker, seen as unsigned, signed and real numbers.
    record = np.empty(BATCH * 16, np.uint64)
    whole, real = record.view(np.int64), record.view(np.float64)
    flat = out.reshape(-1)
    # A walker is in one of these lists. They are appended to without a branch, so the entry after the last is
    # written too. Each phase below empties one list, and prefetches what the next phase of its walkers reads: in
    # the next sweep, when the other phases have given the lines time to come.
    vacant = np.arange(BATCH + 1).astype(np.uint64) * _FIELDS
    ready = np.empty(BATCH + 1, np.uint64)
    picked = np.empty(BATCH + 1, np.uint64)
    thrown = np.empty(BATCH + 1, np.uint64)
    unsure = np.empty(BATCH + 1, np.uint64)
    search = np.empty(BATCH + 1, np.uint64)
    taken = np.empty(BATCH + 1, np.uint64)
    n_vacant, n_ready, n_picked, n_thrown, n_unsure, n_search, n_taken = BATCH, 0, 0, 0, 0, 0, 0
    made = 0

    while made < rows or n_vacant < BATCH:
        # Walkers without a walk take the next ones.
        begun = min(n_vacant, rows - made)
        for i in range(begun):
            v = start_vertex(seed, np.uint64(first + made + i), starts, n_starts)
            whole[vacant[i] + CURRENT] = v
            out[made + i, 0] = v
            prefetch(headers, v)
        n_rest = 0
        for i in range(begun):
            k = vacant[i]
            h = headers[np.uint64(whole[k + CURRENT])]
            if length > 1 and (h & mask) > _ZERO:
                record[k + HEADER], whole[k + PREVIOUS] = h, -1
                record[k + STATE] = walk_state(seed, np.uint64(first + made))
                real[k + SCALE] = np.float64(np.int64(h & mask)) * FRACTION
                whole[k + TRIALS] = FREE_TRIALS
                whole[k + PLACE], whole[k + END] = made * length + 1, made * length + length
                ready[np.uint64(n_ready)] = k
                n_ready += 1
            else:
                out[made, 1:] = -1
                vacant[np.uint64(n_rest)] = k
                n_rest += 1
            made += 1
        for i in range(begun, n_vacant):
            vacant[np.uint64(n_rest)] = vacant[i]
            n_rest += 1
        n_vacant = n_rest

        # Step to the vertex that was taken.
        for i in range(n_taken):
            k = taken[i]
            x = whole[k + CANDIDATE]
            place = whole[k + PLACE]
            flat[np.uint64(place)] = x
            v = whole[k + CURRENT]
            h = headers[np.uint64(x)]
            degree = h & mask
            edges = np.float64(np.int64(degree))
            if weighted:
                real[k + SCALE] = edges * FRACTION
                if beside > 0.0 and degree > _ZERO:
                    way_back = whole[k + EDGE]
                    if directed or way_back < 0:
                        way_back = find(indices, h >> bits, degree, v)
                    if way_back >= 0:
                        share = np.float64(weights[np.uint64(way_back)]) / totals[np.uint64(x)]
                        real[k + SCALE] = (edges + edges * share * beside) * FRACTION
            else:
                real[k + SCALE] = (edges + beside) * FRACTION
            whole[k + PREVIOUS] = v
            whole[k + CURRENT] = x
            record[k + HEADER] = h
            whole[k + TRIALS] = free_trials(degree)
            whole[k + PLACE] = place + 1
            if place + 1 < whole[k + END] and degree > _ZERO:
                ready[np.uint64(n_ready)] = k
                n_ready += 1
            else:
                flat[place + 1 : whole[k + END]] = -1
                vacant[np.uint64(n_vacant)] = k
                n_vacant += 1
        n_taken = 0

        # Halve the rows of those that search: an edge that the bit table holds possible, is it there?
        n_left = 0
        for i in range(n_search):
            k = search[i]
            left = record[k + SPAN]
            if left > _PADDING:
                half = left >> _ONE
                b = record[k + BASE]
                b = b + half if indices[b + half] <= whole[k + SOUGHT] else b
                left -= half
                record[k + BASE] = b
                record[k + SPAN] = left
                prefetch(indices, b + (left >> _ONE) if left > _PADDING else b)
                search[np.uint64(n_left)] = k
                n_left += 1
            else:
                yes = holds(indices, record[k + BASE], left, whole[k + SOUGHT]) == taken_near
                taken[np.uint64(n_taken)] = k
                n_taken += yes
                ready[np.uint64(n_ready)] = k
                n_ready += not yes
        n_search = n_left

        # Ask the bit table what the height of the dart did not decide: is there an edge t -> x?
        for i in range(n_unsure):
            k = unsure[i]
            near = (table[record[k + WORD]] & record[k + PATTERN]) == record[k + PATTERN]
            doubt = near & (not final)
            yes = (near == taken_near) & (not doubt)
            search[np.uint64(n_search)] = k
            n_search += doubt
            taken[np.uint64(n_taken)] = k
            n_taken += yes
            ready[np.uint64(n_ready)] = k
            n_ready += (not yes) & (not doubt)
        for i in range(n_left, n_search):
            k = search[i]
            x, t = whole[k + CANDIDATE], whole[k + PREVIOUS]
            h = headers[np.uint64(t)]
            if not directed:  # the edge x -> t tells as much: take the shorter row
                other_header = headers[np.uint64(x)]
                if (other_header & mask) < (h & mask):
                    h = other_header
                    x = t
            left = h & mask
            whole[k + SOUGHT] = x
            record[k + BASE] = h >> bits
            record[k + SPAN] = left
            prefetch(indices, (h >> bits) + (left >> _ONE) if left > _PADDING else h >> bits)

        # See what the dart hit.
        n_unsure = 0
        for i in range(n_thrown):
            k = thrown[i]
            j = whole[k + EDGE]
            t = whole[k + PREVIOUS]
            if j >= 0:
                if whole[k + TRIALS] < 0:
                    s = record[k + STATE] + GAMMA
                    record[k + STATE] = s
                    fraction = np.float64(np.int64(mix(s) >> _12)) * FRACTION
                    h, near = record[k + HEADER], headers[np.uint64(t)]
                    j = exact_edge(
                        indices, h >> bits, h & mask, weights, indices, near >> bits, near & mask, t, p, q, fraction
                    )
                    whole[k + EDGE] = j
                    real[k + HEIGHT] = -1.0
                x = np.int64(indices[np.uint64(j)])
                whole[k + CANDIDATE] = x
                back = x == t
                yes = (real[k + HEIGHT] < (returning if back else certain)) | (t < 0)
                taken[np.uint64(n_taken)] = k
                n_taken += yes
                unsure[np.uint64(n_unsure)] = k
                n_unsure += (not yes) & (not back)
                ready[np.uint64(n_ready)] = k
                n_ready += (not yes) & back
            elif (
                directed
                and not weighted
                and find(indices, record[k + HEADER] >> bits, record[k + HEADER] & mask, t) < 0
            ):
                # Beside the board there is no edge back to t: this step's next darts need not try it again.
                real[k + SCALE] = np.float64(np.int64(record[k + HEADER] & mask)) * FRACTION
                ready[np.uint64(n_ready)] = k
                n_ready += 1
            else:
                whole[k + CANDIDATE] = t
                taken[np.uint64(n_taken)] = k
                n_taken += 1
        for i in range(n_unsure):
            k = unsure[i]
            w, bits_of_pair = locate(whole[k + PREVIOUS], whole[k + CANDIDATE], vertices, words, directed, final)
            record[k + WORD] = w
            record[k + PATTERN] = bits_of_pair
            prefetch(table, w)
        for i in range(n_taken):
            prefetch(headers, whole[taken[i] + CANDIDATE])
            if weighted and beside > 0.0:
                prefetch(totals, whole[taken[i] + CANDIDATE])

        # Weighted: the dart has a column of the row's alias table; which of its two edges?
        for i in range(n_picked):
            k = picked[i]
            j = whole[k + EDGE]
            if j >= 0:
                s = record[k + STATE] + GAMMA
                record[k + STATE] = s
                r = mix(s)
                entry = alias[np.uint64(j)]
                j = alias_edge(entry, r & _LOW, j, record[k + HEADER] >> bits)
                whole[k + EDGE] = j
                real[k + HEIGHT] = second_height(r, board)
                prefetch(indices, j)
                if beside > 0.0:
                    prefetch(weights, j)
            thrown[i] = k
        n_thrown = n_picked
        n_picked = 0

        # Throw a dart.
        for i in range(n_ready):
            k = ready[i]
            s = record[k + STATE] + GAMMA
            record[k + STATE] = s
            h = record[k + HEADER]
            column, height = throw(mix(s), real[k + SCALE])
            real[k + HEIGHT] = height * board
            j = np.int64(h >> bits) + column
            whole[k + EDGE] = j if column < np.int64(h & mask) else -1
            whole[k + TRIALS] -= 1
            if weighted:
                prefetch(alias, j)
            else:
                prefetch(indices, j)
        if weighted:
            for i in range(n_ready):
                picked[i] = ready[i]
            n_picked = n_ready
        else:
            for i in range(n_ready):
                thrown[i] = ready[i]
            n_thrown = n_ready
        n_ready = 0
