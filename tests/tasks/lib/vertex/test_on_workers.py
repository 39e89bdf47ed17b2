"""Workers compute what one process does, bit for bit, however the vertices are divided; what travels has changed."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.engines.workers.group import Checkpoint, WorkerGroup
from superworkflow.infra.engines.workers.session import Role, local_group
from superworkflow.tasks.lib.vertex.cluster.packing import pack, positions, room_for, unpack, words_of
from superworkflow.tasks.lib.vertex.cluster.piece import Division
from superworkflow.tasks.lib.vertex.neighbour_reads import fields_of_neighbours, fields_of_updates
from superworkflow.tasks.lib.vertex.program import DISTANCES, Sync, VertexProgram
from superworkflow.tasks.lib.vertex.run import ChromaticEngine, Coloured
from tests.tasks.lib.vertex import on_workers
from tests.tasks.lib.vertex.graphs import coloured, graph_of
from tests.tasks.lib.vertex.on_workers import as_json, described
from tests.tasks.lib.vertex.test_engine import PROGRAMS, plainly
from tests.tasks.lib.vertex.test_splash import in_blocks

HERE = "tests.tasks.lib.vertex.worker_programs"
EDGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=80)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerGroup]:
    folder = tmp_path_factory.mktemp("group")
    checkpoint, progress = Checkpoint(folder / "checkpoint"), Progress("toy")
    with local_group([Role("worker", 3)], checkpoint, progress, folder / "logs") as made:
        yield made


@st.composite
def runs(draw: st.DrawFn) -> dict[str, Any]:
    """A program, a graph, and how it is divided."""
    name = draw(st.sampled_from(["VERTEX", "EDGE", "FULL", "NOTES", "PAGERANK"]))
    size, program = draw(st.integers(3, 30)), imported(f"{HERE}:{name}")
    matrix = graph_of(draw(EDGES), size)
    directed = name in ("NOTES", "PAGERANK") and draw(st.booleans())
    graph = coloured(sp.csr_array(sp.triu(matrix)) if directed else matrix, DISTANCES[program.consistency], directed)
    schedulers = ["sweep"] if name == "PAGERANK" else ["sweep", "fifo", "priority"]
    params = {"scheduler": draw(st.sampled_from(schedulers)), "max_steps": draw(st.integers(1, 6))}
    if name != "FULL":
        params["execution"] = draw(st.sampled_from(["consistent", "synchronous"]))
    most = draw(st.integers(1, 7))
    if most > 1 and name != "VERTEX" and params.get("execution") != "synchronous":
        graph = in_blocks(graph, most, DISTANCES[program.consistency])
    workers = draw(st.integers(1, 3))
    more = {"size": workers, "small": draw(st.sampled_from([0, 5, 20]))}
    if draw(st.booleans()):
        more["owners"] = draw(st.lists(st.integers(0, workers - 1), min_size=size, max_size=size))
    return as_json(graph, f"{HERE}:{name}", params, **more)


def graph_in(run: dict[str, Any]) -> Coloured:
    kinds = {"indptr": np.int64, "indices": np.int32, "order": np.int32, "bounds": np.int64}
    blocks = None if run["blocks"] is None else np.array(run["blocks"], np.int64)
    arrays = {k: np.array(run[k], kind) for k, kind in kinds.items()}
    return Coloured(weights=None, directed=run["directed"], blocks=blocks, **arrays)


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(some=st.lists(runs(), min_size=12, max_size=12), shared=st.booleans())
def test_equals_one_process_and_a_plain_loop(group: WorkerGroup, some: list[dict[str, Any]], shared: bool) -> None:
    for run, found in zip(some, group.run(on_workers.run_all, some, shared)[0], strict=True):
        program, graph = imported(run["program"]), graph_in(run)
        params = program.params(**run["params"])
        del found["sent"]
        assert found == described(ChromaticEngine(program, params, graph).run())
        if program.name in PROGRAMS and params.execution == "consistent" and graph.blocks is None:
            expected = plainly(PROGRAMS[program.name], graph, params)
            assert np.frombuffer(bytes.fromhex(found["fields"]["value"]), np.int64).tolist() == expected


@st.composite
def later_runs(draw: st.DrawFn) -> dict[str, Any]:
    """A run that starts from one of the same program on another graph, some of whose vertices it has."""
    run, size = draw(runs().filter(lambda each: "PAGERANK" not in each["program"])), draw(st.integers(1, 30))
    program, now = imported(run["program"]), len(run["indptr"]) - 1
    matrix = graph_of(draw(EDGES), size)
    matrix = sp.csr_array(sp.triu(matrix)) if run["directed"] else matrix
    before = coloured(matrix, DISTANCES[program.consistency], run["directed"])
    left = described(ChromaticEngine(program, program.params(max_steps=3), before).run())["fields"]
    number = draw(st.permutations(range(max(now, size))))[:size]
    places = [each if each < now else -1 for each in number]
    return run | {"earlier": {
        "number": places, "indptr": before.indptr.tolist(), "indices": before.indices.tolist(), **left,
    }}  # fmt: skip


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(some=st.lists(later_runs(), min_size=12, max_size=12))
def test_runs_that_start_from_an_earlier_one(group: WorkerGroup, some: list[dict[str, Any]]) -> None:
    changed = 0
    for run, found in zip(some, group.run(on_workers.run_all, some, True)[0], strict=True):
        program, graph = imported(run["program"]), graph_in(run)
        params, earlier = program.params(**run["params"]), on_workers.earlier_in(run, graph)
        del found["sent"]
        assert found == described(ChromaticEngine(program, params, graph, earlier=earlier).run())
        changed += int(earlier.changed.sum())
    assert changed


def test_two_conflicting_colours_that_are_merged_are_refused(group: WorkerGroup) -> None:
    """By each worker, of the vertices around its own."""
    graph = coloured(graph_of([(n, n + 1) for n in range(9)], 10), 1)
    merged = as_json(graph, f"{HERE}:EDGE", {"max_steps": 3}, size=2)
    merged["bounds"], merged["order"] = [0, 10], list(range(10))
    first, second, idle = group.run(on_workers.run_all, [merged], True)
    for (found,) in (first, second):
        assert re.search(r"vertices within distance 1 have one colour .got 'vertex \d'", found["refused"])
    assert idle == []


def test_more_workers_than_vertices_are_refused() -> None:
    graph = coloured(graph_of([(0, 1)], 2), 1)
    with pytest.raises(UserError, match=r"workers\.count: there are more workers than vertices .got 3.*2 workers"):
        Division.of(graph, 3)


def reads_two(scope: Any, other: Any, weight: Any, params: Any) -> float:
    return float(other.a + scope.b)


def sets_three(scope: Any, total: float, params: Any) -> None:
    scope.c = scope.c + total


def doubles_three(scope: Any, params: Any) -> None:
    scope.c = scope.c + scope.c


def of_another(vertex: Any) -> float:
    return float(vertex.b)


def by_a_helper(scope: Any, params: Any) -> None:
    scope.a = of_another(scope.neighbour(0)) + scope.c


def by_another_name(scope: Any, params: Any) -> None:
    scope = scope.neighbour(0)
    scope.a = scope.c


def by_getattr(scope: Any, params: Any) -> None:
    scope.a = getattr(scope.neighbour(0), "b")  # noqa: B009


READERS = (of_another,)


def by_an_element(scope: Any, params: Any) -> None:
    scope.a = READERS[0](scope.neighbour(0))


def by_a_default(scope: Any, params: Any, read: Any = of_another) -> None:
    scope.a = read(scope.neighbour(0))


def adds_to_own(scope: Any, params: Any) -> None:
    scope.c += scope.neighbour(0).a


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"update": adds_to_own}, ["a"]),
        ({"gather": reads_two, "apply": sets_three}, ["a"]),
        ({"update": doubles_three, "syncs": {"total": Sync(of_another)}}, []),
        ({"update": by_a_helper}, ["b"]),
        ({"update": by_another_name}, ["c"]),
        ({"update": by_getattr}, ["a", "b", "c"]),
        ({"update": by_an_element}, ["a", "b", "c"]),
        ({"update": by_a_default}, ["a", "b", "c"]),
        ({"update": doubles_three, "init": lambda scope, params: scope.edge(0).a}, ["a"]),
        ({"update": doubles_three, "consistency": "full"}, ["a", "b", "c"]),
        ({"update": np.sum}, ["a", "b", "c"]),
    ],
    ids=["added", "gather", "own", "helper", "assigned", "getattr", "element", "default", "other", "full", "unseen"],
)
def test_only_what_neighbours_may_read_travels(parts: dict[str, Any], expected: list[str]) -> None:
    program = VertexProgram("some", {"a": "int64", "b": "int64", "c": "int64"}, **parts)
    assert fields_of_neighbours(program) == expected


def test_only_what_updates_are_seen_to_read_is_prefetched() -> None:
    fields = {"a": "int64", "b": "int64", "c": "int64"}
    for update, expected in ((by_a_helper, ["b"]), (by_getattr, []), (doubles_three, [])):
        assert (
            fields_of_updates(VertexProgram("some", fields, update, init=adds_to_own, consistency="full")) == expected
        )
    assert fields_of_updates(VertexProgram("some", fields, gather=reads_two, apply=sets_three)) == ["a"]


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(0, 300), share=st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]), seed=st.integers(0, 99),
    kind=st.sampled_from([("float64", 0), ("int32", 0), ("float32", 3), ("bool", 0), ("int16", 1)]),
)  # fmt: skip
def test_what_has_changed_arrives_and_little_else_travels(size: int, share: float, seed: int, kind: Any) -> None:
    rng, (dtype, length) = np.random.default_rng(seed), kind
    shape = (size + 9, length) if length else (size + 9,)
    before = rng.integers(0, 2, shape).astype(dtype)
    after, other = before.copy(), before.copy()
    cells = rng.permutation(size + 9)[:size].astype(np.int32)
    changed = cells[rng.random(size) < share]
    after[changed] = (1 - after[changed].astype(np.int8)).astype(dtype)
    words, shadow = words_of(after), words_of(before)
    marks, out = np.zeros(size, np.uint8), np.empty(2 * room_for(words, size), np.uint8)
    end, count = pack(words, shadow, cells, 0, size, marks, out, 0, True)
    again, _ = pack(words, shadow, cells, 0, size, marks, out, end, True)
    assert count == len(changed)
    values = count * words.shape[1] * words.itemsize
    assert end - values <= 6 + min(-(-size // 8), 2 * count)
    assert again - end == (1 + values if count else 1)  # the positions are those of the field before
    marks[:], message = 0, out[:again].copy()
    place = unpack(words_of(other), words_of(before), cells, 0, size, marks, message, 0)
    assert place == end
    assert other.tobytes() == after.tobytes()
    assert before[cells].tobytes() == after[cells].tobytes()
    assert unpack(words_of(other), words_of(before), cells, 0, size, marks, message, place) == again
    if count:
        with pytest.raises(IndexError, match="too short"):
            unpack(words_of(other), words_of(before), cells, 0, size, marks, message[: end - 1], 0)
        with pytest.raises(IndexError, match="no message"):
            positions(np.full(9, 9, np.uint8), 0, size, marks)
