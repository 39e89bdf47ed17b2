"""Several runs that want one dataset: whose its Job is, who ends it, and who pays for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.errors import StageFailed
from superworkflow.infra.kubernetes import hold
from superworkflow.infra.kubernetes.api import Json
from superworkflow.infra.kubernetes.launcher import KubernetesLauncher
from superworkflow.infra.kubernetes.ledger import FOLDER, Ledger
from superworkflow.infra.launch.base import Event, StageCall
from superworkflow.infra.launch.exit_status import Reason
from tests.cluster.conftest import ROOT, Call, Cluster, Settings
from tests.cluster.test_launcher import FOREVER, SECONDS, _complete, _ignore, _walked, parent_arguments

HALF_A_MINUTE = {"num_walks": 25_000}
"""Parameters with which the walks take about so long."""


@contextmanager
def _another_run(settings: Settings, call: StageCall) -> Iterator[subprocess.Popen[str]]:
    """A run of the same call in a process of its own, once its stage has begun to walk."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.Popen(parent_arguments(settings, call), stdout=subprocess.PIPE, text=True, env=environment)
    assert run.stdout is not None
    try:
        while json.loads(run.stdout.readline())["event"] != "progress":
            pass
        yield run
    finally:
        run.kill()
        run.communicate()


def _until(happened: Callable[[], Any], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.1)


def _launcher_of(job: Json) -> str:
    return str(job["metadata"]["labels"]["superworkflow/launcher"])


LONGER = {**SECONDS, "num_walks": 3 * SECONDS["num_walks"]}
"""Walks that do not end before another run has found them."""


def _says(events: list[Event], text: str) -> bool:
    return any(text in str(event.get("message", "")) for event in events)


def _markers(call: StageCall) -> list[str]:
    store, stage, digest = call.output.rsplit("/", 2)
    return sorted(path.suffix for path in Path(store, FOLDER, stage, digest).iterdir())


def test_killed_orchestrator_then_adoption(settings: Settings, walk: Call, cluster: Cluster) -> None:
    call = walk(cpu=0.5, **SECONDS)
    with _another_run(settings, call) as run:
        run.kill()
        run.wait()
        (job,) = cluster.jobs()
        assert not _complete(call)
        events: list[Event] = []
        launched = KubernetesLauncher(settings()).launch(call, events.append)
    assert events[0]["message"] == f"adopting the Job {job['metadata']['name']}, which is already making this dataset"
    assert not launched.reused
    assert [attempt.uid for attempt in launched.attempts] == [job["metadata"]["uid"]]
    assert _walked(events)[-1] == launched.measured.rows
    assert _walked(events) == sorted(set(_walked(events)))


