"""Ranks of held-out links by simpler scores, among the nodes that stage `score_links` ranks them among."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.baselines_links import DEGREES, MOST_RANKED, MOST_STEPS
from superworkflow.tasks.baselines_links.paths import PathScore
from superworkflow.tasks.lib.gnn.sampler.links import Pairs
from superworkflow.tasks.lib.graph.short_paths import Floats, ShortPaths
from superworkflow.tasks.lib.metrics.ranks import filtered_ranks

LEAST_RANKED = 100
"""Links that are ranked at least, if there are as many."""


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
    done = np.cumsum(paths.node_steps(ends.ravel()).reshape(-1, 2).sum(axis=1))
    count = min(MOST_RANKED, int(np.searchsorted(done, MOST_STEPS, side="right")))
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
