"""Rules, outcomes and lookups that the steps of a travelling walker share (`dart_step`, `mixture_step`)."""

from typing import NamedTuple

import numba as nb
import numpy as np

from superworkflow.tasks.walk.kernels.adjacency import find
from superworkflow.tasks.walk.kernels.second_order import alias_edge

TAKEN, ASKS, WANTS_NEAR, WANTS_EDGE, WAITS, NO_SPACE = 0, 1, 2, 3, 4, 5
"""Outcomes of a step: the next vertex; darts or tries to ask about; a row to draw from at the task of t, for the rest
of the tries or for all of the step; the same, but too many words are on their way; no space for the words."""

CERTAIN = -(1 << 63)
"""Bit of a listed vertex that is taken in any case."""
NONE = np.int64(-1)
_LOW = np.uint64(0xFFFFFFFF)


class StepRules(NamedTuple):
    """Rules of a step, and limits of what walkers carry.

    Args:
        p: return parameter.
        q: in-out parameter.
        length: vertices of a walk.
        directed: an edge may lack its reverse.
        second_order: p or q is not 1.
        tries: second-order steps are made by tries and a dart (`mixture`), else by darts alone (`rejection`).
        list_words: most darts or tries that a walker asks about at a time.
        row_words: number of words in the output from which on no walker takes a row along.
    """

    p: float
    q: float
    length: int
    directed: bool
    second_order: bool
    tries: bool
    list_words: int
    row_words: int


@nb.njit(inline="always")
def near_here(headers, bits, indices, low, high, directed, t, x):  # type: ignore[no-untyped-def]
    """1 if the edge t -> x exists and 0 if not, from a row of the vertices low..high-1; -1 if neither row is here."""
    mask = (np.uint64(1) << bits) - np.uint64(1)
    if low <= t < high:
        header = headers[t - low]
        return np.int64(find(indices, header >> bits, header & mask, x) >= 0)
    if not directed and low <= x < high:
        header = headers[x - low]
        return np.int64(find(indices, header >> bits, header & mask, t) >= 0)
    return NONE


@nb.njit(inline="always")
def drawn_edge(alias, j, row, word, weighted):  # type: ignore[no-untyped-def]
    """The edge of a column, by the coin ``word`` if there are weights."""
    return alias_edge(alias[j], word & _LOW, j, row) if weighted else j
