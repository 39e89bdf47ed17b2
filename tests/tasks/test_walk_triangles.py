"""Edges of no triangle: which they are, when they are not sought, and that knowing them changes no walk."""

from itertools import pairwise

import numpy as np
import pytest

from superworkflow.tasks.walk import walker
from superworkflow.tasks.walk.kernels import edge_filter_size, triangles
from superworkflow.tasks.walk.kernels.triangles import edges_of_no_triangle, pack_bits
from superworkflow.tasks.walk.walker import Walker
from tests.tasks.test_walk_walker import Csr, random_csr


def with_hub_and_loops(n: int, edges: int, seed: int) -> Csr:
    """A sparse random graph with a hub, whose edges close many triangles, and two vertices with edges to themselves."""
    indptr, indices, _ = random_csr(n, edges, seed)
    rows = np.repeat(np.arange(n), np.diff(indptr))
    reached = np.arange(1, n, 7)
    hub = np.stack([np.zeros(len(reached), np.int64), reached], 1)
    pairs = np.concatenate([np.stack([rows, indices], 1), hub, hub[:, ::-1], [[5, 5], [14, 14]]])
    pairs = np.unique(pairs, axis=0)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=n))]).astype(np.int64)
    weights = (1 + (pairs.sum(1) * 7 + pairs.prod(1)) % 13).astype(np.float32) / 4
    return indptr, pairs[:, 1].astype(np.int32), weights


def by_definition(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """1 where the ends of an edge have no common neighbour, and no edge to themselves."""
    rows = [set(indices[a:b].tolist()) for a, b in pairwise(indptr)]
    loops = {v for v, row in enumerate(rows) if v in row}
    clear = [not (rows[u] & rows[v] or {u, v} & loops) for u in range(len(rows)) for v in sorted(rows[u])]
    return np.array(clear, np.uint8)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("make", [lambda: random_csr(900, 2500, 1), lambda: with_hub_and_loops(900, 1200, 2)])
def test_common_neighbours_by_definition(make, threads):
    indptr, indices, _ = make()
    clear = edges_of_no_triangle(indptr, indices, threads)
    assert clear is not None
    assert 0 < clear.mean() < 1
    np.testing.assert_array_equal(clear, by_definition(indptr, indices))


def test_not_sought_where_most_edges_close_triangles_or_rows_are_long(monkeypatch):
    indptr, indices, _ = random_csr(200, 8000, 3)
    assert edges_of_no_triangle(indptr, indices, 1) is None
    indptr, indices, _ = random_csr(900, 2500, 1)
    monkeypatch.setattr(triangles, "LONGEST", 0)
    assert edges_of_no_triangle(indptr, indices, 1) is None
    assert edges_of_no_triangle(np.zeros(4, np.int64), indices[:0], 1) is None


@pytest.mark.parametrize(("p", "q"), [(0.5, 2), (4, 3), (1e-3, 1e3), (1e3, 1e3), (1, 1.5)])
@pytest.mark.parametrize("weighted", [False, True])
def test_knowing_them_changes_no_walk(p, q, weighted, monkeypatch):
    monkeypatch.setattr(edge_filter_size, "MATRIX_BYTES", 0)
    indptr, indices, weights = with_hub_and_loops(900, 1200, 2)

    def walks() -> np.ndarray:
        return Walker(indptr, indices, weights if weighted else None, p=p, q=q, walk_length=40).walk(0, 9000, 2)

    knowing = walks()
    calls = []
    monkeypatch.setattr(walker, "edges_of_no_triangle", lambda *arguments: calls.append(arguments))
    np.testing.assert_array_equal(walks(), knowing)
    assert calls


def test_bits_of_a_row_of_values():
    values = (np.arange(130) % 3 == 0).astype(np.uint8)
    words = pack_bits(values)
    assert [int(words[j // 64]) >> (j % 64) & 1 for j in range(130)] == values.tolist()
