"""The kernels of link prediction, with guard zones; see `tests.kernels.guarded`."""

import itertools

import numba as nb
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.lib.gnn.sampler.negative_sampling import (
    DEGREE,
    PAIRS,
    UNIFORM,
    draw_negatives,
    draw_non_links,
    edges_between,
)
from superworkflow.tasks.lib.graph.short_paths import ShortPaths
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.largest import largest_of_rows
from tests.kernels.test_gnn_kernels import rows_of

NO_SIDES = read_only(np.empty(0, np.int8))


@given(
    sources=st.integers(1, 7), others=st.integers(1, 9), most=st.sampled_from([0, 1, 3, 30]), one_set=st.booleans(),
    by=st.sampled_from([PAIRS, UNIFORM, DEGREE]), each=st.integers(1, 3), seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=25, deadline=None, print_blob=True)
def test_pairs(sources, others, most, one_set, by, each, seed):
    rng = np.random.default_rng(seed)
    targets = sources if one_set else others
    indptr, indices = rows_of(rng, sources, targets, most)
    starts = np.repeat(np.arange(sources), np.diff(indptr))
    edges = list(zip(starts.tolist(), indices.tolist(), strict=True))
    linked = set(edges) | ({(v, u) for u, v in edges} if one_set else set())

    ends = rng.integers(0, [sources, targets], (5, 2)).astype(np.int64)
    firsts, counts = np.empty(5, np.int64), np.empty(5, np.int64)
    edges_between(indptr, indices, read_only(ends[:, 0].copy()), read_only(ends[:, 1].copy()), firsts, counts)
    for (u, v), first, count in zip(ends.tolist(), firsts, counts, strict=True):
        assert count == edges.count((u, v))
        assert all(edges[first + i] == (u, v) for i in range(count))

    free = {(u, v) for u in range(sources) for v in range(targets) if not one_set or u < v} - linked
    out = np.full((len(free) + 2, 2), -1, np.int64)
    found = draw_non_links(indptr, indices, one_set, targets, np.uint64(seed), out)
    assert {tuple(pair) for pair in out[:found].tolist()} == free
    assert found == len(free)
    assert (out[found:] == -1).all()

    links = read_only(np.array([(u, v) for u, v in edges if not one_set or u != v], np.int64).reshape(-1, 2))
    if not len(links):
        return
    numbers = rng.permutation(len(links))[: rng.integers(0, len(links) + 1)].astype(np.int64)
    drawn = np.full((len(numbers) * each, 2), -1, np.int64)
    key = np.uint64(seed)
    draw_negatives(indptr, indices, one_set, targets, links, by, read_only(numbers), each, key, drawn, NO_SIDES)
    assert ((drawn >= 0) & (drawn < [sources, targets])).all()
    kept = np.repeat(links[numbers], each, axis=0)
    if by != PAIRS:
        assert ((drawn == kept).any(axis=1)).all()
    elif 2 * len(free) > sources * targets:  # else 64 draws may all fail
        assert {pair if not one_set else (min(pair), max(pair)) for pair in map(tuple, drawn.tolist())} <= free
    again = np.full_like(drawn, -1)
    reverse = read_only(numbers[::-1].copy())
    draw_negatives(indptr, indices, one_set, targets, links, by, reverse, each, key, again, NO_SIDES)
    assert (again.reshape(-1, each, 2)[::-1] == drawn.reshape(-1, each, 2)).all()


def test_negatives_are_no_links_and_follow_degrees():
    """A star of 40 and 160 nodes alone: its hub is an end as often as all others together."""
    indptr = read_only(np.array([0, 40, *[40] * 200], np.int64))
    indices = read_only(np.arange(1, 41, dtype=np.int32))
    links = read_only(np.stack([np.zeros(40, np.int64), np.arange(1, 41)], 1))
    for by in (UNIFORM, DEGREE):
        out = np.empty((40 * 50, 2), np.int64)
        draw_negatives(indptr, indices, True, 201, links, by, np.arange(40), 50, np.uint64(3), out, NO_SIDES)
        of_leaves = out[~(out == 0).any(axis=1)]
        assert len(of_leaves) > 400
        assert (of_leaves.max(axis=1) > 40).mean() > 0.7 or by == DEGREE
        assert (of_leaves <= 40).all() or by == UNIFORM


def test_pairs_of_any_two_nodes():
    """Each pair without a link equally often: of a star of four nodes and a node alone."""
    indptr, indices = read_only(np.array([0, 3, 3, 3, 3, 3], np.int64)), read_only(np.arange(1, 4, dtype=np.int32))
    links = read_only(np.array([[0, 1], [0, 2], [0, 3]], np.int64))
    out = np.empty((3 * 3000, 2), np.int64)
    draw_negatives(indptr, indices, True, 5, links, PAIRS, np.arange(3), 3000, np.uint64(7), out, NO_SIDES)
    found, counts = np.unique(out, axis=0, return_counts=True)
    assert {tuple(pair) for pair in found.tolist()} == {
        (u, v) for u in range(5) for v in range(5) if u != v and (0 not in (u, v) or 4 in (u, v))
    }
    assert abs(counts - 9000 / 14).max() < 5 * (9000 / 14) ** 0.5


