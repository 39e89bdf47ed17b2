"""Fields of edges: both ends share them, messages have directions, and consistency says who writes."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.vertex.program import DISTANCES, ProgramParams, VertexProgram
from superworkflow.tasks.lib.vertex.run import ChromaticEngine
from tests.tasks.lib.vertex.graphs import coloured, graph_of

PRIME = 1_000_003
EDGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60)


def start(scope: Any, params: Any) -> None:
    scope.value = scope.vertex * 7 + 1
    for i in range(scope.degree):
        edge = scope.edge(i)
        edge.visits = edge.visits + 1
        edge.out_note[1] = scope.vertex


def passes_notes(scope: Any, params: Any) -> None:
    total = scope.value * 31
    for i in range(scope.degree):
        edge = scope.edge(i)
        total = (total * 3 + edge.in_note[0] * 5 + edge.in_note[1] + edge.visits) % PRIME
    for i in range(scope.degree):
        edge = scope.edge(i)
        edge.visits = (edge.visits * 2 + total + i) % PRIME
        edge.out_note[0] = (edge.out_note[0] + total * (i + 1)) % PRIME
    scope.value = total


PROGRAM = VertexProgram(
    "notes", {"value": "int64"}, passes_notes, start, edge_fields={"visits": "int64"}, messages={"note": ("int64", 2)},
)  # fmt: skip


def plainly(matrix: sp.csr_array, order: list[int], directed: bool, steps: int, synchronous: bool) -> list[int]:
    """Values by a loop over (step, colour, vertex), with fields of edges in dictionaries."""
    arcs = [(int(u), int(v)) for u, v in zip(*matrix.nonzero(), strict=True)]
    ends: dict[int, list[tuple[int, Any]]] = {vertex: [] for vertex in order}
    for u, v in arcs:
        ends[u].append((v, (u, v) if directed else (min(u, v), max(u, v))))
    for u, v in sorted(arcs, key=lambda arc: arc[0]) if directed else []:
        ends[v].append((u, (u, v)))
    values = {vertex: vertex * 7 + 1 for vertex in order}
    visits = {edge: 2 for rows in ends.values() for _, edge in rows}
    notes = {(edge, vertex): [0, vertex] for vertex, rows in ends.items() for _, edge in rows}
    for _ in range(steps):
        seen = {key: list(note) for key, note in notes.items()} if synchronous else notes
        for vertex in order:
            total = values[vertex] * 31
            for other, edge in ends[vertex]:
                first, second = seen[edge, other]
                total = (total * 3 + first * 5 + second + visits[edge]) % PRIME
            for i, (_, edge) in enumerate(ends[vertex]):
                visits[edge] = (visits[edge] * 2 + total + i) % PRIME
                notes[edge, vertex][0] = (notes[edge, vertex][0] + total * (i + 1)) % PRIME
            values[vertex] = total
    return [values[vertex] for vertex in sorted(order)]


@settings(max_examples=40, deadline=None)
@given(edges=EDGES, size=st.integers(2, 20), directed=st.booleans(), synchronous=st.booleans(), steps=st.integers(1, 4))
def test_equals_a_plain_loop(
    edges: list[tuple[int, int]], size: int, directed: bool, synchronous: bool, steps: int
) -> None:
    matrix = graph_of(edges, size)
    matrix = sp.csr_array(sp.triu(matrix)) if directed else matrix
    graph = coloured(matrix, 1, directed)
    params = ProgramParams(scheduler="sweep", max_steps=steps, execution="synchronous" if synchronous else "consistent")
    expected = plainly(matrix, graph.order.tolist(), directed, steps, synchronous)
    assert ChromaticEngine(PROGRAM, params, graph).run().fields["value"].tolist() == expected


def test_threads_change_no_bit() -> None:
    rng = np.random.default_rng(3)
    size = 30_000
    matrix = graph_of(list(zip(*rng.integers(0, size, (2, 3 * size)).tolist(), strict=True)), size)
    params, graph = ProgramParams(scheduler="sweep", max_steps=4), coloured(matrix, 1)
    one, two, four = (ChromaticEngine(PROGRAM, params, graph, threads) for threads in (1, 2, 4))
    found = [each.run().fields["value"].tobytes() for each in (one, two, four)]
    assert found[0] == found[1] == found[2]
    for name in ("edges", "messages"):
        parts = [b"".join(array.tobytes() for array in getattr(each, name).values()) for each in (one, two, four)]
        assert parts[0] == parts[1] == parts[2]


def writes_an_edge(scope: Any, params: Any) -> None:
    for i in range(scope.degree):
        scope.edge(i).visits = 1


def writes_a_vector_of_an_edge(scope: Any, params: Any) -> None:
    for i in range(scope.degree):
        scope.edge(i).out_note[0] = 1


def writes_what_it_receives(scope: Any, params: Any) -> None:
    for i in range(scope.degree):
        scope.edge(i).in_sign = 1


def reads_no_field(scope: Any, params: Any) -> None:
    for i in range(scope.degree):
        scope.value = scope.edge(i).note


@pytest.mark.parametrize(
    ("update", "consistency", "words"),
    [
        (writes_an_edge, "vertex", r"test_edge_fields\.py:\d+: visits of this edge cannot be written under vertex"),
        (writes_a_vector_of_an_edge, "vertex", r"test_edge_fields\.py:\d+: this vector cannot be written under vertex"),
        (writes_what_it_receives, "edge", r"test_edge_fields\.py:\d+: in_sign of this edge cannot be written"),
        (reads_no_field, "edge", r"test_edge_fields\.py:\d+: an edge has no attribute of this name .got 'note'"),
    ],
)
def test_what_is_refused(update: Any, consistency: Any, words: str) -> None:
    graph = coloured(graph_of([(0, 1), (1, 2)], 3), DISTANCES[consistency])
    program = dataclasses.replace(
        PROGRAM, update=update, init=None, consistency=consistency, messages={**PROGRAM.messages, "sign": "int8"}
    )
    with pytest.raises(UserError, match=words):
        ChromaticEngine(program, ProgramParams(max_steps=1), graph).run()


def reads_edges(scope: Any, params: Any) -> None:
    for i in range(scope.degree):
        scope.value += scope.edge(i).visits + scope.edge(i).in_note[1]


def test_vertex_consistency_reads_edges() -> None:
    graph = coloured(graph_of([(0, 1), (1, 2)], 3), 0)
    program = dataclasses.replace(PROGRAM, update=reads_edges, consistency="vertex")
    made = ChromaticEngine(program, ProgramParams(max_steps=1), graph).run().fields["value"]
    assert made.tolist() == [1 + 2 + 1, 8 + 4 + 0 + 2, 15 + 2 + 1]


def test_a_length_that_nothing_has_is_refused() -> None:
    graph = coloured(graph_of([(0, 1)], 2), 1)
    program = dataclasses.replace(PROGRAM, messages={"note": ("int64", "labels")})
    with pytest.raises(UserError, match=r"field note: its length is neither .*got 'labels'"):
        ChromaticEngine(program, ProgramParams(), graph)
    twice = dataclasses.replace(PROGRAM, messages={"value": "int64"})
    with pytest.raises(UserError, match=r"two fields have one name .got 'value'"):
        ChromaticEngine(twice, ProgramParams(), graph)
