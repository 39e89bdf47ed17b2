"""Walks by properties: edges only, the same for any threads and ranges, starts, sinks, and the tables beneath."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numba as nb
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.lib.kernels.conversions import LIMIT
from superworkflow.tasks.lib.kernels.random import GAMMA, mix
from superworkflow.tasks.walk.kernels import edge_filter_size
from superworkflow.tasks.walk.kernels.adjacency import PADDING, degree_bits, find, pack_headers
from superworkflow.tasks.walk.kernels.alias_table import CLEAR_BIT, WIDE, build_alias, build_wide_alias
from superworkflow.tasks.walk.kernels.edge_filter import build_table, locate
from superworkflow.tasks.walk.kernels.second_order import FRACTION, extra_width, throw
from superworkflow.tasks.walk.kernels.starts import _FEISTEL_ROUNDS, _ORDER_DOMAIN, start_positions
from superworkflow.tasks.walk.walker import WALKS_PER_CALL, Walker

Csr = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]


def random_csr(n: int, edges: int, seed: int, *, directed: bool = False) -> Csr:
    """A random simple graph with symmetric weights unless directed; some vertices may be isolated or sinks."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, n, (edges, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    if not directed:
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
    pairs = np.unique(pairs, axis=0) if len(pairs) else pairs.reshape(0, 2)
    low, high = pairs.min(1, initial=n), pairs.max(1, initial=0)
    weights = ((low * 31 + high * 17) % 13 + 1).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=n))]).astype(np.int64)
    return indptr, pairs[:, 1].astype(np.int32), weights


def edge_set(indptr: npt.NDArray[np.int64], indices: npt.NDArray[np.int32]) -> set[tuple[int, int]]:
    sources = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return set(zip(sources.tolist(), indices.tolist(), strict=True))


graphs = st.builds(random_csr, st.integers(1, 60), st.integers(0, 400), st.integers(0, 2**20), directed=st.booleans())
biases = st.sampled_from([(1.0, 1.0), (0.5, 2.0), (4.0, 0.25), (1e-3, 1e3), (1e3, 1e-3), (2.0, 1.0)])