def test_negatives_are_of_two_sides():
    """Sides of 30 and 10 nodes, one joined with the first three of the other."""
    indptr = read_only(np.array([0, *np.arange(3, 93, 3), *[90] * 10], np.int64))
    indices = read_only(np.tile(np.arange(30, 33, dtype=np.int32), 30))
    links = read_only(np.stack([np.repeat(np.arange(30), 3), np.tile(np.arange(30, 33), 30)], 1))
    sides = read_only(np.repeat(np.array([1, 2], np.int8), [30, 10]))
    out = np.empty((90 * 20, 2), np.int64)
    draw_negatives(indptr, indices, True, 40, links, UNIFORM, np.arange(90), 20, np.uint64(5), out, sides)
    low, high = out.min(axis=1), out.max(axis=1)
    fine = (low < 30) & (high >= 33)
    # An end that is joined with all of the other side has no partner, and some other draws fail 32 times.
    assert (fine | np.isin(out, [30, 31, 32]).any(axis=1)).mean() > 0.99
    assert fine.mean() > 0.45
    assert set(high[fine].tolist()) == set(range(33, 40))


@given(
    nodes=st.integers(2, 9), share=st.floats(0, 1), seed=st.integers(0, 1000), long=st.booleans(),
    threads=st.integers(1, 2),
)  # fmt: skip
@settings(max_examples=60, deadline=None, print_blob=True)
def test_short_paths(nodes, share, seed, long, threads):
    """Against brute force: also of nodes that an edge joins, whichever end is followed, in any order of the nodes."""
    rng = np.random.default_rng(seed)
    links = np.array([each for each in itertools.combinations(range(nodes), 2) if rng.random() < share]).reshape(-1, 2)
    worth = rng.random(nodes)
    linked = {*map(tuple, links.tolist()), *map(tuple, links[:, ::-1].tolist())}
    two, three = np.zeros((2, nodes, nodes))
    for u, v in itertools.permutations(range(nodes), 2):
        inner = [each for each in range(nodes) if each not in (u, v)]
        two[u, v] = sum(worth[a] for a in inner if {(u, a), (a, v)} <= linked)
        if long:
            three[u, v] = sum(
                worth[a] * worth[b] for a, b in itertools.permutations(inner, 2) if {(u, a), (a, b), (b, v)} <= linked
            )
    pairs = np.array(list(itertools.permutations(range(nodes), 2)))
    paths, before = ShortPaths(links, nodes), nb.get_num_threads()
    nb.set_num_threads(min(threads, before))
    try:
        found, rows = paths.of_pairs(worth, pairs, long), paths.from_nodes(worth, np.arange(nodes), long)
    finally:
        nb.set_num_threads(before)
    for wanted, own, row in zip((two, three), found, rows, strict=True):
        np.testing.assert_allclose(own, wanted[tuple(pairs.T)], atol=1e-12)
        np.testing.assert_allclose(row, wanted, atol=1e-12)
    order = rng.permutation(nodes)
    indptr, indices = paths.reordered(order)
    moved = {(int(order[u]), int(order[v])) for u in range(nodes) for v in indices[indptr[u] : indptr[u + 1]]}
    assert moved == linked
    assert all((np.diff(indices[indptr[u] : indptr[u + 1]]) > 0).all() for u in range(nodes))


def test_short_paths_through_a_hub():
    """A hub's neighbours are searched for those of the other end, where these are few."""
    rng, nodes = np.random.default_rng(0), 60
    links = np.stack([np.zeros(nodes - 1, np.int64), np.arange(1, nodes)], 1)
    more = np.unique(np.sort(rng.integers(1, nodes, (25, 2)), axis=1), axis=0)
    links = np.concatenate([links, more[more[:, 0] != more[:, 1]]])
    linked, worth = np.zeros((nodes, nodes)), rng.random(nodes)
    linked[tuple(links.T)] = linked[tuple(links[:, ::-1].T)] = 1
    pairs = np.array(list(itertools.permutations(range(nodes), 2)))
    found = ShortPaths(links, nodes).of_pairs(worth, pairs)
    for (u, v), three in zip(pairs.tolist(), found.three, strict=True):
        near, far = linked[u] * worth, linked[v] * worth
        near[v] = far[u] = 0
        assert abs(three - near @ linked @ far) < 1e-12


@given(
    rows=st.integers(0, 5), columns=st.integers(1, 40), k=st.sampled_from([1, 2, 3, 7, 40]), spread=st.integers(1, 50),
    none=st.sampled_from([0.0, 0.3, 1.0]), threads=st.integers(1, 4), seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=50, deadline=None, print_blob=True)
def test_largest_values_of_rows(rows, columns, k, spread, none, threads, seed):
    rng, before = np.random.default_rng(seed), nb.get_num_threads()
    values = rng.integers(0, spread, (rows, columns)).astype(np.float32)
    values[rng.random(values.shape) < none] = -np.inf
    values[rng.random(values.shape) < none / 10] = np.nan
    places = np.full((rows, k), -7, np.int64)
    nb.set_num_threads(min(threads, before))
    try:
        largest_of_rows(values, places)
    finally:
        nb.set_num_threads(before)
    for row, found in zip(values, places, strict=True):
        wanted = [place for place in np.argsort(-row, kind="stable") if row[place] > -np.inf][:k]
        assert found.tolist() == wanted + [-1] * (k - len(wanted))
