"""Draws of neighbours in proportion to edge weights, from a whole graph or some of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.sampler.kernels import ALL_NEIGHBORS, Renumbered
from superworkflow.tasks.lib.gnn.sampler.weighted_kernels import count_weighted, draw_by_weight
from superworkflow.tasks.lib.graph.heterograph import CsrRows
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.subgraphs.draw import DrawScratch


class ByWeight:
    """Draws by weight, with the scratch of one thread.

    Args:
        rows: rows of the edge sets, by number.
        weights: weights of the edge sets that are drawn by weight, float32 [edges of the rows].
        fanouts: fan-outs of all hops.
    """

    def __init__(
        self, rows: Mapping[int, CsrRows], weights: Mapping[int, NDArray[np.float32]], fanouts: Sequence[int]
    ):  # fmt: skip
        self._indptr = {number: read_only(rows[number].indptr) for number in weights}
        self._weights = {number: read_only(each) for number, each in weights.items()}
        most = max((int(np.diff(each).max(initial=0)) for each in self._indptr.values()), default=0)
        self._drawn = max(1, min(most, max(fanouts, default=0)))
        self._work = DrawScratch(np.zeros(1, np.uint64), *(np.empty(self._drawn, np.int64) for _ in range(2)))
        self._left = np.empty(most, np.float32)

    def draws(self, number: int, size: int) -> bool:
        """True if a hop of this fan-out draws an edge set by weight; `ALL_NEIGHBORS` needs no draw."""
        return number in self._weights and size != ALL_NEIGHBORS

    def positions(
        self, number: int, rows: NDArray[np.int64], nodes: NDArray[np.int64], size: int, state: np.uint64,
        lost: NDArray[np.int64], starts: NDArray[np.int64], renumbered: Renumbered | None = None,
    ) -> NDArray[np.int64]:  # fmt: skip
        """Positions of the drawn edges in their set; for the arguments see `weighted_kernels.draw_by_weight`."""
        indptr, weights = self._indptr[number], self._weights[number]
        size = min(size, self._drawn)  # the scratch has room for the largest degree
        count_weighted(indptr, weights, rows, size, lost, starts, renumbered)
        positions = np.empty(int(starts[-1]), np.int64)
        draw_by_weight(
            indptr, weights, rows, nodes, size, state, lost, starts, renumbered, self._work, self._left, positions
        )
        return positions
