"""Verification: conflicts in a colour are refused, and right colours pass with the same bytes."""

import dataclasses
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.kcore.program import KcoreParams
from superworkflow.tasks.lib.vertex.cluster.on_workers import run_on_workers
from superworkflow.tasks.lib.vertex.colours import by_colour
from superworkflow.tasks.lib.vertex.program import DISTANCES, ProgramParams, Sync, VertexProgram
from superworkflow.tasks.lib.vertex.run import ChromaticEngine, Coloured
from superworkflow.tasks.lib.vertex.verify import HEADER
from tests.tasks.lib.vertex.graphs import coloured, graph_of
from tests.tasks.lib.vertex.test_edge_fields import PROGRAM as NOTES
from tests.tasks.lib.vertex.test_engine import PROGRAMS, start, value_of
from tests.tasks.lib.vertex.test_splash import EDGES, in_blocks

Pairs = list[tuple[int, int]]


def program_of(consistency: Any) -> VertexProgram:
    """One that touches all that its consistency lets it, with a sync that reads it between the steps."""
    return VertexProgram(
        consistency, {"value": "int64"}, PROGRAMS[consistency], start, consistency=consistency,
        syncs={"total": Sync(value_of)},
    )  # fmt: skip


def params_of(verify: bool = True, **values: Any) -> ProgramParams:
    return ProgramParams(scheduler="sweep", max_steps=3, verify=verify, **values)


def merged(graph: Coloured, first: int) -> Coloured:
    """Colours `first` and the next one become one."""
    colours = np.empty(len(graph.order), np.int32)
    colours[graph.order] = np.repeat(np.arange(len(graph.bounds) - 1), np.diff(graph.bounds))
    colours[colours > first] -= 1
    order, bounds = np.empty_like(graph.order), np.zeros(len(graph.bounds) - 1, np.int64)
    by_colour(colours, len(bounds) - 1, order, bounds)
    return dataclasses.replace(graph, order=order, bounds=bounds)


@pytest.mark.parametrize("execution", ["consistent", "synchronous"])
@pytest.mark.parametrize("consistency", ["vertex", "edge", "full", "notes"])
@settings(max_examples=15, deadline=None)
@given(edges=EDGES, size=st.integers(2, 25))
def test_right_colours_pass(consistency: Any, execution: Any, edges: Pairs, size: int) -> None:
    program = NOTES if consistency == "notes" else program_of(consistency)
    graph = coloured(graph_of(edges, size), DISTANCES[program.consistency])
    found = [
        ChromaticEngine(program, params_of(verify, execution=execution), graph, 2).run() for verify in (False, True)
    ]
    assert found[0].fields["value"].tobytes() == found[1].fields["value"].tobytes()
    assert found[0].trace == found[1].trace


@pytest.mark.parametrize("consistency", ["edge", "full", "notes"])
@settings(max_examples=15, deadline=None)
@given(edges=EDGES, size=st.integers(2, 25), which=st.integers(0, 100))
def test_merged_colours_are_refused(consistency: Any, edges: Pairs, size: int, which: int) -> None:
    """A vertex has its colour because one of each lower colour is near; so the two conflict."""
    program = NOTES if consistency == "notes" else program_of(consistency)
    graph = coloured(graph_of(edges, size), DISTANCES[program.consistency])
    if len(graph.bounds) < 3:
        return
    first = which % (len(graph.bounds) - 2)
    with pytest.raises(UserError, match=rf"program {program.name}, step 1, colour {first}:") as raised:
        ChromaticEngine(program, params_of(), merged(graph, first), 2).run()
    one, other = (int(word) for word in re.findall(r"vertex (\d+)", str(raised.value)))
    assert one != other
    assert other in _around(graph, one, DISTANCES[program.consistency])


def _around(graph: Coloured, vertex: int, distance: int) -> set[int]:
    found = {vertex}
    for _ in range(distance):
        found |= {int(end) for v in found for end in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]}
    return found


@pytest.mark.parametrize("program", [NOTES, program_of("full")])
def test_marks_stay_within_their_array(program: VertexProgram) -> None:
    """All of them are used, and none next to them."""
    graph = coloured(graph_of([(n, (n * 7 + 3) % 30) for n in range(30)], 30), DISTANCES[program.consistency])
    engine = ChromaticEngine(program, params_of(), graph)
    verification = engine._verification
    assert verification is not None
    size = len(verification.checks)
    around = np.full(size + 2000, -7, np.int64)
    around[1000:-1000] = verification.checks
    verification.checks = around[1000:-1000]
    engine.run()
    assert (around[:1000] == -7).all()
    assert (around[-1000:] == -7).all()
    used = verification.checks[HEADER:].reshape(-1, 2).any(axis=1)
    unused = (
        len(engine.edges["visits"]) if program is NOTES else 0
    )  # a field of an edge is in the even one of two slots
    assert (~used).sum() == unused


