"""Tensor workers of full-graph training: the weights of training without them, whatever happens to the workers."""

import contextlib
import io
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.engines.workers import calls, http_endpoint
from superworkflow.infra.engines.workers.elastic_role import ElasticRole
from superworkflow.infra.engines.workers.group import Checkpoint
from superworkflow.infra.engines.workers.session import Role, local_group
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import load_stage
from superworkflow.tasks.lib.gnn import tensor_tasks
from superworkflow.tasks.train_full import tensor_pool
from superworkflow.tasks.train_full.params import TrainFullParams
from superworkflow.tasks.train_full.picture import timeline_picture
from superworkflow.tasks.train_full.pool_size import PoolSize
from superworkflow.tasks.train_full.run import may_stream
from superworkflow.tasks.train_full.sparse_inputs import as_inputs
from superworkflow.tasks.train_full.tensor_pool import PoolPlace
from superworkflow.tasks.train_full.timeline import TimelineRow, faults
from tests.infra.engines.test_workers import RecordedProgress, members_of
from tests.tasks import faulty_tensor_worker
from tests.tasks.gnn_graphs import one_kind
from tests.tasks.index_helpers import run_stage
from tests.tasks.test_train_full_servers import train_until_killed

GIVEN = {"hidden": 16, "heads": 4, "patience": 0, "intervals": 5, "epochs": 6, "layers": 3}
SAME = ("model.safetensors", "history.parquet")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return one_kind(tmp_path_factory.mktemp("graph"))


