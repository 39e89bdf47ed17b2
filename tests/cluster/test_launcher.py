"""Stages as Jobs on a real cluster: how they run, how they end, and that nothing is left."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from superworkflow.infra.dataset import Dataset
from superworkflow.infra.errors import StageFailed, UserError
from superworkflow.infra.filesystem import Location
from superworkflow.infra.kubernetes import follow, launcher
from superworkflow.infra.kubernetes.job import Owner, job_manifest
from superworkflow.infra.kubernetes.launcher import KubernetesLauncher
from superworkflow.infra.launch.base import Event, StageCall
from superworkflow.infra.launch.exit_status import Reason
from superworkflow.infra.resources import Resources
from tests.cluster.conftest import Call, Cluster, Settings, left_over

FOREVER = {"num_walks": 1_000_000}
"""Parameters with which the walks take minutes."""

SECONDS = {"num_walks": 3000}
"""Parameters with which the walks take some seconds."""


def _ignore(event: Event) -> None: ...


def _complete(call: StageCall) -> bool:
    return Dataset.find(Location.of(call.output)) is not None


def _walked(events: list[Event]) -> list[int]:
    return [event["done"] for event in events if event["event"] == "progress"]


def test_success(settings: Settings, walk: Call) -> None:
    call, events = walk(cpu=0.1), list[Event]()
    launched = KubernetesLauncher(settings()).launch(call, events.append)
    dataset = Dataset.open(Location.of(call.output))
    dataset.verify()
    assert launched.measured == dataset.manifest.measured
    assert launched.measured.rows == 1000
    assert not launched.reused
    assert _walked(events)[-1] == 1000
    (attempt,) = launched.attempts
    assert attempt.reason is None
    assert attempt.seconds == launched.seconds > 0
    assert launched.image.startswith("localhost/busybox:1@sha256:")
    figures = launched.figures
    assert figures["requested_memory_bytes"] == 512 << 20
    assert 0 < figures["used_memory_share"] <= 1
    assert figures["container_cpu_s"] > 0.1
    assert figures["pull_s"] == 0
    assert 0 <= figures["schedule_s"] < 60
    assert 0 < figures["start_s"] < 60


def test_what_is_there_is_reused(settings: Settings, walk: Call) -> None:
    call = walk()
    launcher = KubernetesLauncher(settings())
    launcher.launch(call, _ignore)
    assert launcher.launch(call, _ignore).reused


def test_manifest_with_all_settings_is_accepted(settings: Settings, walk: Call, cluster: Cluster) -> None:
    rich = settings(
        service_account="default", image_pull_secret="registry", env_secrets=["s3"], node_selector={"pool": "a"},
        tolerations=[{"key": "graphs", "effect": "NoSchedule"}], gpu_selectors={"T4": {"accelerator": "t4"}},
        volumes=[{"mount_path": "/m", "claim": "m"}],
    )  # fmt: skip
    resources = Resources.model_validate(
        {"cpu": 1.5, "memory": "2Gi", "gpu": {"count": 1, "type": "T4"}, "ephemeral_storage": "1Gi", "shm": "1Gi"}
    )
    manifest = job_manifest(walk(), rich, resources, launcher="x", owner=Owner("flow", "0-1-2"))
    created = cluster.do(lambda api: api.create(api.jobs, manifest, dryRun="All"))
    pod = created["spec"]["template"]["spec"]
    asked = manifest["spec"]["template"]["spec"]
    assert {key: pod[key] for key in asked if key not in ("containers", "volumes")} == {
        key: value for key, value in asked.items() if key not in ("containers", "volumes")
    }
    assert pod["containers"][0].items() >= {"securityContext": asked["containers"][0]["securityContext"]}.items()


def test_bad_input_is_passed_on_as_the_stage_said_it(settings: Settings, walk: Call) -> None:
    with pytest.raises(UserError, match=r"walk.p: .*\(got -1\)"):
        KubernetesLauncher(settings()).launch(walk(p=-1), _ignore)


def test_exit_status(settings: Settings, walk: Call) -> None:
    command = ["/bin/busybox", "sh", "-c", "echo some words; exit 3"]
    events: list[Event] = []
    with pytest.raises(StageFailed, match="exit status 3") as raised:
        KubernetesLauncher(settings(command=command)).launch(walk(), events.append)
    assert raised.value.status == 3
    assert [event["message"] for event in events] == ["some words"]


def test_out_of_memory_then_success_and_remembered(settings: Settings, walk: Call) -> None:
    launcher, events = KubernetesLauncher(settings(memory_factor=4)), list[Event]()
    launched = launcher.launch(walk(memory=40 << 20), events.append)
    assert [attempt.reason for attempt in launched.attempts] == [Reason.OUT_OF_MEMORY, None]
    assert [attempt.resources.memory >> 20 for attempt in launched.attempts] == [40, 160]
    assert launched.seconds == sum(attempt.seconds for attempt in launched.attempts)
    assert any("retrying with 160.0 MiB" in event.get("message", "") for event in events)
    again = KubernetesLauncher(settings()).launch(walk("other", memory=40 << 20, seed=7), events.append)
    (attempt,) = again.attempts
    assert launched.measured.container_peak_memory_bytes is not None
    remembered = min(160 << 20, 2 * launched.measured.container_peak_memory_bytes)
    assert attempt.resources.memory == remembered > 40 << 20
    assert "less was not enough" in events[-2]["message"] or any("less was" in e.get("message", "") for e in events)


def test_out_of_memory_up_to_the_cap(settings: Settings, walk: Call) -> None:
    tight = settings(memory_factor=1.5, memory_cap="20Mi")
    with pytest.raises(StageFailed, match=r"out of memory \(its limit was 20 MiB\).*memory_cap"):
        KubernetesLauncher(tight).launch(walk(memory=16 << 20), _ignore)


def test_missing_image(settings: Settings, walk: Call) -> None:
    launcher = KubernetesLauncher(settings(images={"cpu": "localhost/none:1"}, start_patience_s=2))
    with pytest.raises(StageFailed, match=r"the image localhost/none:1 cannot be pulled"):
        launcher.launch(walk(), _ignore)


def test_unschedulable(settings: Settings, walk: Call) -> None:
    events: list[Event] = []
    with pytest.raises(StageFailed, match=r"no node can take it; lacking: memory .*waited for 1 s"):
        KubernetesLauncher(settings(schedule_patience_s=1)).launch(walk(memory=1 << 44), events.append)
    assert any("waiting: no node can take it" in event["message"] for event in events)


def test_missing_secret(settings: Settings, walk: Call) -> None:
    launcher = KubernetesLauncher(settings(env_secrets=["none-such"], start_patience_s=1))
    with pytest.raises(StageFailed, match='secret "none-such" not found'):
        launcher.launch(walk(), _ignore)


def test_deadline(settings: Settings, walk: Call) -> None:
    with pytest.raises(StageFailed, match="deadline of 4 s"):
        KubernetesLauncher(settings(deadline_s=4)).launch(walk(**FOREVER), _ignore)


def test_deadline_that_the_cluster_does_not_keep(
    settings: Settings, walk: Call, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Controllers of Kubernetes 1.20 forget one now and then; here they stand still."""
    monkeypatch.setattr(follow, "LATE_SECONDS", 1.0)
    monkeypatch.setattr(follow, "LOG_SECONDS", 1.0)
    monkeypatch.setattr(launcher, "REMOVE_SECONDS", 3.0)
    command = ["/bin/busybox", "sh", "-c", "echo some words; sleep 600"]
    controllers, events = cluster.process("kube-controller-manager"), list[Event]()
    resumed = threading.Timer(60, os.kill, (controllers, signal.SIGCONT))

    def stop(event: Event) -> None:
        if not events:
            os.kill(controllers, signal.SIGSTOP)
            resumed.start()
        events.append(event)

    try:
        with pytest.raises(StageFailed, match="deadline of 10 s"):
            KubernetesLauncher(settings(deadline_s=10, grace_s=1, command=command)).launch(walk(), stop)
        assert resumed.is_alive()
        assert "could not be removed" in events[-1]["message"]  # which takes the controllers as well
    finally:
        resumed.cancel()
        os.kill(controllers, signal.SIGCONT)
    assert left_over(cluster, 300) == []  # they need a while to find their feet


