"""Merged edges, rows and held-out pairs, with small buckets, pieces and batches; see `tests.kernels.guarded`."""

import numba as nb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.holdout import split
from superworkflow.tasks.lib.graph import csr

COUNTS, THREADS = st.sampled_from([0, 1, 5, 60, 700]), st.integers(1, 8)


@pytest.fixture(autouse=True)
def _threads():
    before = nb.get_num_threads()
    yield
    nb.set_num_threads(before)


def _set_threads(threads: int) -> None:
    nb.set_num_threads(min(threads, nb.config.NUMBA_NUM_THREADS))


@given(
    vertices=st.sampled_from([1, 2, 9, 64, 300]), rows=COUNTS, weighted=st.booleans(), directed=st.booleans(),
    rule=st.sampled_from([csr.SUM, csr.MAX, csr.MIN]), threads=THREADS, bucket=st.sampled_from([32, 64, 1 << 12]),
    piece=st.sampled_from([1, 10, 1 << 16]), most_arcs=st.sampled_from([1, 50, 1 << 20]),
    most_buckets=st.sampled_from([1, 2, 8, 1024]), scratch=st.sampled_from([None, 0, 10_000]),
    seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=40, deadline=None, print_blob=True)
def test_edges_become_rows(
    vertices, rows, weighted, directed, rule, threads, bucket, piece, most_arcs, most_buckets, scratch, seed
):  # fmt: skip
    rng = np.random.default_rng(seed)
    ends = np.minimum(rng.pareto(0.7, (rows, 2)) * 5, vertices - 1).astype(np.int32)
    weights = rng.integers(1, 100, rows).astype(np.float32) if weighted else None
    expected: dict[tuple[int, int], float] = {}
    merge = {csr.SUM: float.__add__, csr.MAX: max, csr.MIN: min}[rule]
    for (u, v), weight in zip(ends.tolist(), weights.tolist() if weighted else [1.0] * rows, strict=True):
        edge = (u, v) if directed else (min(u, v), max(u, v))
        if u != v:
            expected[edge] = merge(expected[edge], weight) if edge in expected else weight
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("BUCKET", bucket), ("PIECE", piece), ("MOST_ARCS", most_arcs), ("MOST_BUCKETS", most_buckets),
        ):  # fmt: skip
            patch.setattr(csr, name, value)
        _set_threads(threads)
        edges, merged, loops, duplicates = csr.merge_edges(ends, weights, directed, rule, threads)
        assert loops == int((ends[:, 0] == ends[:, 1]).sum())
        assert duplicates == rows - loops - len(expected)
        values = merged.tolist() if merged is not None else [1.0] * len(edges)
        found = dict(zip(map(tuple, csr.unpack(edges).tolist()), values, strict=True))
        assert found == (expected if weighted else dict.fromkeys(expected, 1.0))

        counts = csr.count_ends(edges, vertices, threads)
        first, second = csr.degrees(counts)
        indptr = csr.row_starts(first if directed else first + second)
        room = None if scratch is None else np.empty(scratch, np.uint64)
        columns, of_arcs = [], []
        for indices, arc_weights in csr.assemble(edges, merged, indptr, not directed, counts, room):
            columns += indices.tolist()
            of_arcs += [1.0] * len(indices) if arc_weights is None else arc_weights.tolist()
    sources = np.repeat(np.arange(vertices), np.diff(indptr)).tolist()
    arcs = found if directed else found | {(v, u): weight for (u, v), weight in found.items()}
    assert list(zip(sources, columns, of_arcs, strict=True)) == [(u, v, arcs[u, v]) for u, v in sorted(arcs)]


@given(
    vertices=st.sampled_from([2, 3, 5, 12, 40]), rows=COUNTS, directed=st.booleans(), weighted=st.booleans(),
    chunk=st.sampled_from([1, 3, 100, 1 << 20]), threads=THREADS, seed=st.integers(0, 2**20), data=st.data(),
)  # fmt: skip
@settings(max_examples=40, deadline=None, print_blob=True)
def test_what_is_held_out(vertices, rows, directed, weighted, chunk, threads, seed, data):
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, vertices, (rows, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    arcs = np.unique(pairs if directed else np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(arcs[:, 0], minlength=vertices))]).astype(np.int64)
    indices = np.ascontiguousarray(arcs[:, 1], np.int32)
    once = arcs if directed else arcs[arcs[:, 0] < arcs[:, 1]]
    edges, places = np.empty(len(once), np.uint64), np.empty(len(once) if weighted else 0, np.int64)
    split.edges_of(indptr, indices, directed, edges, places)
    np.testing.assert_array_equal(csr.unpack(edges), once)
    if weighted:
        np.testing.assert_array_equal(arcs[places], once)

    taken = np.zeros(len(edges), np.bool_)
    forest = split.spanning_forest(edges, vertices, np.uint64(seed), taken)
    assert forest == taken.sum() == vertices - _components(vertices, once)
    assert _components(vertices, once[taken]) == _components(vertices, once)
    free = np.flatnonzero(~taken)
    drawn = split.draw(taken, data.draw(st.integers(0, len(free)), label="drawn"), np.uint64(seed))
    assert len(set(drawn.tolist())) == len(drawn)
    assert set(drawn.tolist()) <= set(free.tolist())

    joined = set(map(tuple, once.tolist()))
    others = [
        (u, v) for u in range(vertices) for v in range(0 if directed else u + 1, vertices)
        if u != v and (u, v) not in joined
    ]  # fmt: skip
    count = data.draw(st.integers(0, len(others)), label="non-edges")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split, "_CHUNK", chunk)
        _set_threads(threads)
        found = split.non_edges(indptr, indices, directed, count, np.uint64(seed))
    assert len(set(map(tuple, found.tolist()))) == count
    assert set(map(tuple, found.tolist())) <= set(others)


def _components(vertices: int, edges: np.ndarray) -> int:
    above = list(range(vertices))

    def root(vertex: int) -> int:
        while above[vertex] != vertex:
            vertex = above[vertex]
        return vertex

    for u, v in edges.tolist():
        above[root(u)] = root(v)
    return sum(above[vertex] == vertex for vertex in range(vertices))
