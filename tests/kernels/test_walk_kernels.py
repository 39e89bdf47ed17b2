"""Walks on odd graphs, with tables, batches, threads, weights, p and q together; see `tests.kernels.guarded`."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.walk import walker
from superworkflow.tasks.walk.kernels import edge_filter_size, triangles
from superworkflow.tasks.walk.partitioned import walker_batch
from superworkflow.tasks.walk.walker import Walker
from tests.tasks.test_walk_partitioned_kernels import Parts, rules_of
from tests.tasks.test_walk_walker import Csr, edge_set

BIASES = st.one_of(st.sampled_from([1e-6, 1e-3, 0.25, 0.5, 1.0, 2.0, 1e3, 1e6]), st.floats(1e-6, 1e6))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Csr, bool]:
    """(arrays of a graph, whether it is directed): stars, paths, cliques and random ones, with weights of any scale."""
    n = draw(st.sampled_from([1, 2, 3, 5, 17, 64, 65, 200]))
    directed = draw(st.booleans())
    shape = draw(st.sampled_from(["random", "power law", "star", "path", "clique"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    if shape == "star":
        pairs = np.stack([np.zeros(n, np.int64), np.arange(n)], 1)
    elif shape == "path":
        pairs = np.stack([np.arange(n - 1), np.arange(1, n)], 1)
    elif shape == "clique":
        pairs = np.argwhere(np.ones((min(n, 65), min(n, 65))))
    else:
        size = (draw(st.sampled_from([0, 1, n, 4 * n])), 2)
        power = np.minimum(rng.pareto(0.7, size) * 2, n - 1).astype(np.int64)
        pairs = power if shape == "power law" else rng.integers(0, n, size)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    pairs = pairs[:, :: draw(st.sampled_from([1, -1]))] if directed else np.concatenate([pairs, pairs[:, ::-1]])
    pairs = np.unique(pairs, axis=0) if len(pairs) else np.zeros((0, 2), np.int64)
    exponent = draw(st.sampled_from([0, 3, 38]))
    spread = ((pairs.min(1, initial=n) * 1_000_003 + pairs.max(1, initial=0) * 7919) % 997) / 997 - 0.5
    weights = np.clip(10.0 ** (spread * 2 * exponent) * (1 + spread), 1e-38, 3e38).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=n))]).astype(np.int64)
    return (indptr, pairs[:, 1].astype(np.int32), weights), directed


@given(
    graph=graphs(), weighted=st.booleans(), p=BIASES, q=BIASES, length=st.sampled_from([1, 2, 3, 7, 40]),
    large=st.booleans(), worth=st.sampled_from([0.5, 0.0]), batch=st.sampled_from([1, 7, 100, 2048]),
    threads=st.integers(1, 8), seed=st.integers(0, 2**63 - 1), starts=st.sampled_from([0, 1, 50]), data=st.data(),
)  # fmt: skip
@settings(max_examples=10, deadline=None, print_blob=True)
def test_walks(
    tmp_path_factory, graph, weighted, p, q, length, large, worth, batch, threads, seed, starts, data
):  # fmt: skip
    (indptr, indices, weights), directed = graph
    n, given_weights = len(indptr) - 1, weights if weighted else None
    chosen = np.random.default_rng(starts).integers(0, n, starts) if starts else None
    with pytest.MonkeyPatch.context() as patch:
        if large:
            patch.setattr(edge_filter_size, "MATRIX_BYTES", 0)
        patch.setattr(triangles, "WORTH", worth)
        patch.setattr(walker, "WALKS_PER_CALL", batch)
        made = [
            Walker(
                indptr, indices, given_weights, directed=directed, walk_length=length, p=p, q=q, seed=seed,
                starts=chosen, threads=number,
            )
            for number in (1, threads)
        ]  # fmt: skip
        total = min(3 * made[0].n_starts, 200)
        walks = made[0].walk(0, total)
        _check(walks, graph[0], length)
        first = data.draw(st.integers(0, total), label="first")
        np.testing.assert_array_equal(made[1].walk(first, total, threads), walks[first:])
        if len(indices):
            patch.setattr(walker_batch, "LIST_WORDS", data.draw(st.sampled_from([1, 2, 256]), label="list words"))
            patch.setattr(walker_batch, "ROW_WORDS", data.draw(st.sampled_from([1, 10, 1 << 23]), label="row words"))
            rules = rules_of(p, q, length, directed=directed, seed=seed, vertex=indices.dtype.str)
            parts = data.draw(st.sampled_from([1, 2, 7]), label="parts")
            travel = Parts(tmp_path_factory.mktemp("graph"), graph[0], parts, rules, weighted=weighted)
            some = min(total, 60)
            np.testing.assert_array_equal(travel.walk(0, some, chosen), walks[:some])


def _check(walks: np.ndarray, graph: Csr, length: int) -> None:
    """Every step is an edge, and only a vertex without one ends a walk."""
    indptr, indices, _ = graph
    edges, degrees = edge_set(indptr, indices), np.diff(indptr)
    for walk in walks.tolist():
        end = walk.index(-1) if -1 in walk else length
        assert end >= 1
        assert set(walk[end:]) <= {-1}
        assert all(step in edges for step in pairwise(walk[:end]))
        assert end == length or degrees[walk[end - 1]] == 0
