"""The kernels of stages partition and shard, with guard zones; see `tests.kernels.guarded`."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.lib.gnn.sampler.kernels import ALL_NEIGHBORS, Renumbered, count_draws, draw_edges
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.partition.clusters import contract, move_labels
from superworkflow.tasks.partition.kernels import count_cut, count_ends, fill_ends, merge_rows, sort_rows
from superworkflow.tasks.shard.kernel import renumber_rows


def rows_of(rng: np.random.Generator, sources: int, targets: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows with repeated neighbours, ascending."""
    lists = [np.sort(rng.integers(0, targets, rng.integers(0, most + 1))) for _ in range(sources)]
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
    return read_only(indptr), read_only(np.concatenate([*lists, np.empty(0)]).astype(np.int32))


SIZES = {"sources": st.integers(0, 9), "targets": st.integers(1, 9), "most": st.sampled_from([0, 1, 4, 30])}


@given(**SIZES, seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None, print_blob=True)
def test_symmetric_graph(sources, targets, most, seed):
    """Two edge sets, one between two node sets and one within the second, with loops and repeated edges."""
    rng = np.random.default_rng(seed)
    sets = [(*rows_of(rng, sources, targets, most), 0, sources), (*rows_of(rng, targets, targets, 3), sources, sources)]
    dense = np.zeros((sources + targets,) * 2, int)
    starts = np.zeros(sources + targets + 1, np.int64)
    for indptr, indices, source, target in sets:
        np.add.at(dense, (np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)) + source, indices + target), 1)
        count_ends(indptr, indices, source, target, starts)
    dense += dense.T
    np.fill_diagonal(dense, 0)
    np.cumsum(starts, out=starts)
    assert np.diff(starts).tolist() == dense.sum(1).tolist()
    adjacency, filled = np.empty(starts[-1], np.int32), starts[:-1].copy()
    for each in sets:
        fill_ends(*each, filled, adjacency)
    merged = np.empty_like(starts)
    sort_rows(starts, adjacency, merged)
    weights = np.empty(merged[-1], np.int32)
    largest = merge_rows(starts, adjacency, weights)
    found = np.zeros_like(dense)
    found[np.repeat(np.arange(len(dense)), np.diff(merged)), adjacency[: merged[-1]]] = weights
    assert (found == dense).all()
    assert largest == dense.max(initial=0)