def test_silent_orchestrator_of_another_machine_then_adoption(
    settings: Settings, walk: Call, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes of another machine cannot be seen: their Jobs are followed until the heartbeat was silent for long."""
    monkeypatch.setattr(hold, "has_ended_here", lambda process: None)
    monkeypatch.setattr(hold, "DEAD_SECONDS", 3.0)
    call, events = walk(cpu=0.1, **HALF_A_MINUTE), list[Event]()
    with _another_run(settings, call) as run:
        run.kill()
        run.wait()
        (job,) = cluster.jobs()
        launcher = KubernetesLauncher(settings())
        launched = launcher.launch(call, events.append)
    name = job["metadata"]["name"]
    assert events[0]["message"] == f"following another run's Job {name}, which is already making this dataset"
    assert _says(events, f"adopting the Job {name}: the run that made it has died")
    assert not launched.reused
    assert [attempt.uid for attempt in launched.attempts] == [job["metadata"]["uid"]]
    assert _markers(call) == [".booked", ".json"]


def test_a_job_of_a_living_run_is_followed_and_left_alone(
    settings: Settings, walk: Call, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupted run ends nothing of the other; the one that waits pays nothing."""
    monkeypatch.setattr(hold, "RENEW_SECONDS", 0.5)
    monkeypatch.setattr(hold, "DEAD_SECONDS", 8.0)
    call = walk(cpu=0.1, **HALF_A_MINUTE)
    first, interrupted, waiting = (KubernetesLauncher(settings()) for _ in range(3))
    told: list[list[Event]] = [[], [], []]
    with ThreadPoolExecutor(3) as pool:
        one = pool.submit(first.launch, call, told[0].append)
        _until(lambda: _walked(told[0]))
        (job,) = cluster.jobs()
        two, three = (
            pool.submit(each.launch, call, events.append)
            for each, events in zip((interrupted, waiting), told[1:], strict=True)
        )
        _until(lambda: _walked(told[1]) and _walked(told[2]))
        interrupted.cancel()
        with pytest.raises(StageFailed, match="cancelled") as raised:
            two.result()
        assert raised.value.attempts == ()
        for _ in range(5):
            now = cluster.jobs()
            if now:
                assert [each["metadata"]["uid"] for each in now] == [job["metadata"]["uid"]]
                assert _launcher_of(now[0]) == first.id
            time.sleep(2)
        made, waited = one.result(), three.result()
    assert [attempt.uid for attempt in made.attempts] == [job["metadata"]["uid"]]
    assert made.attempts[0].reason is None
    assert (waited.reused, waited.attempts, waited.seconds) == (True, (), 0)
    assert _says(told[2], "following another run's Job")
    assert not _says(told[2], "adopting")
    assert first.settle(call.output) == waiting.settle(call.output) == ()


def test_who_waits_for_a_run_that_is_interrupted_makes_the_dataset(
    settings: Settings, walk: Call, cluster: Cluster
) -> None:
    call, first, second = walk(cpu=0.5, **LONGER), KubernetesLauncher(settings()), KubernetesLauncher(settings())
    told, events = list[Event](), list[Event]()
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(first.launch, call, told.append)
        _until(lambda: _walked(told))
        (job,) = cluster.jobs()
        two = pool.submit(second.launch, call, events.append)
        _until(lambda: events)
        first.cancel()
        with pytest.raises(StageFailed, match="cancelled") as raised:
            one.result()
        made = two.result()
    (paid,) = raised.value.attempts
    assert (paid.uid, paid.reason) == (job["metadata"]["uid"], Reason.CANCELLED)
    assert paid.seconds > 0
    assert _says(events, "has ended it; continuing with a new Job")
    assert made.measured.rows == 500 * LONGER["num_walks"]
    assert not made.reused
    assert [attempt.reason for attempt in made.attempts] == [None]
    assert made.attempts[0].uid != paid.uid


@pytest.mark.parametrize("gone", [False, True], ids=["there", "removed by the cluster"])
def test_a_job_that_outlived_its_orchestrator_is_paid_for_once(
    settings: Settings, walk: Call, cluster: Cluster, gone: bool
) -> None:
    call = walk(cpu=0.5, **SECONDS)
    with _another_run(settings, call) as run:
        run.kill()
        run.wait()
        (job,) = cluster.jobs()
        name = job["metadata"]["name"]
        _until(lambda: _complete(call))
        _until(lambda: (cluster.jobs()[0].get("status") or {}).get("succeeded"))
        if gone:
            cluster.delete_job(name)
            _until(lambda: not cluster.jobs())
        one, other = KubernetesLauncher(settings()), KubernetesLauncher(settings())
        with ThreadPoolExecutor(2) as pool:
            settled = list(pool.map(lambda each: each.settle(call.output), (one, other)))
    (attempt,) = [*settled[0], *settled[1]]
    assert (attempt.uid, attempt.reason) == (job["metadata"]["uid"], None)
    assert attempt.resources == call.placement.resources
    assert attempt.seconds > 0
    assert other.settle(call.output) == ()
    assert _markers(call) == [".booked", ".json"]
    assert Ledger(call.output).debts() == []


def test_a_retry_after_a_death_is_paid_with_what_came_before_it(
    settings: Settings, walk: Call, cluster: Cluster
) -> None:
    """The first attempt ran out of memory, its run died in the second, which is adopted: both are in one record."""
    call = walk(memory=40 << 20, cpu=0.1, num_walks=6000)
    with _another_run(lambda **more: settings(memory_factor=10, **more), call) as run:
        run.kill()
        run.wait()
        (job,) = cluster.jobs()
        launched = KubernetesLauncher(settings()).launch(call, _ignore)
    assert [attempt.reason for attempt in launched.attempts] == [Reason.OUT_OF_MEMORY, None]
    assert [attempt.resources.memory >> 20 for attempt in launched.attempts] == [40, 400]
    assert launched.attempts[1].uid == job["metadata"]["uid"]
    assert launched.seconds == sum(attempt.seconds for attempt in launched.attempts)
    assert _markers(call) == [".booked", ".booked", ".json", ".json"]


def _kill_stage(call: StageCall) -> bool:
    """SIGKILL to the process of this stage, whose pod runs on this machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"stage" in arguments and call.output.encode() in arguments:
                os.kill(int(entry.name), signal.SIGKILL)
                return True
    return False


def test_a_killed_stage_is_tried_once_more_with_the_same_memory(
    settings: Settings, walk: Call, cluster: Cluster
) -> None:
    call, events = walk(memory=260 << 20, cpu=0.5, **SECONDS), list[Event]()
    killed: list[bool] = []

    def kill(event: Event) -> None:
        events.append(event)
        if event["event"] == "progress" and not killed:
            killed.append(_kill_stage(call))

    launched = KubernetesLauncher(settings()).launch(call, kill)
    assert killed == [True]
    assert [attempt.reason for attempt in launched.attempts] == [Reason.KILLED, None]
    assert {attempt.resources.memory for attempt in launched.attempts} == {260 << 20}
    assert _says(events, "not for lack of memory so far as the cluster tells; retrying once, with the same memory")
    again = KubernetesLauncher(settings()).launch(walk("other", memory=260 << 20, seed=7), events.append)
    assert [attempt.resources.memory for attempt in again.attempts] == [260 << 20]  # nothing was learnt of memory


def test_a_stage_that_is_killed_again_fails_and_says_what_it_cost(settings: Settings, walk: Call) -> None:
    call = walk(memory=260 << 20, cpu=0.5, **FOREVER)

    def kill(event: Event) -> None:
        if event["event"] == "progress":
            threading.Thread(target=_kill_stage, args=(call,)).start()

    with pytest.raises(StageFailed, match="was killed") as raised:
        KubernetesLauncher(settings()).launch(call, kill)
    assert [attempt.reason for attempt in raised.value.attempts] == [Reason.KILLED, Reason.KILLED]
    assert all(attempt.seconds > 0 and attempt.uid for attempt in raised.value.attempts)
    assert _markers(call) == [".booked", ".booked", ".json", ".json"]
