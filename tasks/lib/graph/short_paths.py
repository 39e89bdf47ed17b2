"""Paths of two and three edges between nodes, each worth the product of what its inner nodes are worth.

Edges have no direction. An inner node of a path is neither of its ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numba as nb
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.arrays import read_only

Floats = NDArray[np.float64]
Nodes = NDArray[np.int64]
_PIECE = 1 << 20
_SEARCHED = 16
"""Times as many neighbours as the far end has from which on an inner node's are searched for these."""


class PathSums(NamedTuple):
    """Worth of all paths by their number of edges, float64 arrays of one shape."""

    two: Floats
    three: Floats


class ShortPaths:
    """Paths of a graph.

    Args:
        links: both ends of each edge, int64 [edges, 2], each edge once and no loops.
        nodes: number of nodes.
    """

    def __init__(self, links: Nodes, nodes: int):
        ends = np.concatenate([links, links[:, ::-1]]).T.astype(np.int32)
        self.indptr, self.indices = _sorted_rows(ends[0], ends[1], nodes)
        self.degrees: Floats = np.diff(self.indptr).astype(np.float64)

    def of_pairs(self, worth: Floats, pairs: Nodes, long: bool = True) -> PathSums:
        """Sums of each pair of nodes, [pairs].

        Args:
            worth: of each node as an inner node.
            pairs: int64 [pairs, 2].
            long: also of three edges, else 0.
        """
        found = PathSums(np.zeros(len(pairs)), np.zeros(len(pairs)))
        marks = np.zeros((nb.get_num_threads(), len(self.degrees)))
        _sum_pairs(self.indptr, self.indices, read_only(worth), read_only(np.ascontiguousarray(pairs)), long, marks,
                   found.two, found.three)  # fmt: skip
        return found

    def from_nodes(self, worth: Floats, sources: Nodes, long: bool = True) -> PathSums:
        """Sums of each source, int64 [sources], with all nodes, [sources, nodes]; see `of_pairs`."""
        found = PathSums(*np.zeros((2, len(sources), len(self.degrees))))
        _sum_rows(self.indptr, self.indices, read_only(worth), read_only(np.ascontiguousarray(sources)), long,
                  found.two, found.three)  # fmt: skip
        return found

    def pieces(self, sources: int) -> Iterator[slice]:
        """Some of the sources at a time, for `from_nodes` to have about `_PIECE` sums of either kind."""
        size = max(nb.get_num_threads(), _PIECE // max(1, len(self.degrees)))
        for first in range(0, sources, size):
            yield slice(first, first + size)

    def reordered(self, order: Nodes) -> tuple[Nodes, NDArray[np.int32]]:
        """Neighbours of the nodes in another order: `indptr` int64 [nodes + 1], and `indices`, ascending in each row.

        Args:
            order: number of the node at each place, int64 [nodes].
        """
        places = np.empty(len(order), np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        starts = np.repeat(np.arange(len(order), dtype=np.int32), np.diff(self.indptr))
        return _sorted_rows(places[starts], places[self.indices], len(order))

    def pair_steps(self, pairs: Nodes) -> Floats:
        """Edges that `of_pairs` follows for each pair, at most."""
        steps: Floats = self._followed(self.degrees)[pairs].min(axis=1, initial=np.inf) + self.degrees[pairs].sum(
            axis=1
        )
        return steps

    def node_steps(self, sources: Nodes) -> Floats:
        """Edges that `from_nodes` follows for each source, and nodes that it has a sum of, at most."""
        two = self._followed(self.degrees)
        steps: Floats = two + np.minimum(self._followed(two), len(self.indices)) + len(two)
        return steps[sources]

    def affordable(self, sources: Nodes, most: float) -> int:
        """Number of the first rows of sources [rows, ...] of which `from_nodes` follows at most `most` edges."""
        steps = self.node_steps(sources.ravel()).reshape(len(sources), -1).sum(axis=1)
        return int(np.searchsorted(np.cumsum(steps), most, side="right"))

    def _followed(self, values: Floats) -> Floats:
        """Sum over the neighbours of each node."""
        sums = np.concatenate([[0.0], np.cumsum(values[self.indices])])
        found: Floats = sums[self.indptr[1:]] - sums[self.indptr[:-1]]
        return found


def _sorted_rows(starts: NDArray[np.int32], ends: NDArray[np.int32], nodes: int) -> tuple[Nodes, NDArray[np.int32]]:
    rows = sp.csr_array((np.ones(len(starts), np.int8), (starts, ends)), shape=(nodes, nodes))
    rows.sort_indices()
    return read_only(rows.indptr.astype(np.int64)), read_only(rows.indices.astype(np.int32))


@nb.njit(inline="always")
def _steps_from(indptr: Any, indices: Any, node: Any, long: Any) -> Any:
    """Edges to follow from a node to its neighbours, or to theirs."""
    count = indptr[node + 1] - indptr[node]
    if long:
        for i in range(indptr[node], indptr[node + 1]):
            count += indptr[indices[i] + 1] - indptr[indices[i]]
    return count


@nb.njit(cache=True, parallel=True)
def _sum_pairs(
    indptr: Nodes, indices: NDArray[np.int32], worth: Floats, pairs: Nodes, long: bool, marks: Floats, two: Floats,
    three: Floats,
) -> None:  # fmt: skip
    """Sums of pairs, each by one worker, from the end with fewer edges to follow.

    Args:
        indptr, indices: neighbours of the nodes.
        worth: float64 [nodes].
        pairs: [pairs, 2].
        long: also paths of three edges.
        marks: zeros [workers, nodes], left as zeros.
        two, three: [pairs], filled.
    """
    workers = len(marks)
    for worker in nb.prange(workers):
        mark = marks[worker]
        for pair in range(worker, len(pairs), workers):
            near, far = pairs[pair, 0], pairs[pair, 1]
            if _steps_from(indptr, indices, far, long) < _steps_from(indptr, indices, near, long):
                near, far = far, near
            for i in range(indptr[far], indptr[far + 1]):
                mark[indices[i]] = worth[indices[i]]
            mark[near] = 0.0
            short_sum, long_sum = 0.0, 0.0
            for i in range(indptr[near], indptr[near + 1]):
                inner = indices[i]
                short_sum += mark[inner]
                if long and inner != far:
                    others = indices[indptr[inner] : indptr[inner + 1]]
                    onward = 0.0
                    if len(others) > _SEARCHED * (indptr[far + 1] - indptr[far]):
                        for j in range(indptr[far], indptr[far + 1]):
                            place = np.searchsorted(others, indices[j])
                            if place < len(others) and others[place] == indices[j]:
                                onward += mark[indices[j]]
                    else:
                        for other in others:
                            onward += mark[other]
                    long_sum += worth[inner] * onward
            two[pair], three[pair] = short_sum, long_sum
            for i in range(indptr[far], indptr[far + 1]):
                mark[indices[i]] = 0.0


@nb.njit(cache=True, parallel=True)
def _sum_rows(
    indptr: Nodes, indices: NDArray[np.int32], worth: Floats, sources: Nodes, long: bool, two: Floats, three: Floats
) -> None:
    """Sums of sources with all nodes, a source by one worker: those of two edges, and from them those of three.

    The latter also reach each neighbour by itself and any of its neighbours, which is no path, and is subtracted.

    Args:
        indptr, indices, worth, long: see `_sum_pairs`.
        sources: [sources].
        two, three: zeros [sources, nodes], filled.
    """
    for row in nb.prange(len(sources)):
        source = sources[row]
        for i in range(indptr[source], indptr[source + 1]):
            inner = indices[i]
            for j in range(indptr[inner], indptr[inner + 1]):
                two[row, indices[j]] += worth[inner]
        two[row, source] = 0.0
        if long:
            for inner in range(len(indptr) - 1):
                if two[row, inner] > 0:
                    value = two[row, inner] * worth[inner]
                    for j in range(indptr[inner], indptr[inner + 1]):
                        three[row, indices[j]] += value
            for i in range(indptr[source], indptr[source + 1]):
                end, onward = indices[i], 0.0
                for j in range(indptr[end], indptr[end + 1]):
                    if indices[j] != source:
                        onward += worth[indices[j]]
                three[row, end] = max(0.0, three[row, end] - worth[end] * onward)
            three[row, source] = 0.0