def test_words() -> None:
    chain = coloured(graph_of([(0, 1), (1, 2)], 3), 1)
    with pytest.raises(UserError, match=r"vertex 0 reads value, which vertex 1 may write"):
        ChromaticEngine(program_of("edge"), params_of(), merged(chain, 0)).run()
    with pytest.raises(UserError, match=r"vertex 0 reads note of an edge, which vertex 1 may write"):
        ChromaticEngine(NOTES, params_of(), merged(chain, 0)).run()


def beyond_neighbours(scope: Any, params: Any) -> None:
    scope.value = scope.neighbour(scope.degree).value


def before_in_neighbours(scope: Any, params: Any) -> None:
    scope.value = scope.in_neighbour(-1).value


def beyond_in_weights(scope: Any, params: Any) -> None:
    scope.value = scope.in_weight(scope.in_degree + 2)


def beyond_edges(scope: Any, params: Any) -> None:
    scope.edge(scope.degree + 1).note = 1.0


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(
    ("update", "words"),
    [
        (beyond_neighbours, "neighbour 1 of a vertex that has 1"), (beyond_edges, "neighbour 2 of a vertex that has 1"),
        (before_in_neighbours, "neighbour -1 of a vertex that has"),
        (beyond_in_weights, "neighbour [23] of a vertex that has [01]"),
    ],
)  # fmt: skip
def test_neighbours_that_a_vertex_does_not_have_are_refused(update: Any, words: str, directed: bool) -> None:
    edges = graph_of([(0, 1)], 2)
    graph = coloured(sp.csr_array(sp.triu(edges)) if directed else edges, 1, directed, weighted=True)
    program = VertexProgram("beyond", {"value": "float64"}, update, edge_fields={"note": "float32"})
    with pytest.raises(UserError, match=words + r"(.|\n)*Count neighbours from 0"):
        ChromaticEngine(program, params_of(), graph).run()


def beyond_a_vector(scope: Any, params: Any) -> None:
    scope.pair[2 + scope.vertex] = 1


def test_elements_that_a_vector_does_not_have_are_refused() -> None:
    """They are those of other vertices, or no memory of the program's."""
    program = VertexProgram("beyond", {"pair": ("int64", 2)}, beyond_a_vector)
    with pytest.raises(UserError, match="an update takes an element that an array does not have"):
        ChromaticEngine(program, params_of(), coloured(graph_of([(0, 1)], 2), 1)).run()


def test_synchronous_updates_read_copies() -> None:
    """Under edge consistency nothing that they share is live but fields of edges."""
    graph = merged(coloured(graph_of([(0, 1), (1, 2)], 3), 1), 0)
    ChromaticEngine(program_of("edge"), params_of(execution="synchronous"), graph).run()
    with pytest.raises(UserError, match="visits of an edge"):
        ChromaticEngine(NOTES, params_of(execution="synchronous"), graph).run()


def only_writes(scope: Any, params: Any) -> None:
    for i in range(scope.degree):
        scope.neighbour(i).pair[0] = scope.vertex


def test_vectors_and_two_neighbours() -> None:
    """Two ends of a path write the vector of the vertex between them."""
    graph = coloured(graph_of([(0, 1), (1, 2)], 3), 1)
    program = VertexProgram("only", {"pair": ("int64", 2)}, only_writes, consistency="full")
    with pytest.raises(UserError, match="may write pair, which vertex 0 reads or writes"):
        ChromaticEngine(program, params_of(), graph).run()
    ChromaticEngine(program, params_of(), coloured(graph_of([(0, 1), (1, 2)], 3), 2)).run()


def test_blocks() -> None:
    """Neighbours within a block are of one colour; two blocks next to each other may not be."""
    graph = in_blocks(coloured(graph_of([(n, n + 1) for n in range(19)], 20), 1), 4, 1)
    ChromaticEngine(program_of("edge"), params_of(), graph).run()
    wrong = dataclasses.replace(graph, bounds=graph.bounds[[0, -1]])
    with pytest.raises(UserError, match="two updates of one colour conflict"):
        ChromaticEngine(program_of("edge"), params_of(), wrong).run()


def test_workers_do_not_verify() -> None:
    graph = SimpleNamespace(stats={"vertices": 9})
    job: Any = SimpleNamespace(inputs={"graph": graph}, params=params_of(), resources=SimpleNamespace(workers=None))
    with pytest.raises(UserError, match=r"edge\.verify: a run is verified in process alone"):
        run_on_workers(program_of("edge"), job)


def test_a_verified_run_has_a_dataset_of_its_own() -> None:
    assert "verify" not in ProgramParams().identity()
    assert ProgramParams(verify=True).identity()["verify"] is True
    with pytest.raises(ValueError, match="peeling has no updates"):
        KcoreParams(verify=True)
