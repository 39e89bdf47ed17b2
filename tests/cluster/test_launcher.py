"""Stages as Jobs on a real cluster: how they run, how they end, and that nothing is left."""

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from superworkflow.infra.base.errors import StageFailed, UserError
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.base import Event, Launched, StageCall
from superworkflow.infra.launch.kubernetes import job_follower, launcher
from superworkflow.infra.launch.kubernetes.api import KubernetesApi
from superworkflow.infra.launch.kubernetes.job_manifest import OwnerPod, job_manifest
from superworkflow.infra.process.exit_status import Reason
from tests.cluster.conftest import SELECTOR, Cluster, Pods, Settings, left_over
from tests.launcher_cases import LauncherCases, at_work, ignore, says, steps

MIB = 1 << 20


class TestPromises(LauncherCases):
    """The tests of every launcher, on Kubernetes."""


def test_what_is_measured_of_a_job(ground: Pods) -> None:
    launched = ground.launcher().launch(ground.call(), ignore)
    (attempt,) = launched.attempts
    assert attempt.seconds == launched.seconds > 0
    assert launched.image.startswith("localhost/busybox:1@sha256:")
    figures = launched.figures
    assert figures["requested_memory_bytes"] == 512 * MIB
    assert 0 < figures["used_memory_share"] <= 1
    assert figures["container_cpu_s"] > 0.1
    assert figures["pull_s"] == 0
    assert 0 <= figures["schedule_s"] < 60
    assert 0 < figures["start_s"] < 60


