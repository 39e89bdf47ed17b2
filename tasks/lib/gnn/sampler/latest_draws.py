"""Draws of each node's latest edges, by a time of each edge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.gnn.edge_weights import weighted_sets
from superworkflow.tasks.lib.gnn.relations import Relation
from superworkflow.tasks.lib.gnn.sampler.kernels import ALL_NEIGHBORS, count_draws
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.subgraphs.draw import DrawScratch, draw_largest

_NO_LIMIT = np.iinfo(np.int64).max
_NO_STATE = np.uint64(0)


def times_of(graph: HeteroGraph, relations: Iterable[Relation], name: str) -> dict[int, NDArray[np.int64]]:
    """Times of the edge sets that have this feature, int64 [edges] by number.

    Raises:
        UserError: no edge set has the feature, or it is not one whole number for each edge.
    """
    found = {}
    for relation in weighted_sets(graph, relations, name, "train.time"):
        values = np.asarray(graph.edge_feature(relation.name, name))
        if values.dtype.kind not in "iu":
            raise UserError("a time is a whole number", where=f"{graph.dataset.uri}, {relation.name}.{name}",
                            value=str(values.dtype), remedy="Store times as int64, such as Unix times")  # fmt: skip
        found[relation.number] = np.ascontiguousarray(values.reshape(-1), np.int64)
    return found


class ByTime:
    """Draws of the latest edges, with the scratch of one thread.

    Args:
        rows: rows of the edge sets, by number.
        times: times of the edge sets whose latest edges are drawn, int64 [edges].
        fanouts: fan-outs of all hops.
    """

    def __init__(self, rows: Mapping[int, CsrRows], times: Mapping[int, NDArray[np.int64]], fanouts: Sequence[int]):
        self._rows = {number: rows[number] for number in times}
        self._times = {number: read_only(each) for number, each in times.items()}
        most = max((int(np.diff(each.indptr).max(initial=0)) for each in self._rows.values()), default=0)
        self._drawn = max(1, min(most, max(fanouts, default=0)))
        self._work = DrawScratch(np.zeros(1, np.uint64), *(np.empty(self._drawn, np.int64) for _ in range(2)))
        self._left = np.empty(most, np.int64)

    def draws(self, number: int, size: int) -> bool:
        """True if a hop of this fan-out takes the latest edges of an edge set; `ALL_NEIGHBORS` needs no draw."""
        return number in self._times and size != ALL_NEIGHBORS

    def positions(
        self, number: int, nodes: NDArray[np.int64], size: int, lost: NDArray[np.int64], starts: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Positions of the drawn edges in their set; for the arguments see `draw_latest`."""
        indptr, indices = self._rows[number]
        size = min(size, self._drawn)  # the scratch has room for the largest degree
        count_draws(indptr, indices, nodes, size, False, _NO_STATE, lost, starts, None)
        positions = np.empty(int(starts[-1]), np.int64)
        draw_latest(indptr, self._times[number], nodes, size, lost, starts, self._work, self._left, positions)
        return positions


@nb.njit(nogil=True, cache=True)
def draw_latest(
    indptr: NDArray[np.int64],
    times: NDArray[np.int64],
    nodes: NDArray[np.int64],
    size: int,
    lost: NDArray[np.int64],
    starts: NDArray[np.int64],
    work: DrawScratch,
    left: NDArray[np.int64],
    positions: NDArray[np.int64],
) -> None:
    """Take the edges of the largest times, of equal ones the later position; ascending for each receiver.

    Args:
        indptr: row offsets of the edge set.
        times: of its edges.
        nodes: the receivers [r].
        size: fan-out, at least 1.
        lost: positions of removed edges, ascending.
        starts: offsets, as `count_draws` fills them.
        work: scratch for `size` draws.
        left: scratch [most degree].
        positions: positions of the edges in their set, [starts[r]], filled.
    """
    for i in range(len(nodes)):
        first, last = indptr[nodes[i]], indptr[nodes[i] + 1]
        gone, degree = np.searchsorted(lost, first), 0
        begin_of_gone = gone
        for place in range(first, last):
            if gone < len(lost) and lost[gone] == place:
                gone += 1
            else:
                left[degree] = times[place]
                degree += 1
        draw_largest(positions, starts[i], 0, degree, degree, 0, size, left, _NO_LIMIT, work)
        gone, begin = begin_of_gone, first
        for j in range(starts[i], starts[i + 1]):
            # Places ascend and count the remaining edges only: each is shifted by the lost edges before it.
            positions[j] += begin
            while gone < len(lost) and lost[gone] <= positions[j]:
                gone += 1
                begin += 1
                positions[j] += 1
