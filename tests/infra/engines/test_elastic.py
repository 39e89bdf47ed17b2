"""Elastic roles as processes of this machine: members join and leave while the stage runs, and no item is lost."""

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.base.errors import StagedUserError, UserError
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.config.usage import held_while_scaled
from superworkflow.infra.contract.stage import Estimate, Resources
from superworkflow.infra.engines import engine
from superworkflow.infra.engines.workers.elastic_role import ElasticRole
from superworkflow.infra.engines.workers.errors import WorkersFailed
from superworkflow.infra.engines.workers.group import Checkpoint, WorkerGroup
from superworkflow.infra.engines.workers.session import Role, local_group
from superworkflow.infra.engines.workers.worker import ElasticWorker
from superworkflow.infra.launch.base import Event, StageCall
from superworkflow.infra.launch.endpoint_calls import EndpointCalls
from superworkflow.infra.launch.local import fork_client
from superworkflow.infra.launch.local.launcher import ProcessLauncher
from superworkflow.infra.launch.run_stage import Executed, execute
from tests import toy_workers
from tests.infra.engines.test_workers import SOON, RecordedProgress, files_of, members_of

TENSOR = {"count": 1, "most": 3, "cpu": 0.125, "memory": "192Mi"}
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    """No member of a group of this process outlives the test."""
    yield
    assert members_of(os.getpid()) == []


def _group(tmp_path: Path, progress: RecordedProgress, count: int = 1, most: int = 3, **options: Any) -> Any:
    roles = [Role("tensor", count, most=most)]
    return local_group(roles, Checkpoint(tmp_path / "checkpoint"), progress, tmp_path / "logs", **options)


def _settle(group: WorkerGroup, role: ElasticRole) -> None:
    """Wait until as many members are there as are to be."""
    until = time.monotonic() + SOON
    while role.present != role.count:
        assert time.monotonic() < until
        group.listen()


def _pool(output: Path, tensor: dict[str, Any], **params: Any) -> Executed:
    resources = Resources.model_validate({"cpu": 1, "workers": {"tensor": tensor}})
    return execute(toy_workers.POOL, params, {}, str(output), resources, RecordedProgress(), "workers")


def test_a_role_that_grows_and_shrinks_makes_the_same_dataset(tmp_path: Path) -> None:
    fixed = _pool(tmp_path / "fixed", {**TENSOR, "count": 2, "most": 2})
    scaled = _pool(tmp_path / "scaled", TENSOR, scales=[1, 3, 1])
    assert files_of(scaled) == files_of(fixed)
    assert scaled.manifest.digest == fixed.manifest.digest
    stats = scaled.manifest.stats
    assert (stats["members"], stats["torch"]) == (3, 0)
    assert int(stats["largest"] or 0) < 192 << 20  # of which Python with NumPy is the larger part


def test_items_of_members_that_are_killed_are_done_by_others(tmp_path: Path) -> None:
    killed: list[str] = []

    def on_event(event: dict[str, Any]) -> None:
        found = re.fullmatch(r"item 2 begun by (\d+)", str(event.get("message")))
        if found and not killed:
            killed.append(found[1])
            os.kill(int(found[1]), signal.SIGKILL)

    progress = RecordedProgress(on_event)
    with _group(tmp_path, progress, count=2) as group:
        found = list(group.role("tensor").map(toy_workers.compute_item, [[item, item == 2] for item in range(6)]))
    assert [each["sum"] for each in found] == [toy_workers.value_of(item) for item in range(6)]
    assert killed
    assert killed != [str(found[2]["process"])]
    assert "a member of role tensor was lost: " in progress.log_text
    assert "item [2, true] of tests.toy_workers:compute_item goes to another" in progress.log_text


def end_itself(worker: ElasticWorker, item: int) -> int:
    """Kill the member, or fail, or not."""
    if item == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    if item == 6:
        raise UserError("too many", where="item", value=item)
    return 1 // (7 - item)


def test_an_item_that_ends_its_members_is_named_and_fails_alone(tmp_path: Path) -> None:
    with _group(tmp_path, RecordedProgress(), count=2) as group:
        role = group.role("tensor")
        tasks = [role.submit(end_itself, item) for item in (4, 5, 6, 7, 8)]
        with pytest.raises(WorkersFailed, match=r"item 5 of .*:end_itself was lost with 3 members, the last one a "):
            tasks[1].result()
        with pytest.raises(StagedUserError, match="item: too many"):
            tasks[2].result()
        with pytest.raises(WorkersFailed, match=r"failed on item 7 of .*: ZeroDivisionError"):
            tasks[3].result()
        assert [tasks[0].result(), tasks[4].result()] == [0, -1]
        with pytest.raises(StagedUserError):
            list(role.map(end_itself, [6, 4, 4]))
        assert list(role.map(end_itself, [8, 4])) == [-1, 0]


