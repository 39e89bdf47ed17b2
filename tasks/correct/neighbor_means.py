"""Means over the neighbours of some nodes of a set."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.sampler.kernels import sum_edges
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.lib.graph.sparse_rows import entries_of, row_starts
from superworkflow.tasks.lib.kernels.arrays import read_only

Floats = NDArray[np.float32]
_PIECE = 1 << 16


class NeighborMeans:
    """Means of the rows of nodes' neighbours: over the edges within their set or, without any, over paths of two edges,
    to another set and back by the set that reverses it.

    Args:
        graph: of the nodes.
        node_set: their set.
        nodes: whose neighbours count, numbers int64 [n].
    """

    def __init__(self, graph: HeteroGraph, node_set: str, nodes: NDArray[np.int64]):
        sets = [each for each in graph.edge_sets.values() if each.count]
        out = [each for each in sets if each.source == node_set]
        self._direct = [_of(graph.rows(each.name), nodes) for each in out if each.target == node_set]
        self._paths = [] if self._direct else [
            (_of(graph.rows(there.name), nodes), graph.rows(back.name)) for there in out for back in sets
            if back.reversed_of == there.name or there.reversed_of == back.name
        ]  # fmt: skip
        self.nodes = nodes
        rows = [*self._direct, *(there for there, _ in self._paths)]
        self.degrees = sum((np.diff(each.indptr) for each in rows), np.zeros(len(nodes), np.int64))
        """Number of edges of each, int64 [n]."""

    def of(self, values: Floats) -> Floats:
        """Means of the neighbours' rows of `values` [all nodes, width], [n, width]; zeros without neighbours."""
        sums = [_sums(values, rows) for rows in self._direct]
        sums += [_sums(_divided(_sums(values, back), np.diff(back.indptr)), there) for there, back in self._paths]
        return _divided(sum(sums[1:], sums[0]), self.degrees)


def _of(rows: CsrRows, nodes: NDArray[np.int64]) -> CsrRows:
    """The rows of some nodes; a piece at a time, since places take twice as much memory as entries."""
    starts = row_starts(np.diff(rows.indptr)[nodes])
    indices = np.empty(starts[-1], rows.indices.dtype)
    for first in range(0, len(nodes), _PIECE):
        piece = nodes[first : first + _PIECE]
        indices[starts[first] : starts[first + len(piece)]] = rows.indices[entries_of(rows.indptr, piece)[1]]
    return CsrRows(starts, indices)


def _sums(values: Floats, rows: CsrRows) -> Floats:
    found = np.empty((len(rows.indptr) - 1, values.shape[1]), np.float32)
    sum_edges(read_only(values), read_only(rows.indptr), read_only(rows.indices), found)
    return found


def _divided(sums: Floats, counts: NDArray[np.int64]) -> Floats:
    sums /= np.maximum(counts, 1).astype(np.float32)[:, None]
    return sums
