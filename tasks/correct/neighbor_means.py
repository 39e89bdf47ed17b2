"""Means over the neighbours of the nodes of a set."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.sampler.kernels import sum_edges
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.lib.kernels.arrays import read_only

Floats = NDArray[np.float32]


class NeighborMeans:
    """Means of the rows of each node's neighbours: over the edges within its set or, without any, over paths of two
    edges, to another set and back by the set that reverses it.

    Args:
        graph: of the nodes.
        node_set: their set.
    """

    def __init__(self, graph: HeteroGraph, node_set: str):
        sets = [each for each in graph.edge_sets.values() if each.count]
        out = [each for each in sets if each.source == node_set]
        self._direct = [graph.rows(each.name) for each in out if each.target == node_set]
        self._paths = [] if self._direct else [
            (graph.rows(there.name), graph.rows(back.name)) for there in out for back in sets
            if back.reversed_of == there.name or there.reversed_of == back.name
        ]  # fmt: skip
        rows = [*self._direct, *(there for there, _ in self._paths)]
        self.degrees = sum((np.diff(each.indptr) for each in rows), np.zeros(graph.node_sets[node_set].count, np.int64))
        """Number of edges of each node, int64 [nodes]."""

    def of(self, values: Floats) -> Floats:
        """Means of the neighbours' rows of `values` [nodes, width]; zeros for nodes without neighbours."""
        sums = [_sums(values, rows) for rows in self._direct]
        sums += [_sums(_divided(_sums(values, back), np.diff(back.indptr)), there) for there, back in self._paths]
        return _divided(sum(sums[1:], sums[0]), self.degrees)


def _sums(values: Floats, rows: CsrRows) -> Floats:
    found = np.empty((len(rows.indptr) - 1, values.shape[1]), np.float32)
    sum_edges(read_only(values), read_only(rows.indptr), read_only(rows.indices), found)
    return found


def _divided(sums: Floats, counts: NDArray[np.int64]) -> Floats:
    sums /= np.maximum(counts, 1).astype(np.float32)[:, None]
    return sums
