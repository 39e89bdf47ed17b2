"""Renumbered graphs are the same graphs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.lib.vertex.renumber import Numbering
from tests.tasks.lib.vertex.graphs import coloured, graph_of


@settings(max_examples=60, deadline=None)
@given(
    edges=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=80), size=st.integers(1, 30),
    distance=st.integers(0, 2),
)  # fmt: skip
def test_rows_move_with_their_vertices(edges: list[tuple[int, int]], size: int, distance: int) -> None:
    graph = coloured(graph_of(edges, size), distance)
    degrees = np.diff(graph.indptr)
    numbering = Numbering(graph.order, graph.bounds, degrees)
    for low, high in zip(graph.bounds, graph.bounds[1:], strict=False):
        expected = sorted(graph.order[low:high].tolist(), key=lambda vertex: (-degrees[vertex], vertex))
        assert numbering.numbers[low:high].tolist() == expected
    assert numbering.by_vertex(numbering.by_place(degrees)).tolist() == degrees.tolist()
    indptr, indices = numbering.rows(graph.indptr, graph.indices)
    arcs = numbering.of_arcs(graph.indptr, np.arange(len(graph.indices), dtype=np.float32))
    for place, vertex in enumerate(numbering.numbers):
        row = slice(graph.indptr[vertex], graph.indptr[vertex + 1])
        moved = slice(indptr[place], indptr[place + 1])
        assert numbering.numbers[indices[moved]].tolist() == graph.indices[row].tolist()
        assert arcs[moved].tolist() == list(range(row.start, row.stop))