def threads_of_numba(worker: ElasticWorker, item: int) -> int:
    import numba

    return int(numba.get_num_threads())


def test_members_compute_with_the_threads_of_their_role(tmp_path: Path) -> None:
    """Not with as many as the machine has cores."""
    with _group(tmp_path, RecordedProgress(), most=1) as group:
        assert list(group.role("tensor").map(threads_of_numba, [1])) == [1]


def test_a_member_that_hangs_is_named_and_replaced(tmp_path: Path) -> None:
    def on_event(event: dict[str, Any]) -> None:
        found = re.fullmatch(r"item 1 begun by (\d+)", str(event.get("message")))
        if found and not stopped:
            stopped.append(int(found[1]))
            os.kill(stopped[0], signal.SIGSTOP)

    stopped: list[int] = []
    progress = RecordedProgress(on_event)
    with _group(tmp_path, progress, silence_s=10) as group:
        found = list(group.role("tensor").map(toy_workers.compute_item, [[0, 0], [1, 2.0]]))
    host = os.uname().nodename
    assert f"a member of role tensor (host {host}, process {stopped[0]}) hangs: no sign for " in progress.log_text
    assert found[1]["process"] != stopped[0]


def test_members_that_leave_finish_their_item(tmp_path: Path) -> None:
    progress = RecordedProgress()
    with _group(tmp_path, progress, count=3) as group:
        role = group.role("tensor")
        _settle(group, role)
        tasks = [role.submit(toy_workers.compute_item, [item, 1.0]) for item in range(5)]
        while progress.log_text.count("begun by") < 3:
            group.listen()
        role.scale(1)
        assert len({task.result()["process"] for task in tasks}) == 3
        _settle(group, role)
        with pytest.raises(ValueError, match="may have 1 to 3 members, not 4"):
            role.scale(4)
        with pytest.raises(UserError, match="elastic role of this name"):
            group.role("graph")
        with pytest.raises(UserError, match="all roles are elastic"):
            group.run(toy_workers.meet, None)
    assert progress.log_text.count("begun by") == 5
    assert "lost" not in progress.log_text
    assert [(each["role"], each["count"]) for each in progress.events if each["event"] == "scale"] == [("tensor", 1)]


def test_members_without_an_item_leave_first(tmp_path: Path) -> None:
    """Even if the one that has an item was the last to be started."""
    with _group(tmp_path, RecordedProgress(), count=3) as group:
        role = group.role("tensor")
        _settle(group, role)
        last = max(members_of(os.getpid()), key=lambda each: (each.create_time(), each.pid)).pid
        tasks = [role.submit(toy_workers.compute_item, [number, 3.0 * (each.pid == last)])
                 for number, each in enumerate(role.staying)]  # fmt: skip
        (busy,) = [task for task, each in zip(tasks, role.staying, strict=True) if each.pid == last]
        assert last not in [task.result()["process"] for task in tasks if task is not busy]
        role.scale(1)
        _settle(group, role)
        assert not busy.done
        assert [each.pid for each in role.staying] == [last]
        assert busy.result()["process"] == last


def test_a_member_gets_an_item_while_it_does_another(tmp_path: Path) -> None:
    """If it is lost with both, only the one that it had begun counts as lost with it."""
    with _group(tmp_path, progress := RecordedProgress(), most=1) as group:
        role = group.role("tensor")
        _settle(group, role)
        role.stream()
        first, second, third = (role.submit(toy_workers.compute_item, [item, 2.0]) for item in range(3))
        assert [each.begun > 0 for each in (first, second, third)] == [True, True, False]
        while "item 0 begun" not in progress.log_text:
            group.listen()
        sent = second.begun
        members_of(os.getpid())[0].kill()
        for item, task in enumerate((first, second, third)):
            assert task.result()["sum"] == toy_workers.value_of(item)
    assert (first.losses, second.losses, third.losses) == (1, 0, 0)
    assert sent + 2 < first.begun + 2 < second.begun + 0.1
    assert sorted(re.findall(r"item (\d) begun", progress.log_text)) == ["0", "0", "1", "2"]


