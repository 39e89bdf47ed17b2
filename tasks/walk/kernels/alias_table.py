"""Alias tables: an edge of a row in proportion to its weight, with one draw.

Walker, "An efficient method for generating discrete random variables with general distributions", TOMS 1977,
built in one sweep over light and heavy edges, without work space (Hübschle-Schneider & Sanders, "Parallel
weighted random sampling", ESA 2019).
"""

import numba as nb
import numpy as np

from superworkflow.tasks.walk.kernels.adjacency import OPTIONS

WIDE = 5
CLEAR_BIT = np.uint32(31)
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@nb.njit(**OPTIONS)
def build_alias(indptr, weights, first, last, alias, totals):  # type: ignore[no-untyped-def]
    """Fill ``alias`` (uint64[edges]) and ``totals`` (float64[n], sums of weights) for the rows first..last-1.

    An entry is ``threshold << 32 | other``: of a column's height 2**32, what is under the threshold is the edge
    itself, the rest is edge number ``other`` of the row.
    """
    for v in range(first, last):
        begin = indptr[v]
        totals[v] = _build_row(weights, begin, indptr[v + 1] - begin, alias, begin)


@nb.njit(**OPTIONS)
def build_wide_alias(indptr, indices, weights, clear, first, last, alias, totals):  # type: ignore[no-untyped-def]
    """As `build_alias`, with neighbour and weight in each entry, so that a step reads one place in memory.

    ``alias`` is uint32[WIDE * edges], for each column: threshold, neighbour and weight (float32) of the edge itself,
    neighbour and weight of the other one. ``clear`` is 1 for edges of no triangle, or empty; a neighbour has bit
    `CLEAR_BIT` set then. Vertices have to be under 2**31.
    """
    largest = 0
    for v in range(first, last):
        largest = max(largest, indptr[v + 1] - indptr[v])
    row = np.empty(largest, np.uint64)
    reals = alias.view(np.float32)
    marked = len(clear) > 0
    for v in range(first, last):
        begin = indptr[v]
        degree = indptr[v + 1] - begin
        totals[v] = _build_row(weights, begin, degree, row, 0)
        for i in range(degree):
            j, other = begin + i, begin + np.int64(row[i] & _LOW)
            entry = WIDE * j
            alias[entry] = row[i] >> _32
            alias[entry + 1] = np.uint32(indices[j]) | (np.uint32(clear[j]) << CLEAR_BIT if marked else np.uint32(0))
            alias[entry + 3] = np.uint32(indices[other]) | (
                np.uint32(clear[other]) << CLEAR_BIT if marked else np.uint32(0)
            )
            reals[entry + 2], reals[entry + 4] = weights[j], weights[other]


@nb.njit(**OPTIONS)
def _build_row(weights, begin, degree, alias, place):  # type: ignore[no-untyped-def]
    """Fill ``alias`` from ``place`` for one row; the sum of its weights."""
    total = 0.0
    for i in range(degree):
        total += np.float64(weights[begin + i])
        alias[place + i] = np.uint64(i)  # threshold 0 and the edge itself as the other: always itself
    if degree < 2:
        return total
    mean = total / degree
    scale = 4294967296.0 / mean
    light = 0
    while light < degree and weights[begin + light] > mean:
        light += 1
    heavy = 0
    while heavy < degree and weights[begin + heavy] <= mean:
        heavy += 1
    if heavy == degree:
        return total
    left = np.float64(weights[begin + heavy])
    while True:
        if left > mean:  # the heavy edge fills what a light one leaves of its column
            if light == degree:
                break
            w = np.float64(weights[begin + light])
            alias[place + light] = _entry(w * scale, heavy, light)
            left -= mean - w
            light += 1
            while light < degree and weights[begin + light] > mean:
                light += 1
        else:  # it has become light itself: the next heavy one fills its column
            other = heavy + 1
            while other < degree and weights[begin + other] <= mean:
                other += 1
            if other == degree:
                break
            alias[place + heavy] = _entry(left * scale, other, heavy)
            left += np.float64(weights[begin + other]) - mean
            heavy = other
    return total


@nb.njit(inline="always")
def _entry(threshold, other, itself):  # type: ignore[no-untyped-def]
    if threshold >= 4294967295.5:
        return np.uint64(itself)
    return (np.uint64(np.int64(max(threshold, 0.0) + 0.5)) << _32) | np.uint64(other)