def test_deleted_from_outside(settings: Settings, walk: Call, cluster: Cluster) -> None:
    def delete(event: Event) -> None:
        for job in cluster.jobs():
            cluster.delete_job(job["metadata"]["name"])

    with pytest.raises(StageFailed, match="the Job was deleted while it ran"):
        KubernetesLauncher(settings()).launch(walk(**FOREVER), delete)


def test_store_that_pods_do_not_see(settings: Settings, walk: Call, tmp_path: Path) -> None:
    there = replace(walk(), output=f"{tmp_path}/walk/x")
    with pytest.raises(UserError, match="this folder is not visible to pods"):
        KubernetesLauncher(settings()).launch(there, _ignore)


def test_source_of_this_machine_goes_through_the_store(
    settings: Settings, walk: Call, tmp_path: Path, graph: str
) -> None:
    (tmp_path / "edges.csv").write_text("a,b\nb,c\n")
    call = walk()
    index = StageCall(
        "index", "index", {}, {"edges": f"{tmp_path}/edges.csv"}, str(Path(graph).with_name("b" * 32)), call.placement
    )
    assert KubernetesLauncher(settings()).launch(index, _ignore).measured.rows == 2
    (tmp_path / "edges.csv").write_text("a,b\nc\n")
    there = replace(index, output=str(Path(graph).with_name("e" * 32)))
    with pytest.raises(UserError, match=f"^{tmp_path}/edges.csv, line 2: "):  # not its copy in the store
        KubernetesLauncher(settings()).launch(there, _ignore)