def test_items_are_done_while_ranks_are_called(tmp_path: Path) -> None:
    roles = [Role("graph", 1), Role("tensor", 1, most=2)]
    with local_group(roles, Checkpoint(tmp_path / "checkpoint"), RecordedProgress(), tmp_path / "logs") as group:
        tasks = [group.role("tensor").submit(toy_workers.compute_item, [item, 0.0]) for item in range(3)]
        met = group.run(toy_workers.meet, None)
        assert [each["size"] for each in met] == [1]
        assert not any(task.result()["torch"] for task in tasks)


def test_members_are_paid_for_from_joining_to_leaving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_client, "PROGRAM", (sys.executable, "-P", "-m", "tests.cluster.with_more_tasks"))
    monkeypatch.setattr(fork_client, "_shared", None)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    placed = Placement(engine="workers", resources=Resources.model_validate({"workers": {"tensor": TENSOR}}))
    call = StageCall("pool", "pool", {"scales": [1, 3, 2]}, {}, str(tmp_path / "dataset"), placed)
    events: list[Event] = []
    launched = ProcessLauncher().launch(call, events.append)
    assert [each["count"] for each in events if each["event"] == "scale"] == [3, 2]
    (attempt,) = launched.attempts
    own, *members = attempt.holdings
    assert own.role == ""
    spans = [(each.count, each.begin_s > 0, each.end_s < own.end_s) for each in members]
    assert spans == [(1, False, False), (1, True, True), (1, True, False)]
    assert {each.resources.memory for each in members} == {192 << 20}


def test_spans_of_scaled_roles() -> None:
    tensor, graph = {**TENSOR, "count": 2, "most": 9}, {"count": 4, "cpu": 1, "memory": "1Gi"}
    resources = Resources.model_validate({"cpu": 1, "workers": {"graph": graph, "tensor": tensor}})
    found = held_while_scaled(resources, 100, [(10, "tensor", 5), (40, "tensor", 1), (60, "tensor", 2)])
    assert [(each.role, each.count, each.begin_s, each.end_s) for each in found] == [
        ("", 1, 0, 100), ("graph", 4, 0, 100),
        ("tensor", 1, 0, 40), ("tensor", 1, 0, 100), ("tensor", 3, 10, 40), ("tensor", 1, 60, 100),
    ]  # fmt: skip


def test_calls_of_an_endpoint_are_held_within_the_time_of_their_stage() -> None:
    endpoints = Resources.model_validate({"endpoints": {"tensor": {"url": "https://a.example"}}}).endpoints or {}
    event = {"event": "calls", "role": "tensor", "calls": 1000, "seconds": 25.0}
    found = EndpointCalls(endpoints)
    for part in ({**event, "calls": 400, "seconds": 20.0}, {**event, "calls": 600, "seconds": 5.0}):
        found.take(part)
    (held,) = found.holdings(10.0)
    assert (held.count, held.seconds, held.requests, held.resources.memory) == (3, 25 / 3, 333, 192 << 20)
    for other in (
        {**event, "event": "log"},
        {**event, "role": "graph"},
        {**event, "seconds": -1},
        {**event, "calls": 0},
    ):
        none = EndpointCalls(endpoints)
        none.take(other)
        assert none.holdings(10.0) == []


@pytest.mark.parametrize("on_cluster", [True, False])
def test_the_forecast_is_for_the_count_and_without_torch(on_cluster: bool) -> None:
    elastic = Resources.model_validate({"cpu": 1, "workers": {"tensor": {**TENSOR, "count": 2, "most": 8}}})
    fixed = Resources.model_validate({"cpu": 1, "workers": {"tensor": {**TENSOR, "count": 2, "most": None}}})
    estimate = Estimate(memory_bytes=64 << 20, cpu_s=9, output_bytes=7, start_s=1, base_bytes=64 << 20)
    light, heavy = (engine("workers").expected(estimate, each, on_cluster) for each in (elastic, fixed))
    assert light.groups["tensor"].memory_bytes + light.groups["tensor"].engine_bytes < 192 << 20
    assert heavy.groups["tensor"].memory_bytes + heavy.groups["tensor"].engine_bytes > 192 << 20
    assert (light.width, light.work_s) == (heavy.width, heavy.work_s)
    assert light.own.cpu_s < heavy.own.cpu_s
