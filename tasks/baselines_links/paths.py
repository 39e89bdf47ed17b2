"""Scores of two nodes by the short paths between them, and ranks of links by these and by degrees."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.baselines_links import DEGREES, MOST_RANKED, MOST_STEPS, PATHS, WALKS
from superworkflow.tasks.lib.gnn.sampler.links import Pairs
from superworkflow.tasks.lib.graph.short_paths import Floats, Nodes, PathSums, ShortPaths
from superworkflow.tasks.lib.metrics.ranks import filtered_ranks

_MOST_STEPS = 1 << 27
"""Edges that are followed for the pairs of a split at most; some seconds."""
LEAST_RANKED = 100
"""Links that are ranked at least, if there are as many."""


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


def simple_ranks(
    paths: ShortPaths, scores: dict[str, PathScore], degrees: list[Floats], shift: int, links: Pairs,
    true_links: Pairs, one_set: bool, sides: NDArray[np.int8],
) -> dict[str, Floats]:  # fmt: skip
    """Filtered ranks of the first links by each method, both of sources and of targets; empty where hubs make it more
    than some seconds' work to rank `LEAST_RANKED`.

    Args:
        paths: of the nodes; those of two sets one after the other.
        scores: see `paths.path_scores`.
        degrees: degree of each source, and of each target.
        shift: number of the first target among the nodes of `paths`.
        links, true_links, one_set, sides: see `filtered_ranks`.
    """
    ends = links + np.array([0, shift])
    count = min(MOST_RANKED, paths.affordable(ends, MOST_STEPS))
    if count < min(LEAST_RANKED, len(links)):
        return {}
    places = np.arange(len(degrees[0])), np.arange(shift, shift + len(degrees[1]))
    columns = slice(0, len(degrees[0])), slice(shift, shift + len(degrees[1]))
    ways = [(links[:count, ::way], true_links[:, ::way], one_set, sides) for way in (1, -1)]
    own = [each[:, None] for each in degrees]
    ranks = {DEGREES: [filtered_ranks(own[side], own[1 - side], *way) for side, way in enumerate(ways)]}
    for method, score in scores.items():
        ranks[method] = [
            filtered_ranks(places[side], places[1 - side], *way, partial(score.rows, paths, columns[1 - side]))
            for side, way in enumerate(ways)
        ]
    return {method: np.concatenate(both) for method, both in ranks.items()}