def symmetric_rows(rng: np.random.Generator, vertices: int, share: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of a symmetric graph, and its weights as a matrix."""
    dense = np.triu(rng.integers(1, 4, (vertices, vertices)) * (rng.random((vertices, vertices)) < share), 1)
    dense += dense.T
    starts = np.concatenate([[0], np.cumsum((dense > 0).sum(1))]).astype(np.int64)
    return starts, np.nonzero(dense)[1].astype(np.int32), dense


@given(
    vertices=st.integers(1, 12), labels=st.integers(1, 12), share=st.sampled_from([0, 0.2, 0.8]),
    constraints=st.integers(1, 3), room=st.integers(0, 9), weighted=st.booleans(),
    least=st.sampled_from([1.0, 0.8, 0.5, 0.0]), seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=50, deadline=None, print_blob=True)
def test_labels_within_bounds(vertices, labels, share, constraints, room, weighted, least, seed):
    """Each move is the one that a plain reading of the rule makes."""
    rng = np.random.default_rng(seed)
    starts, adjacency, dense = symmetric_rows(rng, vertices, share)
    edge_weights = dense[dense > 0].astype(np.int32) if weighted else np.empty(0, np.int32)
    dense = dense if weighted else (dense > 0).astype(int)
    weights = rng.integers(0, 3, (vertices, constraints)).astype(np.int32)
    found = rng.integers(0, labels, vertices).astype(np.int32)
    order, bounds = rng.permutation(vertices).astype(np.int32), np.full(constraints, room, np.int64)
    loads = np.stack([np.bincount(found, weights[:, c], labels) for c in range(constraints)], 1).astype(np.int64)
    expected, held, moves = found.copy(), loads.copy(), 0
    for v in order.tolist():
        own = expected[v]
        to = np.bincount(expected, dense[v], labels)
        too_much = ((held[own] > bounds) & (weights[v] > 0)).any()
        fits = (held + weights[v] <= bounds).all(1)
        allowed = [k for k in range(labels) if k != own and to[k] > 0 and fits[k]
                   and (to[k] >= np.floor(least * to[own] + 0.5) if too_much else to[k] > to[own])]  # fmt: skip
        if allowed:
            # Of equals the first one that its neighbours have.
            near = [expected[u] for u in adjacency[starts[v] : starts[v + 1]]]
            best = max(allowed, key=lambda k: (to[k], -near.index(k)))
            held[own] -= weights[v]
            held[best] += weights[v]
            expected[v], moves = best, moves + 1
    sums, touched = np.zeros(labels, np.int64), np.empty(min(labels, int(np.diff(starts).max())), np.int32)
    given_rows = starts, adjacency, edge_weights, weights, order, bounds
    assert move_labels(*given_rows, least, found, loads, sums, touched) == moves
    assert found.tolist() == expected.tolist()
    assert loads.tolist() == held.tolist()
    assert not sums.any()


@given(
    vertices=st.integers(1, 12), share=st.sampled_from([0, 0.2, 0.8]), weighted=st.booleans(),
    seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=25, deadline=None, print_blob=True)
def test_graph_of_clusters(vertices, share, weighted, seed):
    rng = np.random.default_rng(seed)
    starts, adjacency, dense = symmetric_rows(rng, vertices, share)
    edge_weights = dense[dense > 0].astype(np.int32) if weighted else np.empty(0, np.int32)
    dense = dense if weighted else (dense > 0).astype(int)
    _, labels = np.unique(rng.integers(0, vertices, vertices), return_inverse=True)
    labels, count = labels.astype(np.int32), int(labels.max()) + 1
    members = np.argsort(labels, kind="stable").astype(np.int32)
    begins = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=count))]).astype(np.int64)
    found, sums, touched = np.zeros(count + 1, np.int64), np.zeros(count, np.int64), np.empty(count, np.int32)
    given_rows = starts, adjacency, edge_weights, labels, members, begins, sums, touched, found
    contract(*given_rows, np.empty(0, np.int32), np.empty(0, np.int32))
    np.cumsum(found, out=found)
    out, heavy = np.empty(found[-1], np.int32), np.empty(found[-1], np.int32)
    contract(*given_rows, out, heavy)
    expected = np.zeros((count, count), int)
    np.add.at(expected, (labels[:, None], labels[None, :]), dense)
    np.fill_diagonal(expected, 0)
    small = np.zeros_like(expected)
    small[np.repeat(np.arange(count), np.diff(found)), out] = heavy
    assert small.tolist() == expected.tolist()
    assert len(out) == (expected > 0).sum()


@given(**SIZES, parts=st.sampled_from([1, 2, 4]), seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None, print_blob=True)
def test_cut_and_renumbered_rows(sources, targets, most, parts, seed):
    rng = np.random.default_rng(seed)
    indptr, indices = rows_of(rng, sources, targets, most)
    of_sources, of_targets = (np.sort(rng.integers(0, parts, count)).astype(np.int16) for count in (sources, targets))
    rng.shuffle(of_sources)
    rng.shuffle(of_targets)
    order = np.argsort(of_targets, kind="stable").astype(np.int32)
    places = np.empty_like(order)
    places[order] = np.arange(targets, dtype=np.int32)
    stamps, met = np.zeros(targets, np.int32), np.full(targets, -1, np.int16)
    for part in range(parts):
        owned = np.flatnonzero(of_sources == part).astype(np.int32)
        rows = [indices[indptr[u] : indptr[u + 1]] for u in owned]
        flat = np.concatenate([*rows, np.empty(0, np.int32)]).astype(np.int64)
        strangers = flat[of_targets[flat] != part]
        found = count_cut(indptr, indices, read_only(owned), of_targets, 0, part, stamps, part + 1)
        assert found == (len(strangers), len(set(strangers.tolist())))
        low, high = np.searchsorted(of_targets[order], [part, part + 1])
        out, halo = np.empty(len(flat), np.int32), np.empty(len(flat), np.int64)
        count = renumber_rows(indptr, indices, read_only(owned), read_only(places), low, high, met, part, out, halo)
        assert order[out].tolist() == flat.tolist()
        assert sorted(order[halo[:count]].tolist()) == sorted(set(strangers.tolist()))


@given(
    sources=st.integers(1, 9), targets=st.integers(1, 9), most=st.sampled_from([0, 3, 200]),
    size=st.sampled_from([ALL_NEIGHBORS, 1, 2, 40]), labor=st.booleans(), seed=st.integers(0, 2**32),
    share=st.sampled_from([0, 0.1, 0.9]),
)  # fmt: skip
@settings(max_examples=25, deadline=None, print_blob=True)
def test_draws_of_a_part_are_those_of_the_graph(sources, targets, most, size, labor, seed, share):
    """In new numbers, of some of the nodes."""
    rng = np.random.default_rng(seed)
    indptr, indices = rows_of(rng, sources, targets, most)
    order = rng.permutation(targets).astype(np.int32)
    places = np.argsort(order).astype(np.int32)
    owned = np.sort(rng.permutation(sources)[: rng.integers(1, sources + 1)])
    rows = [places[indices[indptr[u] : indptr[u + 1]]] for u in owned]
    own = read_only(np.concatenate([[0], np.cumsum([len(each) for each in rows])]).astype(np.int64))
    near = read_only(np.concatenate([*rows, np.empty(0)]).astype(np.int32))
    requested = rng.permutation(len(owned))[: rng.integers(0, len(owned) + 1)]
    nodes, state = owned[requested], np.uint64(seed)
    wanted, lost = np.empty(len(nodes) + 1, np.int64), read_only(np.flatnonzero(rng.random(len(indices)) < share))
    count_draws(indptr, indices, nodes, size, labor, state, lost, wanted, None)
    positions, marks = np.empty(wanted[-1], np.int64), np.zeros(4, np.uint64)
    draw_edges(indptr, indices, nodes, nodes, size, labor, state, lost, wanted, None, marks, positions)
    starts, whole = np.empty(len(nodes) + 1, np.int64), Renumbered(read_only(order), read_only(indptr[owned]))
    count_draws(own, near, requested, size, labor, state, lost, starts, whole)
    assert starts.tolist() == wanted.tolist()
    found = np.empty(starts[-1], np.int64)
    draw_edges(own, near, requested, nodes, size, labor, state, lost, starts, whole, marks, found)
    assert not marks.any()
    assert found.tolist() == positions.tolist()
