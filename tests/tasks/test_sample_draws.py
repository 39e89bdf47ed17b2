"""Distribution of the drawn sets, against enumeration, by chi-square with fixed seeds."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise, permutations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from superworkflow.tasks.lib.subgraphs.blocks import SubgraphBlock
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.sampler import SeedRows, SpecSampler
from superworkflow.tasks.sample.spec import Op, SamplingSpec
from tests.tasks.inclusion import inclusion_p_value, outcomes, two_hop_ops, two_hops
from tests.tasks.sampling import PlainGraph

DRAWS, P_VALUE = 10_000, 1e-4


def repeated(folder: Path, graph: PlainGraph, ops: Sequence[Op], inputs: str = "once") -> SubgraphBlock:
    """Subgraphs around node 0, of `DRAWS` repeats."""
    seeds = SeedRows(
        pa.array(list(map(str, range(DRAWS)))),
        np.zeros((DRAWS, 1), np.int64),
        np.zeros(DRAWS, np.int64),
        np.arange(DRAWS),
    )
    params = SampleParams(inputs=inputs, seed=3)
    spec = SamplingSpec("spec", "seed", "a", False, tuple(ops))
    return SpecSampler(graph.open(folder), spec, params).block(seeds)


def sampled(folder: Path, graph: PlainGraph, ops: Sequence[Op], inputs: str = "once") -> list[list[int]]:
    """Targets of the last edge set's edges in such subgraphs."""
    block = repeated(folder, graph, ops, inputs)
    edges = graph.edges[ops[-1].edge_set]
    starts, positions = block.edge_starts[-1], block.positions[-1]
    return [[edges[p][1] for p in positions[a:b]] for a, b in pairwise(starts)]


def check(observed: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> None:
    assert observed.keys() <= expected.keys()
    counts = np.array([observed[each] for each in expected], float)
    shares = np.array(list(expected.values()))
    wanted = shares / shares.sum() * counts.sum()
    assert stats.chi2.sf(((counts - wanted) ** 2 / wanted).sum(), len(counts) - 1) > P_VALUE


@pytest.mark.parametrize(("degree", "size"), [(6, 2), (7, 5), (70, 2), (600, 2)])
def test_uniform_sets(tmp_path: Path, degree: int, size: int) -> None:
    graph = PlainGraph({"a": 1, "b": degree}, {"ab": ("a", "b")}, {"ab": [(0, n) for n in range(degree)]})
    rows = sampled(tmp_path / "graph", graph, [Op("op", ("seed",), "ab", size, "RANDOM_UNIFORM")])
    assert all(len(set(row)) == size for row in rows)
    tenth = max(1, degree // 10)  # of long rows, which tenth of the row each place is in
    sets = Counter(tuple(n // tenth for n in row) for row in rows)
    pairs = Counter(tuple(n // tenth for n in each) for each in combinations(range(min(degree, 10 * tenth)), size))
    check(sets, {key: float(count) for key, count in pairs.items()})


def test_weighted_sets(tmp_path: Path) -> None:
    weights = [0.0, 1.0, 2.0, 2.0, 5.0, 1.0]
    graph = PlainGraph(
        {"a": 1, "b": 6}, {"ab": ("a", "b")}, {"ab": [(0, n) for n in range(6)]},
        {"ab": {"weight": np.array(weights, np.float32)}},
    )  # fmt: skip
    rows = sampled(tmp_path / "graph", graph, [Op("op", ("seed",), "ab", 3, "RANDOM_WEIGHTED")])
    expected: dict[tuple[int, ...], float] = {}
    for order in permutations(range(1, 6), 3):  # one after the other, each in proportion to its weight among those left
        share, left = 1.0, sum(weights)
        for each in order:
            share, left = share * weights[each] / left, left - weights[each]
        key = tuple(sorted(order))
        expected[key] = expected.get(key, 0) + share
    check(Counter(map(tuple, rows)), expected)


@pytest.mark.parametrize(("inputs", "draws"), [("once", 1), ("path", 3)])
def test_draws_for_each_path(tmp_path: Path, inputs: str, draws: int) -> None:
    """Three ways lead to the middle node, which has six edges: one draw of one, or three, apart from each other."""
    graph = PlainGraph(
        {"a": 4, "b": 1, "c": 6},
        {"aa": ("a", "a"), "ab": ("a", "b"), "bc": ("b", "c")},
        {"aa": [(0, 1), (0, 2), (0, 3)], "ab": [(1, 0), (2, 0), (3, 0)], "bc": [(0, n) for n in range(6)]},
    )
    ops = [
        Op("all", ("seed",), "aa", 3, "RANDOM_UNIFORM"), Op("one", ("all",), "ab", 1, "RANDOM_UNIFORM"),
        Op("drawn", ("one",), "bc", 1, "RANDOM_UNIFORM"),
    ]  # fmt: skip
    rows = sampled(tmp_path / "graph", graph, ops, inputs)
    expected = Counter(tuple(sorted(set(each))) for each in np.ndindex(*[6] * draws))
    check(Counter(map(tuple, rows)), {key: float(count) for key, count in expected.items()})


@pytest.mark.parametrize("inputs", ["once", "path"])
@pytest.mark.parametrize("strategy", ["RANDOM_UNIFORM", "RANDOM_WEIGHTED"])
def test_single_edges_and_pairs_over_two_hops(tmp_path: Path, inputs: str, strategy: str) -> None:
    graph = two_hops()
    block = repeated(tmp_path / "graph", graph, two_hop_ops(strategy), inputs)
    drawn = [set[tuple[str, int]]() for _ in range(DRAWS)]
    for j, name in enumerate(sorted(graph.edges)):
        for each, (a, b) in zip(drawn, pairwise(block.edge_starts[j]), strict=True):
            each |= {(name, position) for position in block.positions[j][a:b].tolist()}
    expected = outcomes(graph, two_hop_ops(strategy), 0, inputs == "path")
    assert sum(expected.values()) == pytest.approx(1)
    assert inclusion_p_value(map(frozenset, drawn), expected) > P_VALUE
    others = outcomes(graph, two_hop_ops(strategy), 0, inputs != "path")  # which differ enough to be distinguished
    assert inclusion_p_value(map(frozenset, drawn), others) < P_VALUE
