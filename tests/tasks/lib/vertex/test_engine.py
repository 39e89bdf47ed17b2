"""The engine equals a plain loop over (step, colour, vertex), bit for bit, whatever the number of threads."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.vertex import run
from superworkflow.tasks.lib.vertex.program import DISTANCES, ProgramParams, Sync, VertexProgram
from superworkflow.tasks.lib.vertex.run import ChromaticEngine, Coloured
from superworkflow.tasks.lib.vertex.stage import doubts_of
from superworkflow.tasks.pagerank.program import PROGRAM as PAGERANK
from tests.tasks.lib.vertex.graphs import coloured, graph_of

PRIME = 1_000_003


def start(scope: Any, params: Any) -> None:
    scope.value = scope.vertex * 7 + 1


def alone(scope: Any, params: Any) -> None:
    scope.value = (scope.value * 31 + scope.step) % PRIME
    if scope.value % 3 == 0:
        scope.signal(scope)
    for i in range(scope.degree):
        if (scope.value + i) % 5 == 0:
            scope.signal(scope.neighbour(i), 1.0 + scope.value % 9)


def around(scope: Any, params: Any) -> None:
    total = scope.value * 31
    for i in range(scope.degree):
        total = total * 3 + scope.neighbour(i).value
    scope.value = total % PRIME
    for i in range(scope.degree):
        other = scope.neighbour(i)
        if (other.value + scope.value) % 4 == 0:
            scope.signal(other, 1.0 + other.value % 9)


def both(scope: Any, params: Any) -> None:
    total = scope.value * 31
    for i in range(scope.degree):
        other = scope.neighbour(i)
        total = total * 3 + other.value
        other.value = (other.value * 5 + total) % PRIME
        if total % 4 == 0:
            scope.signal(other, 1.0 + total % 9)
    scope.value = total % PRIME


PROGRAMS = {"vertex": alone, "edge": around, "full": both}


class Plain:
    """A scope of plain Python, on the same arrays."""

    def __init__(self, graph: Coloured, values: list[int], signals: list[float], vertex: int, step: int):
        object.__setattr__(self, "all", (graph, values, signals))
        object.__setattr__(self, "vertex", vertex)
        object.__setattr__(self, "step", step)

    def __getattr__(self, name: str) -> Any:
        graph, values, _ = self.all
        if name == "degree":
            return int(graph.indptr[self.vertex + 1] - graph.indptr[self.vertex])
        return values[self.vertex]

    def __setattr__(self, name: str, value: int) -> None:
        self.all[1][self.vertex] = value

    def neighbour(self, i: int) -> Plain:
        graph, values, signals = self.all
        return Plain(graph, values, signals, int(graph.indices[graph.indptr[self.vertex] + i]), self.step)

    def signal(self, other: Plain, priority: float = 1.0) -> None:
        self.all[2][other.vertex] = max(self.all[2][other.vertex], priority)


def plainly(program: Any, graph: Coloured, params: ProgramParams) -> list[int]:
    size = len(graph.order)
    values, signals = [vertex * 7 + 1 for vertex in range(size)], [1.0] * size
    for step in range(1, params.max_steps + 1):
        if params.scheduler == "sweep":
            signals = [1.0] * size
        top = max(signals, default=0.0)
        lowest = 2.0 ** int(np.floor(np.log2(top))) if params.scheduler == "priority" and top else 1e-30
        queue = [int(vertex) for vertex in graph.order if signals[vertex] >= lowest]
        if not queue:
            break
        for vertex in queue:
            signals[vertex] = 0.0
        for vertex in queue:
            program(Plain(graph, values, signals, vertex, step), None)
    return values


@pytest.mark.parametrize("consistency", ["vertex", "edge", "full"])
@settings(max_examples=40, deadline=None)
@given(
    edges=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=80), size=st.integers(2, 30),
    scheduler=st.sampled_from(["sweep", "fifo", "priority"]), steps=st.integers(1, 7), far=st.booleans(),
)  # fmt: skip
def test_equals_a_plain_loop(
    consistency: Any, edges: list[tuple[int, int]], size: int, scheduler: Any, steps: int, far: bool
) -> None:
    graph = coloured(graph_of(edges, size), DISTANCES[consistency])
    program = VertexProgram(consistency, {"value": "int64"}, PROGRAMS[consistency], start, consistency=consistency)
    params = ProgramParams(scheduler=scheduler, max_steps=steps)
    expected = plainly(PROGRAMS[consistency], graph, params)
    engine = ChromaticEngine(program, params, graph)
    engine._is_far = far
    assert engine.run().fields["value"].tolist() == expected


@functools.cache
def _large_graph(distance: int) -> Coloured:
    rng = np.random.default_rng(3)
    size = 40_000
    return coloured(graph_of(list(zip(*rng.integers(0, size, (2, 3 * size)).tolist(), strict=True)), size), distance)


@pytest.mark.parametrize(("directed", "ways"), [(False, (True, False)), (True, (False, True))])
def test_prefetching_changes_no_bit(monkeypatch: pytest.MonkeyPatch, directed: bool, ways: tuple[bool, bool]) -> None:
    matrix = graph_of(list(zip(*np.random.default_rng(5).integers(0, 4000, (2, 20_000)).tolist(), strict=True)), 4000)
    graph = coloured(sp.csr_array(sp.triu(matrix)) if directed else matrix, 1, directed)
    outcomes = []
    for most in (1 << 30, 0):
        monkeypatch.setattr(run, "_CACHE_BYTES", most)
        engine = ChromaticEngine(PAGERANK, PAGERANK.params(), graph, 2)
        assert engine._is_far == (most == 0)
        outcomes.append(engine.run())
    steps = engine._functions.steps
    assert (["share"], ways) == (steps.BROUGHT, (steps._OUT, steps._IN))
    assert outcomes[0].trace == outcomes[1].trace
    assert outcomes[0].fields["rank"].tobytes() == outcomes[1].fields["rank"].tobytes()


@pytest.mark.parametrize("consistency", ["vertex", "edge", "full"])
@pytest.mark.parametrize("scheduler", ["sweep", "fifo", "priority"])
def test_threads_change_no_bit(consistency: Any, scheduler: Any) -> None:
    graph = _large_graph(DISTANCES[consistency])
    program = VertexProgram(consistency, {"value": "int64"}, PROGRAMS[consistency], start, consistency=consistency)
    params = ProgramParams(scheduler=scheduler, max_steps=5)
    one, two, four = (ChromaticEngine(program, params, graph, threads).run() for threads in (1, 2, 4))
    assert one.fields["value"].tobytes() == two.fields["value"].tobytes() == four.fields["value"].tobytes()
    assert one.trace == two.trace == four.trace
    assert len(one.trace) == 5


def test_synchronous_sees_the_last_step() -> None:
    graph = coloured(graph_of([(n, n + 1) for n in range(9)], 10), 1)
    program = VertexProgram("edge", {"value": "int64"}, around, start)
    params = ProgramParams(scheduler="sweep", max_steps=1, execution="synchronous")
    values = [vertex * 7 + 1 for vertex in range(10)]
    expected = []
    for vertex in range(10):
        total = values[vertex] * 31
        for other in (vertex - 1, vertex + 1):
            total = total * 3 + values[other] if 0 <= other < 10 else total
        expected.append(total % PRIME)
    assert ChromaticEngine(program, params, graph).run().fields["value"].tolist() == expected
    assert (
        ChromaticEngine(program, params.model_copy(update={"execution": "consistent"}), graph)
        .run()
        .fields["value"]
        .tolist()
        != expected
    )


def test_a_chain_takes_two_updates_a_vertex() -> None:
    """Components along a path whose smallest vertex is at one end: in order, not n²."""
    from superworkflow.tasks.components.program import PROGRAM

    size = 2000
    graph = coloured(graph_of([(n, n + 1) for n in range(size - 1)], size), 1)
    outcome = ChromaticEngine(PROGRAM, PROGRAM.params(), graph).run()
    assert not outcome.fields["component"].any()
    assert sum(row["updates"] for row in outcome.trace) < 3 * size


def draw(scope: Any, params: Any) -> None:
    scope.number = scope.random(0)
    scope.pair[0] = scope.random(1)
    scope.pair[1] = scope.pair[0] + scope.number


def test_random_numbers_and_vectors() -> None:
    graph = coloured(graph_of([(n, n + 1) for n in range(99)], 100), 1)
    program = VertexProgram("draw", {"number": "float64", "pair": ("float32", 2)}, draw)
    first, again, other = (
        ChromaticEngine(program, ProgramParams(max_steps=1, seed=seed), graph).run().fields for seed in (1, 1, 2)
    )
    assert first["number"].tobytes() == again["number"].tobytes() != other["number"].tobytes()
    assert len(np.unique(first["number"])) == 100
    assert np.allclose(first["pair"][:, 1], first["pair"][:, 0] + first["number"], atol=1e-6)


def value_of(scope: Any, params: Any) -> float:
    return float(scope.value)


def from_all(scope: Any, params: Any) -> None:
    scope.value = scope.value + 1 + int(scope.largest)


def test_syncs_are_values_of_the_last_step() -> None:
    graph = coloured(graph_of([(0, 1), (1, 2)], 3), 1)
    syncs = {"total": Sync(value_of), "largest": Sync(value_of, merge="max", every=2)}
    syncs["share"] = Sync(value_of, finalize=lambda total, vertices, arcs: total / (100 * vertices + arcs))
    program = VertexProgram("all", {"value": "int64"}, from_all, start, syncs=syncs)
    trace = ChromaticEngine(program, ProgramParams(scheduler="sweep", max_steps=3), graph).run().trace
    # Values 1, 8, 15; the largest is read as 15 in steps 1 and 2, and as 15 + 2 * 16 in step 3.
    assert [row["total"] for row in trace] == [24 + 3 * 16, 24 + 6 * 16, 24 + 6 * 16 + 3 * 48]
    assert [row["largest"] for row in trace] == [15, 47, 47]
    assert [row["share"] for row in trace] == [row["total"] / (100 * 3 + 4) for row in trace]


def writes_a_neighbour(scope: Any, params: Any) -> None:
    for i in range(scope.degree):
        scope.neighbour(i).value = 1


def reads_a_neighbour(scope: Any, params: Any) -> None:
    for i in range(scope.degree):
        scope.value = scope.neighbour(i).value


def reads_what_is_not_there(scope: Any, params: Any) -> None:
    scope.value = scope.nothing


def opens_a_file(scope: Any, params: Any) -> None:
    open("x")  # noqa: SIM115


def writes_what_is_not_there(scope: Any, params: Any) -> None:
    scope.nothing = 1


def reads_no_parameter(scope: Any, params: Any) -> None:
    scope.ratio = params.dampin


def imports(scope: Any, params: Any) -> None:
    import math

    scope.ratio = math.pi


def writes_a_text(scope: Any, params: Any) -> None:
    scope.ratio = "x"


def stores_in_a_number(scope: Any, params: Any) -> None:
    scope.value[0] = 1


def returns_less_than_nothing(scope: Any, params: Any) -> float:
    return -1.0


def returns_now_and_then(scope: Any, params: Any) -> Any:
    if scope.step > 3:
        return 1.0
    return None


def loses_a_fraction(scope: Any, params: Any) -> None:
    scope.value = scope.ratio + scope.weight(0)


def returns_two(scope: Any, params: Any) -> Any:
    return 1.0, 2.0


def draws_without_an_index(scope: Any, params: Any) -> None:
    scope.ratio = scope.random()


def takes_the_function(scope: Any, params: Any) -> None:
    scope.ratio = scope.weight


def draws_by_numpy(scope: Any, params: Any) -> None:
    scope.ratio = np.random.random()  # noqa: NPY002


def roots(scope: Any, params: Any) -> None:
    scope.ratio = (scope.vertex - 1.0) ** 0.5


def divides_by_nothing(scope: Any, params: Any) -> float:
    scope.ratio = np.float64(0.0) / (scope.vertex * 0.0)
    return scope.ratio


@pytest.mark.parametrize(
    ("update", "consistency", "words"),
    [
        (writes_a_neighbour, "edge", r"test_engine\.py:\d+: value of this vertex cannot be written under edge"),
        (reads_a_neighbour, "vertex", r"no attribute of this name; under vertex consistency .*got 'value'"),
        (reads_what_is_not_there, "edge", r"a scope has no attribute of this name \(got 'nothing'\)"),
        (opens_a_file, "edge", r"test_engine\.py:\d+: the program cannot be compiled.*open"),
        (writes_what_is_not_there, "edge", r"a scope has no field of this name .got 'nothing'.*: value, ratio"),
        (reads_no_parameter, "edge", r"params has no number of this name, .* .got 'dampin'"),
        (imports, "edge", r"test_engine\.py:\d+: the program cannot be compiled.*IMPORT_NAME"),
        (writes_a_text, "edge", r"test_engine\.py:\d+: the program .* compiled: Cannot cast Literal\[str\]\(x\)"),
        (stores_in_a_number, "edge", r"for signature: setitem\(int64, Literal"),
        (returns_less_than_nothing, "edge", r"step 1: the residual is negative .got -3\.0"),
        (returns_now_and_then, "edge", r"returns a residual on one way and nothing on another"),
        (loses_a_fraction, "edge", r"test_engine\.py:\d+: value is int64, and what is written may have a fraction"),
        (returns_two, "edge", r"something else than one number, its residual .got 'UniTuple"),
        (draws_without_an_index, "edge", r"test_engine\.py:\d+: .* with other arguments, or not called .got 'random'"),
        (takes_the_function, "edge", r"test_engine\.py:\d+: .* or not called .got 'weight'"),
        (draws_by_numpy, "edge", r"random numbers of its own .*got 'np\.random'"),
        (divides_by_nothing, "edge", r"field ratio, step 1: a field is not a number .got 'vertex 0'"),
    ],
    ids=str.split(
        "writes reads unknown python unknown-field parameter import text item negative residual fraction two call "
        "function random nan"
    ),
)
def test_what_is_refused(update: Any, consistency: Any, words: str) -> None:
    graph = coloured(graph_of([(0, 1), (1, 2)], 3), DISTANCES[consistency])
    fields = {"value": "int64", "ratio": "float64"}
    with pytest.raises(UserError, match=words):
        ChromaticEngine(VertexProgram("bad", fields, update, consistency=consistency), ProgramParams(), graph).run()


def test_init_reads_no_neighbour() -> None:
    """It read fields that were set or not, by the order of the vertices."""
    graph = coloured(graph_of([(0, 1), (1, 2)], 3), 1)
    program = VertexProgram("bad", {"value": "int64"}, alone, init=reads_a_neighbour)
    with pytest.raises(UserError, match=r"init reads of neighbours what is given"):
        ChromaticEngine(program, ProgramParams(), graph).run()


def test_doubts_of_what_a_run_left() -> None:
    """A field without a number is named, and so is a run that no update prolonged though it had not converged."""
    graph = coloured(graph_of([(0, 1), (1, 2)], 3), 1)
    program = VertexProgram("bad", {"ratio": "float64"}, roots)
    (doubt,) = doubts_of(program, ProgramParams(), ChromaticEngine(program, ProgramParams(), graph).run())
    assert str(doubt).startswith("program bad, field ratio: a field is not a number (got 1 vertices)")
    program = VertexProgram("bad", {"ratio": "float64"}, lambda scope, params: 0.5)
    for tolerance, said in ((0.1, ["1.5"]), (2.0, []), (0.0, [])):
        params = ProgramParams(tolerance=tolerance)
        outcome = ChromaticEngine(program, params, graph).run()
        assert [doubt.value for doubt in doubts_of(program, params, outcome)] == said


def test_a_tolerance_needs_residuals() -> None:
    """Without them a run ended after its first step, as if nothing had changed."""
    graph = coloured(graph_of([(0, 1), (1, 2)], 3), 1)
    program = VertexProgram("bad", {"value": "int64"}, raises)
    with pytest.raises(UserError, match=r"updates return no residual.*got 'tolerance 0\.1'"):
        ChromaticEngine(program, ProgramParams(tolerance=0.1), graph).run()


def test_a_gather_returns_a_number() -> None:
    """Numba named no line of the program's."""
    graph = coloured(graph_of([(0, 1), (1, 2)], 3), 1)
    parts = {"gather": lambda scope, other, weight, params: None, "apply": lambda scope, total, params: total}
    with pytest.raises(UserError, match=r"program bad: gather returns no number. End it with return"):
        ChromaticEngine(VertexProgram("bad", {"value": "int64"}, **parts), ProgramParams(), graph).run()


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"params": dict}, "params is no model of parameters"),
        ({"consistency": "edges"}, r"no such consistency .got 'edges'.. Write vertex, edge or full"),
        ({"syncs": {"most": Sync(print, "mean")}}, r"no such merge of sync most .got 'mean'.. Write sum or max"),  # type: ignore[arg-type]
        ({"fields": {"degree": "int64"}}, r"no name of a field or sync.* .got 'degree'"),
        ({"fields": {"node": "int64"}}, r"a table of results has a column of this name .got 'node'"),
        ({"syncs": {"arcs": Sync(print, "sum")}}, r"a table of results has a column of this name .got 'arcs'"),  # type: ignore[arg-type]
        ({"fields": {}}, "it has no field"),
        ({"syncs": {"a b": Sync(print, "sum")}}, r"no name of a field or sync.* .got 'a b'"),  # type: ignore[arg-type]
        ({"nodes": ("origin",)}, r"nodes names nothing of the program .got 'origin'.*seed"),
        ({"given": ("size",)}, r"given names nothing of the program .got 'size'.*Name one of: value"),
        ({"init": lambda scope: None}, r"init has other arguments .got '.scope.'.*def init.scope, params."),
        ({"update": lambda: None}, "update has other arguments"),
    ],
)
def test_declarations_that_are_refused(declared: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        VertexProgram(**{"name": "bad", "fields": {"value": "int64"}, "update": raises, **declared})


def test_a_type_that_is_none_is_refused() -> None:
    graph = coloured(graph_of([(0, 1)], 2), 1)
    with pytest.raises(UserError, match=r"field name: no type of a field .got 'text'"):
        ChromaticEngine(VertexProgram("bad", {"name": "text"}, alone), ProgramParams(), graph)
    for length in (0, 2.5):
        with pytest.raises(UserError, match=r"field name: no type of a field .*length > 0"):
            ChromaticEngine(VertexProgram("bad", {"name": ("int8", length)}, alone), ProgramParams(), graph)  # type: ignore[dict-item]


class AnyText(ProgramParams):
    scheduler: str = "sweep"  # type: ignore[assignment]


def test_a_scheduler_that_is_none_is_refused() -> None:
    graph = coloured(graph_of([(0, 1)], 2), 1)
    program = VertexProgram("bad", {"value": "int64"}, alone, params=AnyText)
    with pytest.raises(UserError, match=r"bad\.scheduler: no such scheduler .got 'swep'.*sweep, fifo, priority"):
        ChromaticEngine(program, AnyText(scheduler="swep"), graph)


def raises(scope: Any, params: Any) -> None:
    if scope.vertex == 7:
        raise ValueError("seven")
    scope.value = scope.neighbour(0).value if scope.degree else 0


def test_an_error_in_one_thread_ends_all() -> None:
    graph = coloured(graph_of([(n, n + 1) for n in range(20_000)], 20_001), 1)
    with pytest.raises(ValueError, match="seven"):
        ChromaticEngine(VertexProgram("raises", {"value": "int64"}, raises), ProgramParams(), graph, 2).run()
