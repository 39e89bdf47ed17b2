"""How a random word becomes an edge, a height, an answer: the rules that every way of walking shares.

Walkers in memory (`_first_order`, `_second_order`) and walkers that travel between partitions (`_travel`) must draw
the same walks to the last bit, so what decides stands here once. Rows may stand anywhere: a row is where it begins
in ``indices`` and its degree, both uint64.
"""

import numba as nb
import numpy as np

from tasks.walk._rows import OPTIONS, find

FREE_TRIALS = 16
FRACTION = 2.0**-52  # a 52-bit fraction times a degree rounds to less than the degree
_2, _12, _32 = np.uint64(2), np.uint64(12), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@nb.njit(inline="always")
def uniform_edge(r, row, degree):  # type: ignore[no-untyped-def]
    """An edge of a row by the high word of (32 random bits x degree): exact to 2**-32. The row is not empty."""
    return np.int64(row + (((r >> _32) * degree) >> _32))


@nb.njit(inline="always")
def alias_column(r, degree):  # type: ignore[no-untyped-def]
    """Column << 32 | height of one 64-bit draw x degree: the column of an alias table and the place in it."""
    return (r >> _32) * degree + (((r & _LOW) * degree) >> _32)


@nb.njit(inline="always")
def alias_edge(entry, height, edge, row):  # type: ignore[no-untyped-def]
    """The edge of a column: itself under the threshold of its entry, the other one above. ``height`` is 32 bits."""
    other = np.int64(row + (entry & _LOW))
    return edge if height < (entry >> _32) else other


@nb.njit(inline="always")
def acceptance(p, q):  # type: ignore[no-untyped-def]
    """(board, certain, returning, beside, taken_near) of a trial.

    A dart's height is uniform under ``board``. Under ``certain`` every x but the return is taken, the return under
    ``returning``; above it x is taken if the edge t -> x exists and ``taken_near``, or if neither. ``beside`` is the
    target of the return beside the board, in edges of the row's mean weight.
    """
    board = max(1.0, 1.0 / q)
    return board, min(1.0, 1.0 / q), min(1.0 / p, board), max(1.0 / p - board, 0.0) / board, q >= 1.0


@nb.njit(inline="always")
def free_trials(degree):  # type: ignore[no-untyped-def]
    """Trials of a step before it is drawn from the whole row."""
    return FREE_TRIALS + np.int64(degree >> _2)


@nb.njit(inline="always")
def throw(r, scale):  # type: ignore[no-untyped-def]
    """(column, height in it as a fraction) of a dart; ``scale`` is the width of the target x `FRACTION`."""
    dart = np.float64(np.int64(r >> _12)) * scale
    column = np.int64(dart)
    return column, dart - np.float64(column)


@nb.njit(inline="always")
def second_height(r, board):  # type: ignore[no-untyped-def]
    """Height of a weighted dart, from the word whose low half has chosen the edge of its column."""
    return np.float64(np.int64(r >> _32)) * (board * 2.0**-32)


@nb.njit(**OPTIONS)
def exact_edge(  # type: ignore[no-untyped-def]
    indices, row, degree, weights, near_indices, near, near_degree, previous, p, q, fraction
):
    """Index of an edge of the row, drawn from all of it; O(degree log degree).

    ``weights`` runs along ``indices``, empty for an unweighted graph. ``near`` is the row of the previous vertex,
    in ``near_indices``. ``fraction`` is uniform in [0, 1).
    """
    total = 0.0
    target = np.inf
    for sweep in range(2):
        if sweep == 1:
            target = fraction * total
        total = 0.0
        for i in range(degree):
            x = np.int64(indices[row + np.uint64(i)])
            if x == previous:
                bias = 1.0 / p
            elif find(near_indices, near, near_degree, x) >= 0:
                bias = 1.0
            else:
                bias = 1.0 / q
            if len(weights) > 0:
                bias *= np.float64(weights[row + np.uint64(i)])
            total += bias
            if total > target:
                return np.int64(row + np.uint64(i))
    return np.int64(row + degree - np.uint64(1))