@pytest.fixture(scope="module")
def inputs(graph: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    given = {"graph": graph.uri}
    sums = run_stage(load_stage("aggregate"), {"form": "gcn"}, given, tmp_path_factory.mktemp("sums"))
    return given | {"sums": sums.uri}


@pytest.fixture(scope="module")
def alone(inputs: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    """Training without tensor workers, by model."""
    folder = tmp_path_factory.mktemp("alone")
    return {model: trained(inputs, folder / model, model)[0] for model in ("gcn", "gat")}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training begins when the tensor workers are there, and no call is late."""
    monkeypatch.setattr(calls, "LEAST_SECONDS", 60.0)
    waiting(monkeypatch)


def waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    running = calls.Calls.running

    @contextlib.contextmanager
    def when_available(self: calls.Calls) -> Iterator[calls.Calls]:
        with running(self):
            until = time.monotonic() + 300
            role = getattr(self._transport, "_role", None)  # an endpoint has none
            # One that joins first may be the last that was started, which leaves when the pool shrinks.
            while not self.available or (role is not None and role.present < role.count):
                assert time.monotonic() < until
                time.sleep(0.02)
            yield self

    monkeypatch.setattr(calls.Calls, "running", when_available)


def trained(
    inputs: dict[str, str], folder: Path, model: str, cpu: int = 1, count: int = 0, **more: Any
) -> tuple[Dataset, str]:  # fmt: skip
    given = inputs if model == "gcn" else {"graph": inputs["graph"]}
    tensor = {"count": count, "most": max(1, count), "cpu": 0.5, "memory": "192Mi"}
    resources = Resources.model_validate({"cpu": cpu, "memory": "4Gi", "workers": {"tensor": tensor}} | more)
    progress = Progress("train_full", stream=(log := io.StringIO()))
    engine = "workers" if resources.workers else "in-process"
    made = execute(load_stage("train_full"), GIVEN | {"model": model}, given, str(folder), resources, progress, engine)
    return made.dataset, log.getvalue()


def same(found: Dataset, alone: Dataset) -> bool:
    return all(found.local(name).read_bytes() == alone.local(name).read_bytes() for name in SAME)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("model", "count", "cpu"), [("gcn", 1, 1), ("gat", 4, 2)])
def test_tensor_workers_change_no_bit(inputs, alone, tmp_path, model, count, cpu):
    found, log = trained(inputs, tmp_path / "run", model, cpu, count)
    assert same(found, alone[model])
    assert not faults([TimelineRow(**row) for row in found.table("timeline.parquet").to_pylist()], 0)
    stats, rows = found.stats, found.table("pool.parquet")
    tasks = GIVEN["epochs"] * GIVEN["intervals"] * 3 * (3 if model == "gat" else 2)
    assert (stats["tensor.calls"], stats["tensor.undone"]) == (tasks, 0), log
    assert sum(rows["calls"].to_pylist()) == tasks
    assert rows["epoch"].to_pylist() == list(range(1, GIVEN["epochs"] + 1))
    assert int(str(stats["tensor.bytes_sent"])) > int(str(stats["tensor.bytes_received"])) > 0
    assert not members_of(os.getpid())
    timeline_picture(found.table("timeline.parquet"), tmp_path / "a.png", rows)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("is_sparse", [False, True])
def test_two_products_in_one_call_are_those_of_two(is_sparse):
    rng = np.random.default_rng(5)
    dense = (rng.normal(size=(7, 12)) * (rng.random((7, 12)) < (0.03 if is_sparse else 1))).astype(np.float32)
    vertices = np.arange(9, 2, -1, np.int32)
    inputs = tensor_tasks.arrays_of(as_inputs(dense, False) if is_sparse else dense)
    shapes = {"linear.weight": (5, 12), "linear.bias": (5,)}, {"linear.weight": (3, 5), "linear.bias": (3,)}
    first, second = ({name: rng.normal(size=size).astype(np.float32) for name, size in own.items()} for own in shapes)
    shared, names = [*first.values(), *second.values()], [[*first], [*second]]

    def facts(layer: int, back: bool, then: Any = None) -> Any:
        return {
            "layer": layer, "heads": 0, "gathers": layer > 0, "share": 20000, "state": 9 + layer,
            "sparse": 12 if is_sparse and not layer else 0, "back": back, "inner": back and layer > 0, "elu": False,
            "short": False, "then": then, "weights": names,
        }  # fmt: skip

    forward = facts(0, False, facts(1, False))
    rows, products = tensor_tasks.compute_call(forward, shared, [vertices, *inputs])
    (made,) = tensor_tasks.compute(facts(0, False), first, [vertices, *inputs])
    assert (rows == np.maximum(made + first["linear.bias"], 0)).all()
    assert (products == tensor_tasks.compute(facts(1, False), second, [vertices, rows])[0]).all()
    gradient = rng.normal(size=(7, 3)).astype(np.float32)
    found = tensor_tasks.compute_call(facts(1, True, facts(0, True)), shared, [vertices, rows, gradient, *inputs])
    matrix, change = tensor_tasks.compute(facts(1, True), second, [vertices, rows, gradient])
    wanted = [matrix, *tensor_tasks.compute(facts(0, True), first, [vertices, *inputs, change])]
    assert all((one == other).all() for one, other in zip(found, wanted, strict=True))


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("streaming", [True, False])
def test_streaming_changes_no_bit(inputs, alone, tmp_path, monkeypatch, streaming):
    """Only with it does a worker get a call while it executes another."""
    monkeypatch.setitem(GIVEN, "streaming", streaming)
    ahead, give = [0], ElasticRole._give

    def counted(self: ElasticRole) -> None:
        give(self)
        ahead.append(max((len(each.tasks) for each in self.staying), default=0))

    monkeypatch.setattr(ElasticRole, "_give", counted)
    found, log = trained(inputs, tmp_path, "gat", 2, 1)
    assert same(found, alone["gat"]), log
    assert max(ahead) == 1 + streaming


def test_a_call_is_streamed_where_two_fit():
    assert [may_stream(192 << 20, size) for size in (12 << 20, (12 << 20) + 1)] == [True, False]


@pytest.mark.usefixtures("patient")
def test_fusion_changes_no_bit(inputs, alone, tmp_path, monkeypatch):
    """Without it each product is a call of its own."""
    monkeypatch.setitem(GIVEN, "fusion", False)
    found, log = trained(inputs, tmp_path, "gcn", 2, 1)
    assert same(found, alone["gcn"])
    assert (found.stats["tensor.calls"], found.stats["tensor.undone"]) == (6 * 5 * 3 * 3, 0), log


def test_a_worker_that_is_killed(inputs, alone, tmp_path, monkeypatch):
    """With the only one gone, the graph server does the work until another has come."""
    waiting(monkeypatch)
    submit, killed = calls.Calls.submit, []

    def kills(self: calls.Calls, *given: Any) -> None:
        if not killed:
            killed.extend(members_of(os.getpid()))
            killed[0].kill()
        submit(self, *given)

    monkeypatch.setattr(calls.Calls, "submit", kills)
    found, log = trained(inputs, tmp_path, "gcn", count=1)
    assert same(found, alone["gcn"])
    assert killed
    assert "there is no tensor worker; without one the graph server does their tasks" in log
    assert int(str(found.stats["tensor.undone"])) > 0


def test_workers_that_end_are_late_or_answer_twice(inputs, alone, tmp_path, monkeypatch):
    """One of a hundred calls ends its worker, two fail and three are late, and so are answered twice."""
    waiting(monkeypatch)
    (tmp_path / "faults").mkdir()
    monkeypatch.setenv(faulty_tensor_worker.FOLDER_VARIABLE, str(tmp_path / "faults"))
    monkeypatch.setattr(tensor_pool, "compute_call", faulty_tensor_worker.compute_call)
    found, log = trained(inputs, tmp_path / "run", "gat", cpu=2, count=3)
    assert same(found, alone["gat"]), log
    assert len([*(tmp_path / "faults").iterdir()]) > 5
    assert int(str(found.stats["tensor.relaunches"])) > 0


def test_no_worker_comes(inputs, alone, tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_pool, "prepare", faulty_tensor_worker.fail)
    found, _ = trained(inputs, tmp_path, "gcn", count=1)
    assert same(found, alone["gcn"])
    assert found.stats["tensor.calls"] == 0


class _Odd:
    """The endpoint's answers: none to every seventh request, late to every fortieth."""

    def __init__(self, answer_of: Any):
        self._answer_of, self.requests, self._guard = answer_of, 0, threading.Lock()

    def __call__(self, *given: Any) -> Any:
        with self._guard:
            self.requests += 1
            number = self.requests
        if number % 40 == 0:
            time.sleep(0.8)  # another request is answered before, and this one too
        return (500, b"", "") if number % 7 == 0 else self._answer_of(*given)


def test_an_http_endpoint(inputs, alone, tmp_path, monkeypatch):
    token, odd = "t" * 32, _Odd(http_endpoint.answer_of)
    monkeypatch.setattr(http_endpoint, "answer_of", odd)
    server = http_endpoint.endpoint("superworkflow.tasks.lib.gnn.tensor_tasks:compute_call", token.encode())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    more = {"workers": None, "endpoints": {"tensor": {"url": f"http://127.0.0.1:{server.server_port}", "most": 3}}}
    try:
        with pytest.raises(UserError, match="no token"):
            trained(inputs, tmp_path / "none", "gcn", **more)
        monkeypatch.setenv(http_endpoint.TOKEN_VARIABLE, token)
        found, _ = trained(inputs, tmp_path / "found", "gcn", **more)
        monkeypatch.setenv(http_endpoint.TOKEN_VARIABLE, "f" * 32)
        refused, log = trained(inputs, tmp_path / "refused", "gcn", **more)
    finally:
        server.shutdown()
        server.server_close()
    assert same(found, alone["gcn"])
    assert same(refused, alone["gcn"])
    assert int(str(found.stats["tensor.calls"])) > 0
    assert odd.requests > int(str(found.stats["tensor.calls"]))
    assert refused.stats["tensor.calls"] == 0
    assert "403" in log


def test_calls_before_a_loss_are_in_the_bill(inputs, tmp_path, monkeypatch):
    """All that the endpoint has answered, but for those of the seconds before the loss."""
    monkeypatch.setenv(http_endpoint.TOKEN_VARIABLE, token := "t" * 32)
    params = TrainFullParams.model_validate(GIVEN).model_dump(mode="json")
    answered, answer_of = list[int](), http_endpoint.answer_of

    def counted(*given: Any) -> Any:
        found = answer_of(*given)
        answered.append(found[0])
        return found

    monkeypatch.setattr(http_endpoint, "answer_of", counted)
    progress, mark = RecordedProgress(), tmp_path / "killed"
    with http_endpoint.endpoint("superworkflow.tasks.lib.gnn.tensor_tasks:compute_call", token.encode()) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        place, kept = PoolPlace(3, 192 << 20, f"http://127.0.0.1:{served.server_port}"), Checkpoint(tmp_path / "kept")
        with local_group([Role("graph", 2)], kept, progress, tmp_path / "logs") as group:
            (first, _) = group.run(train_until_killed, str(mark), False, params, inputs, str(tmp_path / "out"), place)
        served.shutdown()
    assert mark.exists()
    charged = sum(each["calls"] for each in progress.events if each["event"] == "calls")
    assert set(answered) == {200}
    assert first["stats"]["tensor.calls"] < charged <= len(answered)
    assert charged > 0.8 * len(answered)


def test_other_roles_are_refused(inputs, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"workers of one role alone.*'graph'"):
        trained(inputs, tmp_path, "gcn", workers={"graph": {"count": 1, "most": 2, "cpu": 1, "memory": "1Gi"}})
    small = {"tensor": {"count": 1, "most": 2, "cpu": 1, "memory": "144Mi"}}
    with pytest.raises(UserError, match=r"a call of .* KiB does not fit into a tensor worker: at most 0 B"):
        trained(inputs, tmp_path, "gcn", workers=small)
    monkeypatch.setitem(GIVEN, "clock", "virtual")
    with pytest.raises(UserError, match="virtual clock has simulated tensor workers"):
        trained(inputs, tmp_path, "gcn", count=1)


def test_the_size_of_the_pool_follows_the_queue_and_settles():
    size = PoolSize(300, 32)
    assert (size.size, size.next(5.0), size.next(5.2)) == (32, 32, 32)
    fewer = size.next(9.0)
    assert fewer < 32
    assert fewer < size.next(3.0) < 32
    sizes = [size.next(float(queue)) for queue in np.random.default_rng(2).integers(1, 50, 40)]
    assert len(set(sizes[:6])) > 1
    assert len(set(sizes[6:])) == 1
    assert PoolSize(300, 500).size == 100
