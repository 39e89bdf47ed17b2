"""Compiled draws of k of a node's neighbours without replacement, for all that sample from rows of a graph.

A row is what a draw sees: entries ``first`` to ``first + degree - 1`` of the graph's arrays, of which those from place
`gap` on lie `skip` further, so that a few entries in the midst can be left out. Each function writes the places that it
has drawn, ascending, to ``out[offset:]``, and returns how many these are. Random numbers are those of
`tasks.lib.kernels.random`: number i of a draw is ``mix(state + i * GAMMA)``. Slow references: `floyd`, `by_weight` and
`PlainSampler.draws` in tests/tasks/sampling.py.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.bits import trailing_zeros
from superworkflow.tasks.lib.kernels.random import GAMMA, mix


class DrawScratch(NamedTuple):
    """Scratch of the draws of one thread.

    Args:
        marks: zeros, uint64 [most degree / 64 + 1].
        keys: int64 [most drawn].
        places: int64 [most drawn].
    """

    marks: NDArray[np.uint64]
    keys: NDArray[np.int64]
    places: NDArray[np.int64]


@nb.njit(inline="always")
def below(word: Any, bound: Any) -> Any:
    """A random word as an integer below `bound`, which is under 2**32: the upper half of their product."""
    n = np.uint64(bound)
    low = ((word & np.uint64(0xFFFFFFFF)) * n) >> np.uint64(32)
    return np.int64(((word >> np.uint64(32)) * n + low) >> np.uint64(32))


@nb.njit(nogil=True)
def draw_uniform(out: Any, offset: Any, degree: Any, size: Any, state: Any, marks: Any) -> Any:
    """`size` of `degree` places, each set of them as probable as any other (Floyd; Bentley & Floyd 1987).

    Args:
        degree: more than `size`, under 2**32.
        size: places to draw.
        state: of the random stream.
        marks: see `DrawScratch`.

    Writes:
        out: places, from `offset` on.
    """
    words = (degree >> 6) + 1
    if words == 1:
        return _draw_marked(out, offset, degree, size, state)
    if 8 * words <= 64 + size * size:
        for i in range(size):
            last = degree - size + i
            place = below(mix(state + np.uint64(i + 1) * GAMMA), last + 1)
            bit = np.uint64(1) << np.uint64(place & 63)
            if marks[place >> 6] & bit:
                place = last
                bit = np.uint64(1) << np.uint64(place & 63)
            marks[place >> 6] |= bit
        for word in range(words):
            left = marks[word]
            marks[word] = np.uint64(0)
            while left != np.uint64(0):
                out[offset] = (word << 6) + trailing_zeros(left)
                offset += 1
                left &= left - np.uint64(1)
        return size
    for i in range(size):  # in few of many, kept in order
        last = degree - size + i
        place = below(mix(state + np.uint64(i + 1) * GAMMA), last + 1)
        j = offset + i
        while j > offset and out[j - 1] > place:
            j -= 1
        if j > offset and out[j - 1] == place:
            out[offset + i] = last
            continue
        for k in range(offset + i, j, -1):
            out[k] = out[k - 1]
        out[j] = place
    return size


@nb.njit(inline="always")
def _draw_marked(out: Any, offset: Any, degree: Any, size: Any, state: Any) -> Any:
    """`draw_uniform` from less than 64 places, whose marks are one word, without branches, which none could predict."""
    for i in range(size):
        out[offset + i] = below(mix(state + np.uint64(i + 1) * GAMMA), degree - size + i + 1)
    marks, one = np.uint64(0), np.uint64(1)
    for i in range(size):
        place = np.uint64(out[offset + i])
        drawn = marks >> place & one
        marks |= one << place | drawn << np.uint64(degree - size + i)
    for i in range(size):
        out[offset + i] = trailing_zeros(marks)
        marks &= marks - one
    return size


@nb.njit(nogil=True)
def draw_weighted(
    out: Any, offset: Any, first: Any, degree: Any, gap: Any, skip: Any, size: Any, weights: Any, state: Any, work: Any
) -> Any:
    """`size` places one after the other, each in proportion to its weight among those left; of weight 0 none.

    The places with the smallest ``-log(u) / weight`` are such a draw (Efraimidis & Spirakis 2006).

    Args:
        first, degree, gap, skip: a row of `weights`, see the module.
        size, state: as in `draw_uniform`; all places where the row has fewer.
        work: `DrawScratch`.

    Writes:
        out: places, from `offset` on.
    """
    kept = 0
    most = np.inf
    for place in range(degree):
        weight = np.float64(weights[first + place + (skip if place >= gap else 0)])
        if not weight > 0.0:
            continue
        u = (np.float64(mix(state + np.uint64(place + 1) * GAMMA) >> np.uint64(11)) + 0.5) * 2.0**-53
        if kept == size and 1.0 - u > most * weight:  # -log(u) is larger still
            continue
        arrival = -math.log(u) / weight
        kept = _keep(work, kept, size, np.float64(arrival).view(np.int64), place)
        if kept == size:
            most = np.int64(work.keys[0]).view(np.float64)
    return _ascending(out, offset, work, kept)


@nb.njit(nogil=True)
def draw_largest(
    out: Any, offset: Any, first: Any, degree: Any, gap: Any, skip: Any, size: Any, values: Any, limit: Any, work: Any
) -> Any:
    """The `size` places of the largest values up to `limit`; of equal ones the later place.

    Args:
        first, degree, gap, skip: a row of `values`, integers; see the module.
        size, work: as in `draw_weighted`.
        limit: places of larger values are left out.

    Writes:
        out: places, from `offset` on.
    """
    kept = 0
    for place in range(degree):
        value = np.int64(values[first + place + (skip if place >= gap else 0)])
        if value <= limit and (kept < size or ~value <= work.keys[0]):
            kept = _keep(work, kept, size, ~value, place)
    return _ascending(out, offset, work, kept)


@nb.njit(inline="always")
def _worse(keys: Any, places: Any, a: Any, b: Any) -> Any:
    return keys[a] > keys[b] or (keys[a] == keys[b] and places[a] < places[b])


@nb.njit(nogil=True)
def _keep(work: Any, kept: Any, size: Any, key: Any, place: Any) -> Any:
    """Add to a heap of the smallest keys, the worst on top: the largest, of equal ones the earliest place."""
    keys, places = work.keys, work.places
    if kept < size:
        child = kept
        keys[child], places[child] = key, place
        while child > 0:
            parent = (child - 1) >> 1
            if not _worse(keys, places, child, parent):
                break
            keys[child], keys[parent] = keys[parent], keys[child]
            places[child], places[parent] = places[parent], places[child]
            child = parent
        return kept + 1
    if key > keys[0]:
        return kept
    keys[0], places[0] = key, place
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            return kept
        if child + 1 < size and _worse(keys, places, child + 1, child):
            child += 1
        if not _worse(keys, places, child, parent):
            return kept
        keys[child], keys[parent] = keys[parent], keys[child]
        places[child], places[parent] = places[parent], places[child]
        parent = child


@nb.njit(nogil=True)
def _ascending(out: Any, offset: Any, work: Any, kept: Any) -> Any:
    for i in range(kept):
        out[offset + i] = work.places[i]
    sort_part(out, offset, kept)
    return kept


@nb.njit(nogil=True)
def sort_part(values: Any, offset: Any, count: Any) -> None:
    """Sort ``values[offset:offset + count]``: few values, or nearly in order (Shell's sort)."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap:
        for i in range(offset + gap, offset + count):
            value = values[i]
            j = i
            while j >= offset + gap and values[j - gap] > value:
                values[j] = values[j - gap]
                j -= gap
            values[j] = value
        gap //= 3
