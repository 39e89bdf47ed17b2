"""Positions of vertices: an order whose ranges are intervals with even arcs, or intervals along the parts of a graph.

Dorylus (Thorpe et al., OSDI 2021) makes intervals of equal numbers of vertices and of similar numbers of edges to other
intervals. Here vertices stay in the order of their numbers, except for as few as must change places for that.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.graph.heterograph import CsrRows
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.train_full.interval_kernels import count_arcs, even_out, loads_of

LIMIT = 0.05
"""How far from the mean intervals may be in arcs, as a share of it, where an exchange of vertices can help."""


class Interval(NamedTuple):
    """Positions from `first` up to `last`, which is not one of them."""

    number: int
    first: int
    last: int


class Parts(NamedTuple):
    """Parts of a graph's vertices.

    Args:
        vertices: the vertices, parts one after the other [vertices].
        book: where each part begins, and the count of all, int64 [parts + 1].
    """

    vertices: NDArray[np.integer]
    book: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class VertexOrder:
    """Vertices by position. All that intervals share is by position; what is read and written is by vertex.

    Args:
        bounds: first position of each interval, and the count of all, int64 [intervals + 1].
        vertices: int32, the vertex of each position; empty if it is the position itself.
    """

    bounds: NDArray[np.int64]
    vertices: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    @functools.cached_property
    def intervals(self) -> tuple[Interval, ...]:
        """The intervals, in turn."""
        pairs = enumerate(itertools.pairwise(self.bounds.tolist()))
        return tuple(Interval(number, first, last) for number, (first, last) in pairs)

    @functools.cached_property
    def positions(self) -> NDArray[np.int32]:
        """Position of each vertex; empty if it is the vertex itself."""
        found = np.empty(len(self.vertices), np.int32)
        found[self.vertices] = np.arange(len(found), dtype=np.int32)
        return found

    def between(self, first: int, last: int) -> NDArray[np.int32]:
        """Vertices of the positions from `first` up to `last`."""
        if not len(self.vertices):
            return np.arange(first, last, dtype=np.int32)
        return read_only(self.vertices[first:last])

    def vertices_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Vertices of some positions."""
        return self.vertices[positions].astype(np.int64) if len(self.vertices) else positions

    def positions_of(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of some vertices."""
        return self.positions[vertices].astype(np.int64) if len(self.vertices) else vertices

    def numbers_of(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of the intervals that have some vertices."""
        return np.searchsorted(self.bounds, self.positions_of(vertices), "right") - 1


def plain_order(vertices: int, intervals: int) -> VertexOrder:
    """Vertices as they are, in intervals of equal size, ±1: at most this many, none of which is empty."""
    return VertexOrder(np.linspace(0, vertices, max(1, min(intervals, vertices)) + 1).astype(np.int64))


def even_order(rows: CsrRows, intervals: int, parts: Parts | None = None) -> VertexOrder:
    """An order in which each interval's arcs, of each way, are within `LIMIT` of the mean, if exchanges lead there.

    Intervals have equal numbers of vertices, ±1, and in a symmetric graph even numbers of arcs to others, too. Where
    there are parts, an interval is in as few as there can be, and vertices are exchanged within a part alone. So
    intervals of whole parts are as even as these, and their arcs to others are as few as the parts have.

    Args:
        rows: senders by receiver. They may be mapped: memory is needed for some numbers of each vertex, not of arcs.
        intervals: most intervals, none of which is empty.
        parts: parts of the vertices, if there are some.
    """
    starts, ends = map(read_only, rows)
    plain = plain_order(len(starts) - 1, intervals)
    bounds, groups = plain.bounds, [range(len(plain.bounds) - 1)]
    counts, labels = np.zeros((len(starts) - 1, 2), np.int64), np.empty(len(starts) - 1, np.int32)
    is_symmetric = count_arcs(starts, ends, counts)
    vertices = np.arange(len(labels), dtype=np.int32)
    if parts is not None:
        vertices = parts.vertices.astype(np.int32)
        bounds, groups = _along(parts.book, bounds)
    labels[vertices] = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))
    crossing, loads = is_symmetric and parts is None, np.zeros((len(bounds) - 1, 2), np.int64)
    loads_of(starts, ends, counts, labels, crossing, loads)
    for group in groups:
        own, cuts = loads[group.start : group.stop].copy(), bounds[group.start : group.stop + 1]
        places = vertices[cuts[0] : cuts[-1]]
        if even_out(starts, ends, counts, cuts - cuts[0], places, labels, crossing, own, LIMIT):
            for first, last in itertools.pairwise((cuts - cuts[0]).tolist()):
                places[first:last].sort()
    if (vertices == np.arange(len(vertices))).all():
        return VertexOrder(bounds)
    return VertexOrder(bounds, vertices)


def _along(book: NDArray[np.int64], equal: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[range]]:
    """Bounds of intervals, each of the same number of parts or share of one, and those that share a part.

    Args:
        book: see `Parts`.
        equal: bounds of intervals of equal size, which serve where parts are so small that one would be empty.
    """
    parts, count = len(book) - 1, len(equal) - 1
    part, rest = np.divmod(np.arange(count + 1) * parts, count)
    bounds = book[part] + np.append(np.diff(book), 0)[part] * rest // count
    if (np.diff(bounds) <= 0).any():
        bounds = equal
    first, last = np.searchsorted(book, bounds[:-1], "right") - 1, np.searchsorted(book, bounds[1:], "left") - 1
    alike = [[*own] for _, own in itertools.groupby(np.flatnonzero(first == last).tolist(), lambda i: int(first[i]))]
    return bounds, [range(own[0], own[-1] + 1) for own in alike if len(own) > 1]
