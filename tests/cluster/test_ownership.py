"""Several runs that want one dataset: whose its Job is, who ends it, and who pays for it."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.launch.base import Event, Launched, StageCall
from superworkflow.infra.launch.kubernetes import ownership
from superworkflow.infra.launch.kubernetes.api import Json
from superworkflow.infra.launch.kubernetes.billing_ledger import FOLDER, BillingLedger
from superworkflow.infra.process.exit_status import Reason
from tests.cluster.conftest import NAMESPACE, Cluster, Pods
from tests.launcher_cases import at_work, calling, complete, ignore, kill_stage, says, steps, until

MIB = 1 << 20


@contextmanager
def _killed_run(ground: Pods, call: StageCall, **settings: Any) -> Iterator[Json]:
    """The Job of a run that was killed while its stage was at work."""
    with calling(ground.caller(call, **settings)) as run:
        run.kill()
        run.wait()
        (job,) = ground.cluster.jobs()
        yield job


def _markers(call: StageCall) -> list[str]:
    store, stage, digest = call.output.rsplit("/", 2)
    return sorted(path.suffix for path in Path(store, FOLDER, stage, digest).iterdir())


def test_silent_orchestrator_of_another_machine_then_adoption(
    ground: Pods, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes of another machine cannot be seen: their Jobs are followed until the heartbeat was silent for long."""
    monkeypatch.setattr(ownership, "has_ended", lambda process: False)
    monkeypatch.setattr(ownership, "DEAD_SECONDS", 2.0)
    call, events = ground.call(gate), list[Event]()
    with _killed_run(ground, call) as job:
        name = job["metadata"]["name"]

        def follow(event: Event) -> None:
            events.append(event)
            if says([event], "adopting the Job"):
                gate.touch()

        launched = ground.launcher().launch(call, follow)
    assert events[0]["message"] == f"following another run's Job {name}, which is already making this dataset"
    assert says(events, f"adopting the Job {name}: the run that made it has died")
    assert not launched.reused
    assert [attempt.uid for attempt in launched.attempts] == [job["metadata"]["uid"]]
    assert _markers(call) == [".booked", ".json"]


@pytest.mark.parametrize("gone", [False, True], ids=["there", "removed by the cluster"])
def test_a_job_that_outlived_its_orchestrator_is_paid_for_once(
    ground: Pods, gate: Path, cluster: Cluster, gone: bool
) -> None:
    call = ground.call(gate)
    with _killed_run(ground, call) as job:
        gate.touch()
        until(lambda: complete(call))
        until(lambda: (cluster.jobs()[0].get("status") or {}).get("succeeded"))
        if gone:
            cluster.delete_job(job["metadata"]["name"])
            until(lambda: not cluster.jobs())
        one, other = ground.launcher(), ground.launcher()
        with ThreadPoolExecutor(2) as pool:
            settled = list(pool.map(lambda each: each.claim_orphans(call.output), (one, other)))
    (attempt,) = [*settled[0], *settled[1]]
    assert (attempt.uid, attempt.reason) == (job["metadata"]["uid"], None)
    assert attempt.resources == call.placement.resources
    assert attempt.seconds > 0
    assert other.claim_orphans(call.output) == ()
    assert _markers(call) == [".booked", ".json"]
    assert BillingLedger(call.output).debts() == []


def test_of_runs_that_begin_at_once_one_makes_a_job(ground: Pods, gate: Path, pool: ThreadPoolExecutor) -> None:
    """Those of one process, as trials of a sweep: the others hold nothing while they wait."""
    call = ground.call(gate)
    together, logs = threading.Barrier(4), [list[Event]() for _ in range(4)]

    def launch(events: list[Event]) -> Launched:
        launcher = ground.launcher()
        together.wait()
        return launcher.launch(call, events.append)

    runs = [pool.submit(launch, events) for events in logs]
    until(lambda: sum(says(events, "following another run's Job") for events in logs) == 3)
    assert len(ground.running(call)) == 1
    gate.touch()
    done = [run.result() for run in runs]
    assert sorted(each.reused for each in done) == [False, True, True, True]
    assert [len(each.attempts) for each in sorted(done, key=lambda each: each.reused)] == [1, 0, 0, 0]
    assert _markers(call) == [".booked", ".json"]
    found = ground.launcher().launch(call, ignore)
    assert (found.reused, found.attempts) == (True, ())
    assert _markers(call) == [".booked", ".json"]


