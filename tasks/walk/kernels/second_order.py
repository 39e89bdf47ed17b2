"""Maps random words to edges, acceptance heights and outcomes: rules that all second-order kernels share.

Walkers in memory (`first_order`, `rejection`, `mixture`) and walkers that travel between partitions (`advance`) must
draw the same walks to the last bit, so these rules are defined here once. A row is given by its first index in
``indices`` and its degree, both uint64.
"""

from typing import NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from superworkflow.tasks.lib.kernels.conversions import real_of, whole_and_rest
from superworkflow.tasks.lib.kernels.random import GAMMA
from superworkflow.tasks.walk.kernels.adjacency import OPTIONS, find

FREE_TRIALS = 16
FEW = 3
FRACTION = 2.0**-52  # a 52-bit fraction times a degree rounds to less than the degree
_WIDEST = 2.0**62
TRIAL_WORDS = np.uint64((3 * int(GAMMA)) % 2**64)
"""State increments of a trial: for the dart, the coin of a weighted edge and the number of tries."""
_TRIES = np.uint64(0xA24BAED4963EE407)
_2, _12, _32 = np.uint64(2), np.uint64(12), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


class WalkBias(NamedTuple):
    """Parameters of a second-order step, and the table of the edges t -> x.

    Args:
        p: return parameter.
        q: in-out parameter.
        table: uint64 [words], bits of the pairs that are edges (`edge_filter`).
        final: the table is the adjacency matrix, so that its yes needs no search in the row.
    """

    p: float
    q: float
    table: npt.NDArray[np.uint64]
    final: bool


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
    """(board, certain, returning, outlier, taken_near) of a trial.

    A dart's height is uniform under ``board``. Under ``certain`` every x but the return is taken, the return under
    ``returning``; above it x is taken if the edge t -> x exists and ``taken_near``, or if neither. ``outlier`` is the
    width of the return's own target, next to the board, in edges of the row's mean weight.
    """
    board = max(1.0, 1.0 / q)
    return board, min(1.0, 1.0 / q), min(1.0 / p, board), max(1.0 / p - board, 0.0) / board, q >= 1.0


@nb.njit(inline="always")
def dart_acceptance(p, q):  # type: ignore[no-untyped-def]
    """(outlier, returning) of the dart of a trial with tries, whose board has the height 1/q, taken as 1 here.

    ``outlier`` is as in `acceptance`; a return on the board is taken under ``returning``.
    """
    return max(q / p - 1.0, 0.0), min(q / p, 1.0)


@nb.njit(inline="always")
def extra_width(edges, share, outlier):  # type: ignore[no-untyped-def]
    """Width of the return's own target in a weighted row, of which it has this share of the weight.

    Columns are integers of 64 bits, and a row of ten million edges of which one has nearly all of the weight would
    overflow them at the limits of p and q; ``outlier`` alone, the width in an unweighted row, does not.
    """
    extra = edges * share * outlier
    return extra if extra < _WIDEST else _WIDEST


@nb.njit(inline="always")
def few_tries(u, edges, width, q):  # type: ignore[no-untyped-def]
    """Number of tries for a neighbour of t before the dart of a trial, up to `FEW`; no branch.

    Each draw of the trial is a try with the same probability, until one is the dart. ``u`` is uniform in [0, 1),
    ``edges`` the degree and ``width`` that of the dart's target, as float64.
    """
    tries = (q - 1.0) * edges
    share = tries / (tries + width)
    second = share * share
    return np.int64(u * (tries + width) < tries) + np.int64(u < second) + np.int64(u < second * share)


@nb.njit(inline="always")
def more_tries(u, edges, width, q, most):  # type: ignore[no-untyped-def]
    """As `few_tries`, where these are `FEW`: up to ``most``, and ``most + 1`` if there are more."""
    tries = (q - 1.0) * edges
    share = tries / (tries + width)
    number, under = np.int64(FEW), share * share * share * share
    while number <= most and u < under:
        number += 1
        under *= share
    return number


@nb.njit(inline="always")
def near_tries(u, edges, width, q, most):  # type: ignore[no-untyped-def]
    """`few_tries`, or if these are not all, `more_tries`."""
    number = few_tries(u, edges, width, q)
    return more_tries(u, edges, width, q, most) if number == FEW else number


@nb.njit(inline="always")
def try_state(state):  # type: ignore[no-untyped-def]
    """State from which the words of a trial's tries begin, from the state behind the trial."""
    return state ^ _TRIES


@nb.njit(inline="always")
def fraction_of(word):  # type: ignore[no-untyped-def]
    """A random word as a number in [0, 1)."""
    return real_of(np.int64(word >> _12)) * FRACTION


@nb.njit(inline="always")
def free_trials(degree):  # type: ignore[no-untyped-def]
    """Trials of a step before it is drawn from the whole row."""
    return FREE_TRIALS + np.int64(degree >> _2)


@nb.njit(inline="always")
def throw(r, scale):  # type: ignore[no-untyped-def]
    """(column, height in it as a fraction) of a dart; ``scale`` is the width of the target x `FRACTION`."""
    return whole_and_rest(real_of(np.int64(r >> _12)) * scale)


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


@nb.njit(**OPTIONS)
def exact_near(  # type: ignore[no-untyped-def]
    indices, row, degree, weights, near_indices, near, near_degree, previous, q, width, fraction
):
    """An edge to a neighbour of t, drawn from all tries that may still come before a trial's dart, or -1 for the dart.

    Arguments as in `exact_edge` and `near_tries`.
    """
    target = np.inf
    for sweep in range(2):
        whole, common = 0.0, 0.0
        for i in range(degree):
            x = np.int64(indices[row + np.uint64(i)])
            weight = np.float64(weights[row + np.uint64(i)]) if len(weights) > 0 else 1.0
            whole += weight
            if x != previous and find(near_indices, near, near_degree, x) >= 0:
                common += weight
                if common > target:
                    return np.int64(row + np.uint64(i))
        if sweep == 0:
            # The dart's target in the units of the weights, against (q - 1) x the neighbours'.
            dart = width * whole / np.float64(np.int64(degree))
            target = fraction * ((q - 1.0) * common + dart) / (q - 1.0)
            if target >= common:
                return np.int64(-1)
    return np.int64(-1)
