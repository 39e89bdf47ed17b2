"""Ghosts of a graph server: the vertices of other servers whose rows it reads, and which of its rows others read.

All servers derive the same lists from the arcs of their own vertices, in the same order, and send none.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.graph.heterograph import CsrRows


class GhostLists(NamedTuple):
    """Ghosts of one direction of the arcs.

    Args:
        numbers: int64 [ghosts], their vertices, ascending; their places follow those of the server's own vertices.
        coming: places of the ghosts in each interval of another server that has some, by the interval's number.
        leaving: places of own vertices whose rows another server reads, by own interval and other server.
    """

    numbers: NDArray[np.int64]
    coming: Mapping[int, slice]
    leaving: Mapping[int, Mapping[int, NDArray[np.int64]]]


def no_ghosts() -> GhostLists:
    """Lists of the only server."""
    return GhostLists(np.empty(0, np.int64), {}, {})


def ghost_lists(
    arcs: CsrRows, back: CsrRows, limits: NDArray[np.int64], server: int, bounds: NDArray[np.int64], own: range
) -> GhostLists:  # fmt: skip
    """Lists of the rows that gathers over `arcs` read.

    Args:
        arcs: senders by receiver, of the server's own vertices; ends are vertices.
        back: the same arcs from the senders' side: receivers by sender, of its own vertices.
        limits: first vertex of each server, and the count of all [servers + 1].
        server: which one.
        bounds: first vertex of each interval, and the count of all [intervals + 1].
        own: numbers of its intervals.
    """
    first, last = int(limits[server]), int(limits[server + 1])
    is_read = np.zeros(int(limits[-1]), bool)
    is_read[arcs.indices] = True
    is_read[first:last] = False
    numbers = np.flatnonzero(is_read)
    cuts, coming = np.searchsorted(numbers, bounds) + last - first, dict[int, slice]()
    for number in range(len(bounds) - 1):
        if cuts[number + 1] > cuts[number]:
            coming[number] = slice(int(cuts[number]), int(cuts[number + 1]))
    leaving: dict[int, dict[int, NDArray[np.int64]]] = {}
    senders = np.repeat(np.arange(last - first), np.diff(back.indptr))
    for other in range(len(limits) - 1):
        if other == server:
            continue
        is_read = np.zeros(last - first, bool)
        is_read[senders[(back.indices >= limits[other]) & (back.indices < limits[other + 1])]] = True
        read = np.flatnonzero(is_read)
        ends = np.searchsorted(read, bounds[own.start : own.stop + 1] - first)
        for number, (low, high) in enumerate(itertools.pairwise(ends), own.start):
            if high > low:
                leaving.setdefault(number, {})[other] = read[low:high]
    return GhostLists(numbers, coming, leaving)


def place_arcs(arcs: CsrRows, limits: NDArray[np.int64], server: int, ghosts: NDArray[np.int64]) -> CsrRows:
    """The same arcs, whose ends are places instead of vertices."""
    first, last = int(limits[server]), int(limits[server + 1])
    outside, places = (arcs.indices < first) | (arcs.indices >= last), arcs.indices - np.int32(first)
    places[outside] = last - first + np.searchsorted(ghosts, arcs.indices[outside])
    return CsrRows(arcs.indptr, places.astype(np.int32))
