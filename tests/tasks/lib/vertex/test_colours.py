"""Colours are valid, and conflicts are found exactly where two colours are merged."""

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.lib.vertex.colours import conflict
from superworkflow.tasks.lib.vertex.transpose import transposed
from tests.tasks.lib.vertex.graphs import NONE, coloured, graph_of


@settings(max_examples=60, deadline=None)
@given(
    edges=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=80), size=st.integers(1, 30),
    distance=st.integers(1, 2), directed=st.booleans(),
)  # fmt: skip
def test_colours_conflict_exactly_where_two_are_merged(
    edges: list[tuple[int, int]], size: int, distance: int, directed: bool
) -> None:
    matrix = graph_of(edges, size)
    matrix = sp.csr_array(sp.triu(matrix)) if directed else matrix
    graph = coloured(matrix, distance, directed)  # checks that it is valid
    near = matrix + matrix.T
    near = (near + near @ near if distance == 2 else near).toarray() > 0
    np.fill_diagonal(near, False)
    colours = np.empty(size, np.int32)
    colours[graph.order] = np.repeat(np.arange(len(graph.bounds) - 1, dtype=np.int32), np.diff(graph.bounds))
    for first in range(colours.max()):
        merged = np.where(colours == first + 1, first, colours).astype(np.int32)
        wrong = (near & (merged[:, None] == merged[None, :])).any()
        into = transposed(graph.indptr, graph.indices, None)[:2] if directed else NONE
        assert (conflict(graph.indptr, graph.indices, *into, distance, merged) >= 0) == wrong
