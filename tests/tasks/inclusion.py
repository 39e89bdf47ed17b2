"""Exact distribution of the edges of a sampled subgraph, by enumeration, and a chi-square test of draws against it.

An edge is (place of its edge set in a list, position in the set). Of all single edges and pairs of edges the numbers
of subgraphs that have them are held against their means at once, by the covariances that enumeration gives.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations, permutations

import numpy as np
from scipy import stats

from superworkflow.tasks.sample.spec import Op
from tests.tasks.sampling import PlainGraph

Drawn = frozenset[tuple[str, int]]
"""Edges of a subgraph: names of their sets and positions in them."""


def two_hops() -> PlainGraph:
    """From node 0 four edges, of which two are drawn; nodes that they lead to share their targets."""
    weights = np.array([1, 2, 2, 5], np.float32)
    onward = [(1, 0), (1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 0), (3, 3), (4, 2)]
    back = [(0, 1), (0, 2), (1, 3), (2, 1), (2, 4), (3, 2)]
    return PlainGraph(
        {"a": 5, "b": 4}, {"aa": ("a", "a"), "ab": ("a", "b"), "ba": ("b", "a")},
        {"aa": [(0, n) for n in range(1, 5)], "ab": onward, "ba": back}, {"aa": {"weight": weights}},
    )  # fmt: skip


def two_hop_ops(strategy: str) -> list[Op]:
    """Two of the seed's edges by a strategy, then one of each node's, and one back."""
    first = Op("one", ("seed",), "aa", 2, strategy)
    return [first, Op("two", ("one",), "ab", 1, "RANDOM_UNIFORM"), Op("back", ("two",), "ba", 1, "RANDOM_UNIFORM")]


def outcomes(graph: PlainGraph, ops: Sequence[Op], seed: int, by_path: bool) -> dict[Drawn, float]:
    """The probability of each set of edges that the ops draw from a seed, whose op is named `seed`."""
    fronts: dict[tuple[Drawn, tuple[tuple[str, tuple[tuple[int, int], ...]], ...]], float]
    fronts = {(frozenset(), (("seed", ((seed, 1),)),)): 1.0}
    for op in ops:
        following: defaultdict[object, float] = defaultdict(float)
        for (edges, reached), share in fronts.items():
            front: Counter[int] = Counter()
            for given in op.inputs:
                front.update(dict(dict(reached)[given]))
            drawn: dict[tuple[Drawn, tuple[tuple[int, int], ...]], float] = {(frozenset(), ()): 1.0}
            for node in sorted(front):
                for _ in range(front[node] if by_path else 1):
                    drawn = _drawn_once_more(graph, op, node, drawn)
            for (more, targets), chance in drawn.items():
                found = targets if by_path else tuple((node, 1) for node, _ in targets)
                following[edges | more, (*reached, (op.name, found))] += share * chance
        fronts = dict(following)  # type: ignore[arg-type]
    found_edges: defaultdict[Drawn, float] = defaultdict(float)
    for (edges, _), share in fronts.items():
        found_edges[edges] += share
    return dict(found_edges)


def _drawn_once_more(graph: PlainGraph, op: Op, node: int, drawn: dict) -> dict:
    row = [(position, target) for position, (source, target) in enumerate(graph.edges[op.edge_set]) if source == node]
    weights = graph.features.get(op.edge_set, {}).get("weight") if op.strategy == "RANDOM_WEIGHTED" else None
    following: defaultdict[object, float] = defaultdict(float)
    for places, chance in _draws(
        [1.0 if weights is None else float(weights[position]) for position, _ in row], op.size
    ).items():
        for (edges, targets), share in drawn.items():
            reached = Counter(dict(targets))
            reached.update(row[place][1] for place in places)
            more = edges | {(op.edge_set, row[place][0]) for place in places}
            following[more, tuple(sorted(reached.items()))] += share * chance
    return dict(following)


def _draws(weights: Sequence[float], size: int) -> dict[tuple[int, ...], float]:
    """Sets of places, drawn one after the other, each in proportion to its weight among those left."""
    if len(weights) <= size:
        return {tuple(range(len(weights))): 1.0}
    if len(set(weights)) == 1:
        every = list(combinations(range(len(weights)), size))
        return dict.fromkeys(every, 1 / len(every))
    found: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for order in permutations(range(len(weights)), size):
        share, left = 1.0, sum(weights)
        for place in order:
            share, left = share * weights[place] / left, left - weights[place]
        found[tuple(sorted(order))] += share
    return dict(found)


def inclusion_p_value(draws: Iterable[Drawn], expected: dict[Drawn, float]) -> float:
    """The probability of so large a difference by chance; 0 where something was drawn that cannot be."""
    observed = Counter(draws)
    if not observed.keys() <= expected.keys():
        return 0.0
    sets = list(expected)
    edges = sorted(frozenset().union(*sets))
    single = np.array([[edge in drawn for edge in edges] for drawn in sets], float)
    pairs = [single[:, i] * single[:, j] for i, j in combinations(range(len(edges)), 2)]
    features = np.column_stack([single, *pairs])
    shares, counts = np.array(list(expected.values())), np.array([observed[drawn] for drawn in sets], float)
    off = features - shares @ features
    covariance = (off * shares[:, None]).T @ off
    difference = counts @ off / counts.sum()
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-9 * values.max()
    along = vectors[:, kept].T @ difference
    return float(stats.chi2.sf(counts.sum() * (along**2 / values[kept]).sum(), kept.sum()))