@given(graphs, biases, st.booleans(), st.integers(1, 40), st.integers(0, 2**63 - 1), st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_step_is_an_edge_and_only_sinks_end_a_walk(graph, bias, weighted, walk_length, seed, large):
    indptr, indices, weights = graph
    n = len(indptr) - 1
    with pytest.MonkeyPatch.context() as patch:
        if large:
            patch.setattr(edge_filter_size, "MATRIX_BYTES", 0)
        walker = Walker(
            indptr, indices, weights if weighted else None, directed=True, walk_length=walk_length,
            p=bias[0], q=bias[1], seed=seed,
        )  # fmt: skip
    walks = walker.walk(0, 3 * n)
    edges, degrees = edge_set(indptr, indices), np.diff(indptr)
    assert walks.shape == (3 * n, walk_length)
    for walk in walks.tolist():
        length = walk.index(-1) if -1 in walk else walk_length
        assert length >= 1
        assert set(walk[length:]) <= {-1}
        assert all(step in edges for step in pairwise(walk[:length]))
        assert length == walk_length or degrees[walk[length - 1]] == 0


@pytest.mark.parametrize(
    ("p", "q", "large"),
    [
        *((p, q, False) for p, q in [(1, 1), (0.5, 2), (0.25, 0.25), (1e-3, 1e3), (2, 1)]),
        (0.5, 2, True),
        (4, 1e3, True),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_same_walks_for_any_threads_and_ranges(p, q, large, weighted, directed, monkeypatch):
    if large:
        monkeypatch.setattr(edge_filter_size, "MATRIX_BYTES", 0)
    indptr, indices, weights = random_csr(700, 6000, 1, directed=directed)
    n = len(indptr) - 1

    def walker(threads: int) -> Walker:
        given_weights = weights if weighted else None
        return Walker(indptr, indices, given_weights, directed=directed, walk_length=20, p=p, q=q, threads=threads)

    whole = walker(1).walk(0, 10 * n)
    assert 10 * n > 3 * WALKS_PER_CALL
    for threads in (2, 4):
        np.testing.assert_array_equal(walker(threads).walk(0, 10 * n, threads), whole)
    rng = np.random.default_rng(0)
    cuts = [0, 1, 2, *sorted(rng.integers(2, 10 * n, 12).tolist()), 10 * n]
    alone = walker(1)
    for a, b in pairwise(cuts):
        np.testing.assert_array_equal(alone.walk(a, b, 2), whole[a:b])
    into = np.empty((100, 20), np.int32)
    assert alone.walk(50, 150, out=into) is into
    np.testing.assert_array_equal(into, whole[50:150])


@pytest.mark.slow
@pytest.mark.parametrize("q", [1, 2])
def test_wide_indices_give_the_same_walks(q):
    indptr, indices, weights = random_csr(300, 2000, 2)
    narrow = Walker(indptr, indices, weights, p=0.5, q=q).walk(0, 900)
    wide = Walker(indptr, indices.astype(np.int64), weights, p=0.5, q=q).walk(0, 900)
    assert (narrow.dtype, wide.dtype) == (np.int32, np.int64)
    np.testing.assert_array_equal(narrow, wide)


@pytest.mark.parametrize(("p", "q", "weighted"), [(1, 1, False), (1, 1, True), (0.5, 2, False), (0.5, 2, True)])
def test_seed_changes_walks(p, q, weighted):
    indptr, indices, weights = random_csr(300, 2000, 2)
    a, b = (Walker(indptr, indices, weights if weighted else None, p=p, q=q, seed=s).walk(0, 300) for s in (1, 2))
    assert (a[:, 1:] != b[:, 1:]).mean() > 0.9
    assert (a[:, 0] != b[:, 0]).mean() > 0.9


@pytest.mark.parametrize("q", [1, 2])
def test_rounds_are_different_permutations_of_the_starts(q):
    indptr, indices, _ = random_csr(500, 4000, 3)
    starts = np.array([7, 3, 499, 20, 21], np.int64)
    walks = Walker(indptr, indices, q=q, starts=starts).walk(0, 4000)
    rounds = walks[:, 0].reshape(-1, len(starts))
    np.testing.assert_array_equal(np.sort(rounds, 1), np.tile(np.sort(starts), (len(rounds), 1)))
    assert len({tuple(order) for order in rounds.tolist()}) > 100  # of 120
    every = Walker(indptr, indices, q=q).walk(0, 1000)[:, 0].reshape(2, 500)
    np.testing.assert_array_equal(np.sort(every, 1), np.tile(np.arange(500), (2, 1)))
    assert (every[0] != every[1]).mean() > 0.9


@nb.njit(error_model="numpy")
def start_position(seed, walk_round, k, n):
    """The position of the ``k``-th start of a round, one at a time (all uint64)."""
    one = np.uint64(1)
    half = one
    while (one << (half + half)) < n:
        half += one
    mask = (one << half) - one
    key = mix(mix(seed ^ _ORDER_DOMAIN) + mix(walk_round * GAMMA + GAMMA))
    position = k
    while True:
        left, right = position >> half, position & mask
        for i in range(_FEISTEL_ROUNDS):
            left, right = right, left ^ (mix(key + np.uint64(i) * GAMMA + (right << np.uint64(8))) & mask)
        position = (left << half) | right
        if position < n:
            return position


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_start_order_is_a_bijection(n, seed, walk_round):
    seed, walk_round, size = np.uint64(seed), np.uint64(walk_round), np.uint64(n)
    order = [int(start_position(seed, walk_round, np.uint64(k), size)) for k in range(n)]
    assert sorted(order) == list(range(n))
    several = np.empty(n + 5, np.int64)
    start_positions(seed, walk_round * size, size, several)
    assert several[:n].tolist() == order
    later = [int(start_position(seed, walk_round + np.uint64(1 + k // n), np.uint64(k % n), size)) for k in range(5)]
    assert several[n:].tolist() == later


def test_start_order_beyond_32_bits():
    n = np.uint64(2**40 + 15)
    order = [int(start_position(np.uint64(1), np.uint64(0), np.uint64(k), n)) for k in range(20_000)]
    assert len(set(order)) == len(order)
    assert abs(np.mean(order) / 2**40 - 0.5) < 0.02


@pytest.mark.parametrize(("p", "q"), [(1, 1), (0.5, 2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_sinks_and_isolated_vertices(p, q, weighted):
    # 0 -> 1 -> 2 (a sink); 3 is alone.
    indptr, indices = np.array([0, 1, 2, 2, 2]), np.array([1, 2], np.int32)
    weights = np.ones(2, np.float32) if weighted else None
    walks = Walker(indptr, indices, weights, directed=True, p=p, q=q, walk_length=5).walk(0, 4)
    by_start = {walk[0]: walk[1:] for walk in walks.tolist()}
    assert by_start == {0: [1, 2, -1, -1], 1: [2, -1, -1, -1], 2: [-1] * 4, 3: [-1] * 4}
    alone = Walker(np.zeros(4, np.int64), np.empty(0, np.int32), directed=True, p=p, q=q, walk_length=3)
    assert sorted(alone.walk(0, 3).tolist()) == [[0, -1, -1], [1, -1, -1], [2, -1, -1]]


@given(graphs, st.booleans())
@settings(max_examples=80, deadline=None)
def test_pair_tables_know_every_edge(graph, final):
    indptr, indices, _ = graph
    n, edges = np.uint64(len(indptr) - 1), edge_set(graph[0], graph[1])
    directed = any((b, a) not in edges for a, b in edges)
    limit = edge_filter_size.MATRIX_BYTES
    try:
        edge_filter_size.MATRIX_BYTES = limit if final else -1
        with ThreadPoolExecutor(3) as pool:
            table, is_final = build_table(indptr, indices, directed, pool, 3)
    finally:
        edge_filter_size.MATRIX_BYTES = limit
    assert is_final is final
    for t in range(int(n)):
        for x in range(int(n)):
            word, bits = locate(np.int64(t), np.int64(x), n, np.uint64(len(table)), directed, final)
            hit = int(table[int(word)]) & int(bits) == int(bits)
            assert hit or (t, x) not in edges
            assert not (hit and final) or (t, x) in edges


def test_filter_seldom_errs():
    indptr, indices, _ = random_csr(40_000, 400_000, 9)
    with ThreadPoolExecutor(2) as pool:
        table, final = build_table(indptr, indices, False, pool, 2)
    assert not final
    edges, rng = edge_set(indptr, indices), np.random.default_rng(1)
    wrong = tried = 0
    for t, x in rng.integers(0, 40_000, (20_000, 2)).tolist():
        word, bits = locate(np.int64(t), np.int64(x), np.uint64(40_000), np.uint64(len(table)), False, False)
        if (t, x) not in edges:
            tried += 1
            wrong += int(table[int(word)]) & int(bits) == int(bits)
    assert wrong / tried < 0.04


@given(st.lists(st.floats(2**-20, 2**20, width=32), min_size=1, max_size=200))
@settings(max_examples=200, deadline=None)
def test_alias_table_holds_the_weights(values):
    weights = np.array(values, np.float32)
    indptr = np.array([0, 0, len(weights)])
    alias, totals = np.zeros(len(weights) + 1, np.uint64), np.zeros(2)
    build_alias(indptr, weights, 0, 2, alias, totals)
    share = np.zeros(len(weights))
    for i, entry in enumerate(alias[:-1].tolist()):
        share[i] += entry >> 32
        share[entry & 0xFFFFFFFF] += 2**32 - (entry >> 32)
    wanted = weights / weights.sum(dtype=np.float64)
    np.testing.assert_allclose(share / 2**32 / len(weights), wanted, atol=4 / 2**32, rtol=0)
    np.testing.assert_allclose(totals, [0, weights.sum(dtype=np.float64)])
    neighbours = np.arange(len(weights), dtype=np.int32)[::-1].copy()
    clear = (np.arange(len(weights)) % 3 == 0).astype(np.uint8)
    wide = np.zeros((len(weights), WIDE), np.uint32)
    build_wide_alias(indptr, neighbours, weights, clear, 0, 2, wide.reshape(-1), totals)
    entries = neighbours.astype(np.uint32) | clear.astype(np.uint32) << CLEAR_BIT
    others = (alias[:-1] & np.uint64(0xFFFFFFFF)).astype(np.int64)
    np.testing.assert_array_equal(wide[:, 0], alias[:-1] >> np.uint64(32))
    np.testing.assert_array_equal(wide[:, 1], entries)
    np.testing.assert_array_equal(wide[:, 3], entries[others])
    np.testing.assert_array_equal(wide[:, 2::2].view(np.float32), np.stack([weights, weights[others]], 1))


@given(st.sets(st.integers(0, 300), max_size=120), st.integers(0, 300))
@settings(deadline=None)
def test_find_in_a_row(row, vertex):
    indices = np.array([*sorted(row), *[-1] * PADDING], np.int32)
    found = find(indices, np.uint64(0), np.uint64(len(row)), vertex)
    assert found == (sorted(row).index(vertex) if vertex in row else -1)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=50))
@settings(deadline=None)
def test_headers_hold_start_and_degree(degrees):
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    bits = degree_bits(indptr)
    headers = pack_headers(indptr, bits)
    assert (headers[:-1] >> np.uint64(bits)).tolist() == indptr[:-1].tolist()
    assert (headers[:-1] & np.uint64((1 << bits) - 1)).tolist() == degrees
    assert headers[-1] == 0


def test_a_graph_too_large_for_headers_is_refused():
    with pytest.raises(ValueError, match="64-bit header"):
        degree_bits(np.array([0, 2**40, 2**40 + 1]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": 0.0}, "p and q"), ({"q": -1.0}, "p and q"), ({"p": np.inf}, "p and q"),
        ({"walk_length": 0}, "walk_length"),
        ({"starts": np.array([0, 4])}, "start vertices"), ({"starts": np.array([-1])}, "start vertices"),
    ],
)  # fmt: skip
def test_bad_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        Walker(np.array([0, 1, 2]), np.array([1, 0], np.int32), **change)
    with pytest.raises(ValueError, match="counts 2 edges"):
        Walker(np.array([0, 1, 2]), np.array([1], np.int32))


@nb.njit
def thrown(word, edges, share, outlier):
    return throw(word, (edges + extra_width(edges, share, outlier)) * FRACTION)


@pytest.mark.parametrize("outlier", [1e12, 1e30, np.inf, np.nan])
def test_a_dart_at_an_outlier_of_any_width_misses_the_row(outlier):
    column, _ = thrown(np.uint64(2**64 - 1), 1e8, 1.0, outlier)
    assert LIMIT <= column < 2**63 - 1
    assert thrown(np.uint64(2**63), 5.0, 0.5, 2.0)[0] == 5