def test_cancel_in_the_middle(settings: Settings, walk: Call, cluster: Cluster) -> None:
    launcher, cancelling = KubernetesLauncher(settings()), list[threading.Thread]()

    def cancel(event: Event) -> None:
        if not cancelling:
            cancelling.append(threading.Thread(target=launcher.cancel))
            cancelling[0].start()

    call = walk(**FOREVER)
    with pytest.raises(StageFailed, match="cancelled"):
        launcher.launch(call, cancel)
    assert cluster.jobs() == []
    cancelling[0].join()
    assert not _complete(call)
    launcher.cancel()  # once more is no error
    with pytest.raises(StageFailed, match="cancelled before the stage began"):
        launcher.launch(call, _ignore)


def test_job_ends_when_its_listener_fails(settings: Settings, walk: Call, cluster: Cluster) -> None:
    def fail(event: Event) -> None:
        raise RuntimeError("the listener")

    with pytest.raises(RuntimeError, match="the listener"):
        KubernetesLauncher(settings()).launch(walk(**FOREVER), fail)
    assert cluster.jobs() == []


@pytest.mark.parametrize("away", [20])
def test_api_server_unreachable(settings: Settings, walk: Call, cluster: Cluster, away: int) -> None:
    """The stage goes on, and ends while nobody can see it; its log is complete, each line once."""
    server, events, stopped = cluster.process("kube-apiserver"), list[Event](), list[threading.Timer]()

    def stop(event: Event) -> None:
        events.append(event)
        if not stopped:
            os.kill(server, signal.SIGSTOP)
            stopped.append(threading.Timer(away, os.kill, (server, signal.SIGCONT)))
            stopped[0].start()

    launched = KubernetesLauncher(settings()).launch(walk(cpu=0.5, **SECONDS), stop)
    stopped[0].join()
    assert len(launched.attempts) == 1
    assert not launched.reused
    walked = _walked(events)
    assert walked == sorted(set(walked))
    assert walked[-1] == launched.measured.rows


PARENT = """
import json, sys
from superworkflow.infra.kubernetes.settings import KubernetesSettings
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.kubernetes.launcher import KubernetesLauncher
from superworkflow.infra.profile import Placement
settings, (node, stage, params, inputs, output), placement, labels = json.loads(sys.argv[1])
call = StageCall(node, stage, params, inputs, output, Placement.model_validate(placement), labels)
launcher = KubernetesLauncher(KubernetesSettings.model_validate(settings))
launcher.launch(call, lambda event: print(json.dumps(event), flush=True))
"""


def parent_arguments(settings: Settings, call: StageCall) -> list[str]:
    given = [call.node, call.stage, dict(call.params), dict(call.inputs), call.output]
    everything = [settings().model_dump(), given, call.placement.model_dump(), dict(call.labels)]
    return [sys.executable, "-P", "-c", PARENT, json.dumps(everything)]


def test_twenty_at_once(settings: Settings, walk: Call) -> None:
    launcher = KubernetesLauncher(settings())
    calls = [walk(str(number), memory=256 << 20, cpu=0.02, seed=number) for number in range(20)]
    events: dict[str, list[Event]] = {call.output: [] for call in calls}
    with ThreadPoolExecutor(20) as pool:
        done = list(pool.map(lambda call: launcher.launch(call, events[call.output].append), calls))
    assert [launched.measured.rows for launched in done] == [1000] * 20
    for call in calls:
        assert _complete(call)
        assert _walked(events[call.output])[-1] == 1000
