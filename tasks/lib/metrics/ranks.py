"""Ranks of links: filtered ones among all nodes (Bordes et al., NeurIPS 2013), or among pairs that are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK_BYTES = 32 << 20
_NO_SIDES = np.empty(0, np.int8)
Vectors = NDArray[np.float32]
Pairs = NDArray[np.int64]


def products(queries: Any, others: Any) -> Any:
    """Product of each row of `queries` with each of `others`."""
    return queries @ others.T


class TrueLinks:
    """Pairs that are no candidates for a link: those that are links, and those within a side.

    Args:
        starts: begin of each source's targets, int64 [sources + 1].
        ends: targets, [links].
        sides: side of each node, whose targets are on another; empty where all nodes are targets.
    """

    def __init__(self, starts: NDArray[np.int64], ends: NDArray[Any], sides: NDArray[np.int8] = _NO_SIDES):
        self._starts, self._ends, self._sides = starts, ends, sides

    @classmethod
    def of_pairs(cls, links: Pairs, sources: int, one_set: bool, sides: NDArray[np.int8] = _NO_SIDES) -> TrueLinks:
        """Those of all links, int64 [links, 2].

        Args:
            links: sources and targets.
            sources: number of nodes in which links start.
            one_set: these are targets too: links have no direction, and a node is no target of its own.
            sides: see the class.
        """
        if one_set:
            nodes = np.arange(sources)
            links = np.concatenate([links, links[:, ::-1], np.stack([nodes, nodes], 1)])
        order = np.lexsort((links[:, 1], links[:, 0]))
        return cls(np.searchsorted(links[order, 0], np.arange(sources + 1)), links[order, 1], sides)

    def among(self, nodes: NDArray[np.int64]) -> list[Any]:
        """Indices of these pairs in scores [nodes, targets] of some sources with all targets."""
        counts = self._starts[nodes + 1] - self._starts[nodes]
        rows = np.repeat(np.arange(len(nodes)), counts)
        places = np.arange(len(rows)) + np.repeat(self._starts[nodes] - (np.cumsum(counts) - counts), counts)
        others = [self._sides[nodes, None] == self._sides] if len(self._sides) else []
        return [(rows, self._ends[places]), *others]


def filtered_ranks(
    sources: Any,
    targets: Any,
    links: Pairs,
    true_links: Pairs,
    one_set: bool,
    sides: NDArray[np.int8] = _NO_SIDES,
    scores_of: Callable[[Any, Any], Any] = products,
) -> NDArray[np.float64]:
    """Rank of each link among the pairs of its source with all targets but those that are links.

    Args:
        sources, targets: rows of the nodes; of vectors a pair's score is the product.
        links: int64 [n, 2].
        true_links: all links, int64 [m, 2].
        one_set: sources are targets: links have no direction, and a node is no target of its own.
        sides: side of each node, whose targets are on another; empty where all nodes are targets.
        scores_of: scores [queries, nodes] of some rows of `sources` and all `targets`.

    Returns:
        float64 [n], from 1.
    """
    left_out = TrueLinks.of_pairs(true_links, sources.shape[0], one_set, sides)
    return ranks_among(sources[links[:, 0]], targets, lambda part: left_out.among(links[part, 0]), places=links[:, 1],
                       scores_of=scores_of)  # fmt: skip


def ranks_among(
    queries: Any, others: Any, hidden: Callable[[slice], list[Any]], own: Any = None, places: Pairs | None = None,
    scores_of: Callable[[Any, Any], Any] = products,
) -> NDArray[np.float64]:  # fmt: skip
    """Rank of each query's own score among its products with the rows of nodes; of equal scores half rank before it.

    Args:
        queries: float32 [queries, width]; an array, a sparse matrix, or with `others` and `own` a tensor.
        others: rows of the nodes, [nodes, width].
        hidden: indices of the scores [queries of the slice, nodes] that are left out.
        own: own scores [queries]; None for those of `places`.
        places: place of each query's own node among the nodes, int64 [queries].
        scores_of: see `filtered_ranks`.

    Returns:
        float64 [queries], from 1.
    """
    ranks = np.empty(queries.shape[0])
    size = max(1, _BLOCK_BYTES // (4 * others.shape[0]))
    for first in range(0, len(ranks), size):
        part = slice(first, first + size)
        scores = scores_of(queries[part], others)
        limit = own[part] if places is None else scores[np.arange(len(scores)), places[part]]
        for index in hidden(part):
            scores[index] = -np.inf
        above, equal = (scores > limit[:, None]).sum(1), (scores == limit[:, None]).sum(1)
        ranks[part] = (1 + above + equal / 2).tolist()
    return ranks


def rank_figures(ranks: NDArray[np.float64], k: int) -> dict[str, float]:
    """Mean reciprocal rank, and the shares of ranks up to 1, 3 and `k`."""
    found = {"mrr": float((1 / ranks).mean())}
    return found | {
        f"hits_at_{name}": float((ranks <= most).mean()) for name, most in (("1", 1), ("3", 3), ("k", k))
    }  # fmt: skip


HITS_FILE = "hits.json"
"""Shares of ranks up to each of `HITS` by split."""
HITS = (1, 2, 3, 5, 10, 20, 50, 100)


def hits_of(ranks: NDArray[np.float64]) -> dict[str, float]:
    """Shares of ranks up to each of `HITS`."""
    return {str(most): float((ranks <= most).mean()) for most in HITS}


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
