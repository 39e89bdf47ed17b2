"""Queues hold exactly the signalled vertices; PageRank and coreness of small graphs."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.kcore.program import PROGRAM as KCORE
from superworkflow.tasks.lib.vertex.run import ChromaticEngine
from superworkflow.tasks.lib.vertex.scheduler import BLOCK, bucket, signalled
from superworkflow.tasks.pagerank.program import PROGRAM as PAGERANK
from tests.tasks.lib.vertex.graphs import coloured, graph_of

EDGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=80)


@settings(max_examples=60, deadline=None)
@given(size=st.integers(0, 300), signals=st.integers(0, 40), by_priority=st.booleans(), seed=st.integers(0, 2**20))
def test_those_signalled_are_in_the_queue(size: int, signals: int, by_priority: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    priorities = np.zeros(size, np.float32)
    if size:
        priorities[rng.integers(0, size, signals)] = rng.uniform(1e-3, 9, signals)
    bits = priorities.view(np.int32).copy()
    padded = np.concatenate([bits, np.zeros(-size % BLOCK, np.int32)]).reshape(-1, BLOCK)
    largest, degrees = padded.max(axis=1, initial=0), rng.integers(0, 9, size)
    bounds = np.sort(np.concatenate([[0, size], rng.integers(0, size + 1, 3)]))
    lowest = bucket(int(largest.max(initial=0))) if by_priority else 1
    found = signalled(bounds, bits, largest, degrees, lowest, np.empty(size, np.int32))
    top = priorities.max(initial=0)
    chosen = priorities >= (2.0 ** np.floor(np.log2(top)) if by_priority and top else 1e-30)
    assert found.vertices.tolist() == np.flatnonzero(chosen).tolist()
    assert found.starts.tolist() == [int(chosen[:bound].sum()) for bound in bounds]
    assert found.arcs == degrees[chosen].sum()
    rest = np.where(chosen, 0, priorities.view(np.int32))
    assert bits.tolist() == rest.tolist()
    padded = np.concatenate([rest, np.zeros(-size % BLOCK, np.int32)]).reshape(-1, BLOCK)
    assert largest.tolist() == padded.max(axis=1, initial=0).tolist()


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@settings(max_examples=40, deadline=None)
@given(edges=EDGES, size=st.integers(1, 30), damping=st.sampled_from([0.5, 0.85, 0.99]))
def test_ranks_solve_their_equation(
    directed: bool, edges: list[tuple[int, int]], size: int, damping: float
) -> None:  # fmt: skip
    matrix = graph_of(edges, size)
    if directed:  # with vertices that have no out-edges
        matrix = sp.csr_array(matrix.multiply(sp.csr_array(np.add.outer(np.arange(size), 2 * np.arange(size)) % 3 > 0)))
    params = PAGERANK.params(damping=damping, tolerance=1e-14, max_steps=10_000)
    outcome = ChromaticEngine(PAGERANK, params, coloured(matrix, 1, directed)).run()
    found = PAGERANK.finish(outcome.fields, params)["rank"]  # type: ignore[misc]
    dense = matrix.toarray() > 0
    out = dense.sum(axis=1, keepdims=True)
    steps = np.where(out > 0, dense / np.maximum(out, 1), 1 / size)
    equation = np.eye(size) - damping * steps.T - (1 - damping) / size
    expected = np.linalg.lstsq(np.vstack([equation, np.ones(size)]), np.append(np.zeros(size), 1.0), rcond=None)[0]
    assert outcome.ended == "tolerance"
    assert np.abs(found - expected).max() < 1e-9


@settings(max_examples=60, deadline=None)
@given(edges=EDGES, size=st.integers(1, 30))
def test_coreness(edges: list[tuple[int, int]], size: int) -> None:
    matrix = graph_of(edges, size)
    found = ChromaticEngine(KCORE, KCORE.params(), coloured(matrix, 1)).run()
    expected = nx.core_number(nx.from_scipy_sparse_array(matrix))
    assert found.fields["core"].tolist() == [expected[vertex] for vertex in range(size)]
    assert found.globals["degeneracy"] == max(expected.values())
