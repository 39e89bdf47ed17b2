"""Scores of two nodes by the short paths between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from superworkflow.tasks.baselines_links import PATHS, WALKS
from superworkflow.tasks.lib.gnn.sampler.links import Pairs

_ENTRIES = 1 << 22
"""Neighbours of the pairs that are followed at once, about."""
_MOST_STEPS = 1 << 27
"""Paths of three links that are followed for the links of a split at most, and as many for its other pairs; some
seconds."""
Floats = NDArray[np.float64]


class PathScore(NamedTuple):
    """Score of two nodes by the paths between them: each counts the product of what its inner nodes are worth.

    Args:
        worth: what a path through each node counts, float64 [nodes].
        lengths: numbers of links of the paths, 2, 3 or both.
    """

    worth: Floats
    lengths: tuple[int, ...]

    def of_pairs(self, neighbors: sp.csr_array, pairs: Pairs) -> Floats:
        """Scores of pairs without a link; of paths of three links those of the first pairs, which take `_MOST_STEPS`.

        Args:
            neighbors: neighbours of each node, as rows of ones, [nodes, nodes].
            pairs: int64 [pairs, 2].
        """
        degrees = np.diff(neighbors.indptr).astype(np.float64)
        worth, long = sp.diags_array(self.worth).tocsr(), 3 in self.lengths
        steps = (neighbors @ degrees if long else degrees)[pairs]
        near, far = (np.take_along_axis(pairs, order[:, None], 1)[:, 0]
                     for order in (steps.argmin(axis=1), 1 - steps.argmin(axis=1)))  # fmt: skip
        done = np.cumsum(steps.min(axis=1, initial=np.inf) if long else steps.sum(axis=1))
        count = int(np.searchsorted(done, _MOST_STEPS, side="right")) if long else len(pairs)
        found, first = np.zeros(count), 0
        while first < count:
            last = int(np.searchsorted(done[:count], (done[first - 1] if first else 0) + _ENTRIES, side="right"))
            part = slice(first, max(first + 1, last))
            one, end = neighbors[near[part]] @ worth, neighbors[far[part]]
            if 2 in self.lengths:
                found[part] += one.multiply(end).sum(axis=1).ravel()
            if long:
                found[part] += (one @ neighbors).multiply(end @ worth).sum(axis=1).ravel()
            first = part.stop
        return found

    def rows(self, starts: sp.csr_array, neighbors: sp.csr_array, columns: slice) -> Floats:
        """Scores of the nodes whose rows of `neighbors` are `starts` with those in `columns`, [starts, columns]."""
        worth = sp.diags_array(self.worth).tocsr()
        two = starts @ worth @ neighbors
        found = two if 2 in self.lengths else 0 * two
        if 3 in self.lengths:
            found = found + two @ worth @ neighbors
        rows: Floats = found.toarray()[:, columns]
        return rows


def path_scores(degrees: Floats, shared: bool) -> dict[str, PathScore]:
    """The scores by method; `shared`, also by the neighbours that two nodes share."""
    least = np.maximum(degrees, 1)
    found = {PATHS: PathScore(1 / np.sqrt(least), (3,)), WALKS: PathScore(1 / least, (2, 3))}
    if shared:
        found["common_neighbors"] = PathScore(np.ones(len(degrees)), (2,))
        found["adamic_adar"] = PathScore(1 / np.log(np.maximum(degrees, 2)), (2,))
    return found