def test_manifest_with_all_settings_is_accepted(settings: Settings, ground: Pods, cluster: Cluster) -> None:
    rich = settings(
        service_account="default", image_pull_secrets=["registry"], env_secrets=["s3"], node_selector={"pool": "a"},
        tolerations=[{"key": "graphs", "effect": "NoSchedule"}], gpu_selectors={"T4": {"accelerator": "t4"}},
        volumes=[{"mount_path": "/m", "claim": "m"}], annotations={"a.b/c": "d"}, cpu_limit=2,
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "spot", "operator": "DoesNotExist"}]}]}}},
        topology_spread_constraints=[{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        priority_class="system-cluster-critical",
    )  # fmt: skip
    resources = Resources.model_validate(
        {"cpu": 1.5, "memory": "2Gi", "gpu": {"count": 1, "type": "T4"}, "ephemeral_storage": "1Gi", "shm": "1Gi"}
    )
    manifest = job_manifest(ground.call(), rich, resources, launcher="x", owner=OwnerPod("flow", "0-1-2"))
    created = cluster.do(lambda api: api.create(api.jobs, manifest, dryRun="All"))
    pod = created["spec"]["template"]["spec"]
    wanted = manifest["spec"]["template"]["spec"]
    assert {key: pod[key] for key in wanted if key not in ("containers", "volumes")} == {
        key: value for key, value in wanted.items() if key not in ("containers", "volumes")
    }
    assert pod["containers"][0].items() >= {"securityContext": wanted["containers"][0]["securityContext"]}.items()


def test_exit_status(ground: Pods) -> None:
    command = ["/bin/busybox", "sh", "-c", "echo some words; exit 3"]
    events: list[Event] = []
    with pytest.raises(StageFailed, match="exit status 3") as raised:
        ground.launcher(command=command).launch(ground.call(), events.append)
    assert raised.value.status == 3
    assert [event["message"] for event in events] == ["some words"]


def test_out_of_memory_then_success_and_remembered(ground: Pods) -> None:
    events: list[Event] = []
    launched = ground.launcher(memory_factor=4).launch(ground.call(memory=40 * MIB, memory_mib=60), events.append)
    assert [attempt.reason for attempt in launched.attempts] == [Reason.OUT_OF_MEMORY, None]
    assert [attempt.resources.memory for attempt in launched.attempts] == [40 * MIB, 160 * MIB]
    assert launched.seconds == sum(attempt.seconds for attempt in launched.attempts)
    assert says(events, "retrying with 160.0 MiB")
    again = ground.launcher().launch(ground.call(memory=40 * MIB, seed=7), events.append)
    (attempt,) = again.attempts
    assert launched.measured.container_peak_memory_bytes is not None
    remembered = min(160 * MIB, 2 * launched.measured.container_peak_memory_bytes)
    assert attempt.resources.memory == remembered > 40 * MIB
    assert says(events, "ran out of memory with less")


def test_out_of_memory_up_to_the_cap(ground: Pods) -> None:
    tight = ground.launcher(memory_factor=1.5, memory_cap="20Mi")
    with pytest.raises(StageFailed, match=r"out of memory \(its limit was 20 MiB\).*memory_cap"):
        tight.launch(ground.call(memory=16 * MIB), ignore)


def test_missing_image(ground: Pods) -> None:
    launcher = ground.launcher(images={"cpu": "localhost/none:1"}, start_patience_s=2)
    with pytest.raises(StageFailed, match=r"the image localhost/none:1 cannot be pulled"):
        launcher.launch(ground.call(), ignore)


def test_unschedulable(ground: Pods) -> None:
    events: list[Event] = []
    with pytest.raises(StageFailed, match=r"no node can take it; lacking: memory .*waited for 1 s"):
        ground.launcher(schedule_patience_s=1).launch(ground.call(memory=1 << 44), events.append)
    assert says(events, "waiting: no node can take it")


def test_missing_secret(ground: Pods) -> None:
    launcher = ground.launcher(env_secrets=["none-such"], start_patience_s=1)
    with pytest.raises(StageFailed, match='secret "none-such" not found'):
        launcher.launch(ground.call(), ignore)


def test_deadline(ground: Pods, gate: Path) -> None:
    with pytest.raises(StageFailed, match="deadline of 4 s"):
        ground.launcher(deadline_s=4).launch(ground.call(gate), ignore)


def test_deadline_that_the_cluster_does_not_keep(
    ground: Pods, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Controllers of Kubernetes 1.20 forget one now and then; here they stand still."""
    monkeypatch.setattr(job_follower, "LATE_SECONDS", 1.0)
    monkeypatch.setattr(job_follower, "LOG_SECONDS", 1.0)
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
            ground.launcher(deadline_s=10, grace_s=1, command=command).launch(ground.call(), stop)
        assert resumed.is_alive()
        assert "could not be removed" in events[-1]["message"]  # which takes the controllers as well
    finally:
        resumed.cancel()
        os.kill(controllers, signal.SIGCONT)
    assert left_over(cluster, 300) == []  # they need a while to find their feet


def test_deleted_from_outside(ground: Pods, gate: Path, cluster: Cluster) -> None:
    def delete() -> None:
        for job in cluster.jobs():
            cluster.delete_job(job["metadata"]["name"])

    with pytest.raises(StageFailed, match="the Job was deleted while it ran"):
        ground.launcher().launch(ground.call(gate), at_work(delete))


def _evict(cluster: Cluster) -> None:
    """Evict the pods that run, as the drain of a node does."""

    async def evict(api: KubernetesApi) -> None:
        for pod in await api.items(api.pods, labelSelector=SELECTOR):
            if "deletionTimestamp" not in pod["metadata"]:
                metadata = {"name": pod["metadata"]["name"], "namespace": api.namespace}
                body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": metadata}
                await api.create(f"{api.pods}/{metadata['name']}/eviction", body)

    cluster.do(evict)


def test_evicted_pods_get_a_new_job_of_the_same_size(ground: Pods, gate: Path, cluster: Cluster) -> None:
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if says([event], "continuing in a new Job"):
            gate.touch()
        evict(event)

    evict = at_work(lambda: None if gate.exists() else _evict(cluster))
    launched = ground.launcher(grace_s=1).launch(ground.call(gate), listen)
    assert [attempt.reason for attempt in launched.attempts] == [Reason.EVICTED, None]
    assert len({attempt.resources.memory for attempt in launched.attempts}) == 1
    assert all(attempt.seconds > 0 for attempt in launched.attempts)
    assert launched.seconds == sum(attempt.seconds for attempt in launched.attempts)
    assert says(events, "continuing in a new Job with the same resources (1 of at most 5)")


def test_evictions_are_bounded(ground: Pods, gate: Path, cluster: Cluster) -> None:
    with pytest.raises(StageFailed, match="its pod was deleted while it ran") as raised:
        ground.launcher(grace_s=1, disruption_retries=0).launch(ground.call(gate), at_work(lambda: _evict(cluster)))
    assert [attempt.reason for attempt in raised.value.attempts] == [Reason.EVICTED]


def test_a_quota_in_use_is_a_queue(
    ground: Pods, gate: Path, cluster: Cluster, quota: Callable[[dict[str, str]], None]
) -> None:
    """The second Job waits for longer than a pod may be kept from starting, and runs once the first has ended."""
    quota({"pods": "1"})
    first: list[Launched] = []
    begun = threading.Event()
    thread = threading.Thread(
        target=lambda: first.append(ground.launcher().launch(ground.call(gate), at_work(begun.set)))
    )
    thread.start()
    assert begun.wait(60)
    events: list[Event] = []

    def second(event: Event) -> None:
        events.append(event)
        if says(events, "the namespace's quota is in use"):
            gate.touch()

    launched = ground.launcher(start_patience_s=0).launch(ground.call(seed=7), second)
    thread.join(60)
    assert first
    assert [attempt.reason for attempt in launched.attempts] == [None]
    assert says(events, "waiting: the namespace's quota is in use")


@pytest.mark.parametrize(
    ("hard", "words"),
    [({"limits.cpu": "4"}, "requires a CPU limit .*kubernetes.cpu_limit"), ({"memory": "1Mi"}, "refuses the pod")],
)
def test_what_no_quota_admits_is_refused(
    ground: Pods, quota: Callable[[dict[str, str]], None], hard: dict[str, str], words: str
) -> None:
    quota(hard)
    with pytest.raises(StageFailed, match=words):
        ground.launcher(start_patience_s=1).launch(ground.call(), ignore)


def test_store_that_pods_do_not_see(ground: Pods, tmp_path: Path) -> None:
    there = replace(ground.call(), output=f"{tmp_path}/gated/x")
    with pytest.raises(UserError, match="this folder is not visible to pods"):
        ground.launcher().launch(there, ignore)


def test_source_of_this_machine_goes_through_the_store(ground: Pods, tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("a,b\nb,c\n")

    def index() -> StageCall:
        return replace(ground.call(), stage="index", params={}, inputs={"edges": f"{tmp_path}/edges.csv"})

    assert ground.launcher().launch(index(), ignore).measured.rows == 2
    (tmp_path / "edges.csv").write_text("a,b\nc\n")
    with pytest.raises(UserError, match=f"^{tmp_path}/edges.csv, line 2: "):  # not its copy in the store
        ground.launcher().launch(index(), ignore)


def test_api_server_unreachable(ground: Pods, gate: Path, cluster: Cluster) -> None:
    """The stage continues, and ends while the API is away; its log is complete, each line once."""
    server, events, stopped = cluster.process("kube-apiserver"), list[Event](), list[threading.Timer]()

    def stop() -> None:
        os.kill(server, signal.SIGSTOP)
        stopped.append(threading.Timer(20, os.kill, (server, signal.SIGCONT)))
        stopped[0].start()
        gate.touch()

    launched = ground.launcher().launch(ground.call(gate), at_work(stop, events))
    stopped[0].join()
    assert len(launched.attempts) == 1
    assert not launched.reused
    assert steps(events) == [1, 2]
    assert [says([event], "prints 0") for event in events].count(True) == 1
