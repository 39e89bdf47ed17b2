"""Colours of vertices in compressed sparse rows: the greedy colouring, and its check."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()


@nb.njit(nogil=True, cache=True)
def greedy(indptr: Any, indices: Any, in_indptr: Any, in_indices: Any, distance: int, colours: Any) -> Any:
    """Colour all vertices in the order of their numbers; returns the number of colours.

    Args:
        indptr: int64 [vertices + 1] of out-edges.
        indices: int32 [arcs].
        in_indptr: int64 [vertices + 1] of in-edges; [0] if each edge is in both rows.
        in_indices: int32 [arcs] or [0].
        distance: 1 or 2.
        colours: int32 [vertices], of -1; becomes the result.
    """
    vertices = len(indptr) - 1
    taken = np.full(64, -1, np.int64)  # vertex that last saw each colour around it
    most = 0
    for vertex in range(vertices):
        for part in range(2 if len(in_indptr) else 1):
            starts, ends = (indptr, indices) if part == 0 else (in_indptr, in_indices)
            for arc in range(starts[vertex], starts[vertex + 1]):
                other = ends[arc]
                if colours[other] >= 0:
                    taken[colours[other]] = vertex
                if distance > 1:
                    for next_part in range(2 if len(in_indptr) else 1):
                        next_starts, next_ends = (indptr, indices) if next_part == 0 else (in_indptr, in_indices)
                        for further in range(next_starts[other], next_starts[other + 1]):
                            colour = colours[next_ends[further]]
                            if colour >= 0:
                                taken[colour] = vertex
        colour = 0
        while taken[colour] == vertex:
            colour += 1
        colours[vertex] = colour
        most = max(most, colour + 1)
        if most == len(taken):
            longer = np.full(2 * most, -1, np.int64)
            longer[:most] = taken
            taken = longer
    return most


@nb.njit(nogil=True, cache=True)
def apart(indptr: Any, indices: Any, updated: Any, words: int, colours: Any) -> Any:
    """Colour some vertices so that two of one colour share no neighbour; returns the number of colours.

    They have edges to others alone. In the order of their numbers, each takes the smallest colour that is free; one
    that finds none of the first 64 · words free has a colour of its own. The others have the last colour.

    Args:
        indptr: int64 [vertices + 1].
        indices: int32 [arcs].
        updated: bool [vertices], the vertices that are coloured.
        words: of 64 colours each, that are tried.
        colours: int32 [vertices], becomes the result.
    """
    vertices = len(indptr) - 1
    around = np.zeros((vertices, words), np.uint64)  # colours around each vertex, as bits
    most, alone = 0, 64 * words
    for vertex in range(vertices):
        if not updated[vertex]:
            continue
        free, word = np.uint64(0), 0
        while free == 0 and word < words:
            taken = np.uint64(0)
            for arc in range(indptr[vertex], indptr[vertex + 1]):
                taken |= around[indices[arc], word]
            free = ~taken
            word += 1
        if free == 0:
            colours[vertex] = alone
            alone += 1
        else:
            lowest = free & (~free + np.uint64(1))
            bit = 0
            while (lowest >> np.uint64(bit)) != 1:
                bit += 1
            colours[vertex] = 64 * (word - 1) + bit
            for arc in range(indptr[vertex], indptr[vertex + 1]):
                around[indices[arc], word - 1] |= lowest
        most = max(most, colours[vertex] + 1)
    for vertex in range(vertices):
        if not updated[vertex]:
            colours[vertex] = most
    return most + 1


def spread(colours: NDArray[np.int32], count: int, arcs: NDArray[np.int64], constant: NDArray[np.bool_]) -> None:
    """Number colours anew so that those of constant vertices follow equal shares of the other updated vertices' arcs.

    The other colours keep their order, and the last one, of vertices that are not updated, stays the last.

    Args:
        colours: int32 [vertices], of `apart`; changed in place.
        count: of colours.
        arcs: int64 [vertices].
        constant: bool [vertices], vertices that have a colour of their own each, and have edges to all that rest.
    """
    own = np.unique(colours[constant])
    others = np.setdiff1d(np.arange(count - 1), own)
    load = np.bincount(colours, weights=arcs, minlength=count).astype(np.int64)[others]
    before, total = np.cumsum(load) - load, int(load.sum())
    shares = total * np.arange(1, len(own) + 1) // max(1, len(own))
    order = np.concatenate([own, others])[np.argsort(np.concatenate([shares, before]), kind="stable")]
    number = np.full(count, count - 1, np.int32)
    number[order] = np.arange(count - 1)
    colours[:] = number[colours]


@nb.njit(nogil=True, cache=True)
def by_colour(colours, count, order, bounds):  # type: ignore[no-untyped-def]
    """Order the vertices by colour, ascending in each.

    Args:
        colours: int32 [vertices].
        count: of colours.
        order: int32 [vertices], becomes the result.
        bounds: int64 [count + 1], zeros; becomes where each colour begins.
    """
    for vertex in range(len(colours)):
        bounds[colours[vertex] + 1] += 1
    for colour in range(count):
        bounds[colour + 1] += bounds[colour]
    places = bounds[:-1].copy()
    for vertex in range(len(colours)):
        colour = colours[vertex]
        order[places[colour]] = vertex
        places[colour] += 1


@nb.njit(nogil=True, cache=True)
def conflict(indptr: Any, indices: Any, in_indptr: Any, in_indices: Any, distance: int, colours: Any) -> Any:
    """A vertex that has one colour with another within a distance, or -1; the arguments are as of `greedy`.

    Vertices whose colour is -1 conflict with none.
    """
    seen = np.full(colours.max() + 1 if len(colours) else 0, -1, np.int64)
    for vertex in range(len(colours) if distance > 0 else 0):
        if colours[vertex] >= 0:
            seen[colours[vertex]] = vertex
        for part in range(2 if len(in_indptr) else 1):
            starts, ends = (indptr, indices) if part == 0 else (in_indptr, in_indices)
            for arc in range(starts[vertex], starts[vertex + 1]):
                other = ends[arc]
                if colours[other] < 0:
                    continue
                if colours[other] == colours[vertex]:
                    return vertex
                if distance > 1:
                    # A neighbour behind both directions is met twice.
                    if seen[colours[other]] == vertex and not (part == 1 and _has(indptr, indices, vertex, other)):
                        return other
                    seen[colours[other]] = vertex
    return -1


@nb.njit(nogil=True, cache=True)
def _has(indptr, indices, vertex, other):  # type: ignore[no-untyped-def]
    place = indptr[vertex] + np.searchsorted(indices[indptr[vertex] : indptr[vertex + 1]], other)
    return place < indptr[vertex + 1] and indices[place] == other