def test_a_retry_after_a_death_is_paid_with_what_came_before_it(ground: Pods, gate: Path) -> None:
    """The first attempt ran out of memory, its run died in the second, which is adopted: both are in one record."""
    call, events = ground.call(gate, memory=40 * MIB, memory_mib=60), list[Event]()
    with _killed_run(ground, call, memory_factor=10) as job:
        gate.touch()
        launched = ground.launcher().launch(call, events.append)
    name = job["metadata"]["name"]
    assert events[0]["message"] == f"adopting the Job {name}, which is already making this dataset"
    assert [attempt.reason for attempt in launched.attempts] == [Reason.OUT_OF_MEMORY, None]
    assert [attempt.resources.memory for attempt in launched.attempts] == [40 * MIB, 400 * MIB]
    assert launched.attempts[1].uid == job["metadata"]["uid"]
    assert launched.seconds == sum(attempt.seconds for attempt in launched.attempts)
    assert _markers(call) == [".booked", ".booked", ".json", ".json"]


def test_a_killed_stage_is_tried_once_more_with_the_same_memory(ground: Pods, gate: Path) -> None:
    call, events = ground.call(gate, memory=260 * MIB), list[Event]()

    def kill() -> None:
        if steps(events) == [1]:
            kill_stage(call)
        else:
            gate.touch()

    launched = ground.launcher().launch(call, at_work(kill, events))
    assert steps(events) == [1, 1, 2]
    assert [attempt.reason for attempt in launched.attempts] == [Reason.KILLED, None]
    assert {attempt.resources.memory for attempt in launched.attempts} == {260 * MIB}
    assert says(events, "the cluster reports no lack of memory; retrying once, with the same memory")
    again = ground.launcher().launch(ground.call(memory=260 * MIB, seed=7), events.append)
    assert [attempt.resources.memory for attempt in again.attempts] == [260 * MIB]  # nothing was learnt of memory


DIES = """
import asyncio, json, os, sys
from superworkflow.infra.launch.kubernetes.api import KubernetesApi
from superworkflow.infra.launch.kubernetes.job_admin import create_job
from superworkflow.infra.config.kubernetes import KubernetesSettings

async def main():
    api = await KubernetesApi.connect(KubernetesSettings(namespace=sys.argv[1]))
    create = api.create

    async def until_the_job(path, body, **query):
        if path == api.jobs:
            os._exit(9)
        return await create(path, body, **query)

    api.create = until_the_job
    await create_job(api, json.loads(sys.argv[2]), {"token": "t"})

asyncio.run(main())
"""


def test_secret_of_a_launcher_killed_before_its_job_ends_with_the_flow(cluster: Cluster) -> None:
    maps, secret = f"/api/v1/namespaces/{NAMESPACE}/configmaps", f"/api/v1/namespaces/{NAMESPACE}/secrets/sw-killed"
    flow: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stands-for-the-pod-of-a-flow"}}
    made = cluster.do(lambda api: api.create(maps, flow))["metadata"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": made["name"], "uid": made["uid"]}
    job = {"metadata": {"name": "sw-killed", "ownerReferences": [owner]}}
    killed = subprocess.run([sys.executable, "-c", DIES, NAMESPACE, json.dumps(job)], timeout=120)
    assert killed.returncode == 9
    assert cluster.do(lambda api: api.get(secret)) is not None
    cluster.do(lambda api: api.delete(f"{maps}/{made['name']}"))
    until(lambda: cluster.do(lambda api: api.get(secret)) is None)
