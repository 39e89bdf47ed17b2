"""Rows of a graph from its edges, held against SciPy."""

import numpy as np
import pytest
from scipy.sparse import coo_array

from superworkflow.tasks.lib.graph import csr


def _edges(vertices: int, count: int) -> np.ndarray:
    """Distinct pairs [edges, 2], with a hub of most of the vertices, in no order, and vertices without any."""
    rng = np.random.default_rng(1)
    pairs = np.minimum(rng.pareto(0.7, (count, 2)) * 40, vertices - 60).astype(np.int64)
    hub = np.stack([np.full(vertices // 2, 3), np.arange(vertices // 2) * 2], axis=1)
    pairs = np.concatenate([pairs, hub])
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    return rng.permutation(np.unique(pairs, axis=0))


@pytest.mark.parametrize("most_arcs", [3_000, 1 << 26])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_are_those_of_scipy(monkeypatch, symmetric, weighted, most_arcs, threads):
    monkeypatch.setattr(csr, "MOST_ARCS", most_arcs)
    monkeypatch.setattr(csr, "BUCKET", 500)
    monkeypatch.setattr(csr, "PIECE", 2_000)
    vertices = 9_001
    pairs = _edges(vertices, 40_000)
    edges = csr.pack(pairs[:, 0], pairs[:, 1])
    weights = np.random.default_rng(2).random(len(edges), np.float32) if weighted else None
    counts = csr.count_ends(edges, vertices, threads)
    first, second = csr.degrees(counts)
    indptr = csr.row_starts(first + second if symmetric else first)
    scratch = np.empty(3_000, np.uint64)
    found, found_weights, pieces = [], [], 0
    for indices, piece_weights in csr.assemble(edges, weights, indptr, symmetric, counts, scratch):
        pieces += 1
        found.append(indices.copy())
        if piece_weights is not None:
            found_weights.append(piece_weights.copy())
    values = np.arange(1, len(edges) + 1)
    expected = coo_array((values, (pairs[:, 0], pairs[:, 1])), shape=(vertices, vertices)).tocsr()
    if symmetric:
        expected = (expected + expected.T).tocsr()
    expected.sort_indices()
    assert pieces > 10
    np.testing.assert_array_equal(indptr, expected.indptr)
    np.testing.assert_array_equal(np.concatenate(found), expected.indices)
    if weights is not None:
        np.testing.assert_array_equal(np.concatenate(found_weights), weights[expected.data - 1])


def test_a_graph_without_edges_has_no_pieces():
    edges = np.empty(0, np.uint64)
    counts = csr.count_ends(edges, 5, 2)
    assert list(csr.assemble(edges, None, np.zeros(6, np.int64), True, counts)) == []
