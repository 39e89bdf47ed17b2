"""Scores of two nodes by the short paths between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superworkflow.tasks.baselines_links import PATHS, WALKS
from superworkflow.tasks.lib.gnn.sampler.links import Pairs
from superworkflow.tasks.lib.graph.short_paths import Floats, Nodes, PathSums, ShortPaths

_MOST_STEPS = 1 << 27
"""Edges that are followed for the pairs of a split at most; some seconds."""


class PathScore(NamedTuple):
    """Score of two nodes by the paths between them: each counts the product of what its inner nodes are worth.

    Args:
        worth: what a path through each node counts, float64 [nodes].
        lengths: numbers of links of the paths, 2, 3 or both.
    """

    worth: Floats
    lengths: tuple[int, ...]

    def of_pairs(self, paths: ShortPaths, pairs: Pairs) -> Floats:
        """Scores of pairs, int64 [pairs, 2]; by paths of three links those of the first, which take `_MOST_STEPS`."""
        if 3 in self.lengths:
            pairs = pairs[: np.searchsorted(np.cumsum(paths.pair_steps(pairs)), _MOST_STEPS, side="right")]
        return self._chosen(paths.of_pairs(self.worth, pairs, 3 in self.lengths))

    def rows(self, paths: ShortPaths, columns: slice, nodes: Nodes, others: Nodes) -> Floats:
        """Scores of some nodes with the nodes in `columns`, which are `others`, [nodes, others]."""
        found = np.empty((len(nodes), len(others)))
        for piece in paths.pieces(len(nodes)):
            found[piece] = self._chosen(paths.from_nodes(self.worth, nodes[piece], 3 in self.lengths))[:, columns]
        return found

    def _chosen(self, sums: PathSums) -> Floats:
        return sums.two * (2 in self.lengths) + sums.three * (3 in self.lengths)


def path_scores(degrees: Floats, shared: bool) -> dict[str, PathScore]:
    """The scores by method; `shared`, also by the neighbours that two nodes share."""
    least = np.maximum(degrees, 1)
    found = {PATHS: PathScore(1 / np.sqrt(least), (3,)), WALKS: PathScore(1 / least, (2, 3))}
    if shared:
        found["common_neighbors"] = PathScore(np.ones(len(degrees)), (2,))
        found["adamic_adar"] = PathScore(1 / np.log(np.maximum(degrees, 2)), (2,))
    return found
