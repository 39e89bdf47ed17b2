"""Vertices renumbered by colour, then by degree, so that those of one colour lie next to each other in memory.

A sweep by colours then reads rows and fields in order, and the vertices that most gathers meet share cache lines. Each
row keeps the order of its neighbours, and programs see the numbers of the graph, so that no result depends on this.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.kernels.prefetch import AHEAD, prefetch_list

load_kernels_fast()


@nb.njit(nogil=True, cache=True)
def _numbers(order: Any, bounds: Any, degrees: Any, by_degree: Any, numbers: Any, places: Any) -> None:
    """Order by colour, then from the largest degree down, then by number: two counting sorts.

    Args:
        order: int32 [vertices], by colour.
        bounds: int64 [colours + 1].
        degrees: int64 [vertices].
        by_degree: int32 [vertices], memory.
        numbers: int32 [vertices], becomes the vertex at each place.
        places: int32 [vertices], becomes the place of each vertex.
    """
    vertices, largest = len(order), degrees.max() if len(order) else 0
    starts = np.zeros(largest + 2, np.int64)
    for vertex in range(vertices):
        starts[largest - degrees[vertex] + 1] += 1
    for degree in range(largest + 1):
        starts[degree + 1] += starts[degree]
    for vertex in range(vertices):
        by_degree[starts[largest - degrees[vertex]]] = vertex
        starts[largest - degrees[vertex]] += 1
    for colour in range(len(bounds) - 1):
        for place in range(bounds[colour], bounds[colour + 1]):
            places[order[place]] = colour
    ends = bounds.copy()
    for number in range(vertices):
        vertex = by_degree[number]
        colour = places[vertex]
        places[vertex] = ends[colour]
        numbers[ends[colour]] = vertex
        ends[colour] += 1


@nb.njit(nogil=True, cache=True)
def _rows(indptr: Any, values: Any, numbers: Any, places: Any, new_indptr: Any, new_values: Any) -> None:
    """Move rows to the places of their vertices; what they hold becomes places too, unless `places` is empty.

    Args:
        indptr: int64 [vertices + 1].
        values: [arcs], indices or what belongs to arcs.
        numbers: int32 [vertices], the vertex at each place.
        places: int32 [vertices], or None.
        new_indptr: int64 [vertices + 1], becomes the result.
        new_values: [arcs] of the same type, becomes the result.
    """
    end = np.uint64(0)  # indices without a sign need no look whether they count from the end
    for place in range(len(numbers)):
        if place + 2 * AHEAD < len(numbers):
            prefetch_list(indptr, values, np.int64(numbers[place + AHEAD]), np.int64(numbers[place + 2 * AHEAD]))
        new_indptr[place] = end
        vertex = numbers[place]
        for arc in range(np.uint64(indptr[vertex]), np.uint64(indptr[vertex + 1])):
            new_values[end] = values[arc] if places is None else places[np.uint64(values[arc])]
            end += np.uint64(1)
    new_indptr[len(numbers)] = end


class Numbering:
    """Places of the vertices of a coloured graph.

    Args:
        order: int32 [vertices], by colour.
        bounds: int64 [colours + 1], where each colour begins.
        degrees: int64 [vertices].
        as_ordered: vertices stay as they are in the order, in which blocks lie together.

    Attributes:
        numbers: int32 [vertices], the vertex at each place.
        places: int32 [vertices], the place of each vertex.
    """

    def __init__(
        self, order: NDArray[np.int32], bounds: NDArray[np.int64], degrees: NDArray[np.int64], as_ordered: bool = False
    ):
        self.numbers, self.places = np.empty_like(order), np.empty_like(order)
        if as_ordered:
            self.numbers[:] = order
            self.places[order] = np.arange(len(order), dtype=np.int32)
            return
        _numbers(order, bounds, degrees, np.empty_like(order), self.numbers, self.places)

    def rows(
        self, indptr: NDArray[np.int64], indices: NDArray[np.int32], places: NDArray[np.int32] | None = None
    ) -> list[NDArray[Any]]:
        """Rows by place: their `indptr`, and places of the neighbours.

        Args:
            indptr: int64 [vertices + 1].
            indices: int32 [arcs].
            places: int32, by what `indices` has, where that is not the number of a vertex.
        """
        made: list[NDArray[Any]] = [np.empty_like(indptr), np.empty(len(indices), np.int32)]
        _rows(indptr, indices, self.numbers, self.places if places is None else places, *made)
        return made

    def of_arcs(self, indptr: NDArray[np.int64], values: NDArray[Any]) -> NDArray[Any]:
        """Values of arcs, [arcs], in the order of `rows`; an empty array stays."""
        if not len(values):
            return values
        made = np.empty(values.shape, values.dtype)
        _rows(indptr, values, self.numbers, None, np.empty_like(indptr), made)
        return made

    def by_place(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of vertices, [vertices] or [vertices, length], by place."""
        return values[self.numbers]

    def by_vertex(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values that `by_place` has ordered, by vertex again."""
        return values[self.places]
