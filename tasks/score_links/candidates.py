"""Ranks of links among pairs that are given to compare them with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.sampler.links import Pairs


def has_own(links: Pairs, candidates: Pairs) -> bool:
    """True if sources of links have candidates of their own: equally many each, or for each link, and no other node."""
    sources, counts = np.unique(candidates[:, 0], return_counts=True)
    of_links, times = np.unique(links[:, 0], return_counts=True)
    if not np.array_equal(sources, of_links):
        return False
    return bool((counts == counts[0]).all() or (counts * times[0] == counts[0] * times).all())


def candidate_ranks(
    scores: NDArray[np.float32], links: Pairs, of_candidates: NDArray[np.float32], candidates: Pairs, by_source: bool
) -> NDArray[np.float64]:
    """Rank of each link among candidates, float64 [links], from 1; of equal scores half rank before it.

    Args:
        scores: of the links.
        links: int64 [links, 2].
        of_candidates: scores of the candidates.
        candidates: int64 [candidates, 2].
        by_source: a link is ranked among the candidates of its source, else among all.
    """
    groups = candidates[:, 0] if by_source else np.zeros(len(candidates), np.int64)
    own = links[:, 0] if by_source else np.zeros(len(links), np.int64)
    order = np.lexsort((of_candidates, groups))
    ordered, groups = of_candidates[order], groups[order]
    ranks = np.empty(len(links))
    starts, ends = np.searchsorted(groups, own), np.searchsorted(groups, own, side="right")
    for number, (first, end, score) in enumerate(zip(starts.tolist(), ends.tolist(), scores, strict=True)):
        part = ordered[first:end]
        low, high = np.searchsorted(part, score), np.searchsorted(part, score, side="right")
        ranks[number] = 1 + len(part) - high + (high - low) / 2
    return ranks
