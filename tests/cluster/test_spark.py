"""Stages on Spark: the Job is the driver, executors are pods of their own, and nothing of them is left."""

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.base.errors import StageFailed
from superworkflow.infra.config.profile import Placement, Profile
from superworkflow.infra.launch.base import Event, StageCall
from superworkflow.infra.launch.kubernetes.api import KubernetesApi
from superworkflow.infra.launch.kubernetes.job_admin import find_jobs, remove_jobs
from superworkflow.infra.launch.kubernetes.job_manifest import job_manifest
from superworkflow.infra.launch.kubernetes.launcher import KubernetesLauncher
from superworkflow.infra.launch.kubernetes.preflight import preflight
from superworkflow.infra.launch.memory_history import Sizing
from superworkflow.infra.process.exit_status import Reason
from superworkflow.infra.storage.location import Location
from tests.cluster.conftest import EXPECTED, Cluster, Settings, kubernetes_caller
from tests.cluster.spark import executors_of, placement, running
from tests.spark import needs_spark

pytestmark = [needs_spark, pytest.mark.slow]

FOREVER = {"seconds": 600}


@pytest.fixture
def spread(shared_folder: Path, request: pytest.FixtureRequest) -> Callable[..., StageCall]:
    """Calls of the stage `spread`; each name its own dataset."""

    def make(name: str = "", placed: Placement | None = None, **params: Any) -> StageCall:
        digest = json.dumps([request.node.nodeid, name]).encode().hex()[-60:]
        output = shared_folder / "store" / "spread" / digest
        return StageCall(
            f"spread{name}",
            "spread",
            params,
            {},
            str(output),
            placed or placement(),
            {"flow-run": "tests"},
            "spark",
            expected_memory=EXPECTED,
        )

    return make


Spread = Callable[..., StageCall]


def _ignore(event: Event) -> None: ...


def test_failure_of_a_task(spark: Settings, spread: Spread) -> None:
    with pytest.raises(StageFailed, match="no further than here"):
        KubernetesLauncher(spark()).launch(spread(end="bug", tasks=1), _ignore)


def test_out_of_memory_of_executors_then_success_and_remembered(spark: Settings, spread: Spread) -> None:
    events = list[Event]()
    call = spread(placed=placement(count=1), tasks=1, memory_mib=700)
    launched = KubernetesLauncher(spark(memory_factor=3)).launch(call, events.append)
    assert [attempt.reason for attempt in launched.attempts] == [Reason.OUT_OF_MEMORY, None]
    sizes = [attempt.resources.executors.memory >> 20 for attempt in launched.attempts if attempt.resources.executors]
    assert sizes == [832, 2496]
    assert {attempt.resources.memory >> 20 for attempt in launched.attempts} == {1024}  # the driver's stays
    assert any("retrying with 2.4 GiB for each executor" in event.get("message", "") for event in events)
    store = Location.of(call.output.rsplit("/", 2)[0])
    remembered = Sizing(store).memory("spread.executor", EXPECTED)
    assert 832 << 20 < remembered <= min(2496 << 20, 2 * launched.figures["executor_peak_memory_bytes"])
    assert Sizing(store).memory("spread", EXPECTED) == Sizing(store).memory("spread.driver", EXPECTED) == 0


def test_executors_that_fit_nowhere(spark: Settings, spread: Spread) -> None:
    events = list[Event]()
    with pytest.raises(StageFailed, match=r"Spark executor: no node can take it; lacking: memory .*waited for 1 s"):
        KubernetesLauncher(spark(schedule_patience_s=1)).launch(spread(placed=placement(memory="9Ti")), events.append)
    assert any("waiting: Spark executor: no node can take it" in event.get("message", "") for event in events)


def test_drivers_that_fill_a_quota_end_with_a_reason(
    spark: Settings, spread: Spread, quota: Callable[[dict[str, str]], None]
) -> None:
    """Neither gets an executor, since both drivers together are all that the quota admits."""
    quota({"pods": "2"})
    failures: list[str] = []

    def launch(name: str) -> None:
        try:
            KubernetesLauncher(spark()).launch(spread(name), _ignore)
        except StageFailed as failure:
            failures.append(str(failure))

    threads = [threading.Thread(target=launch, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert len(failures) == 2
    assert all("refused Spark executors: exceeded quota: q, requested: pods=1" in each for each in failures)


def test_without_the_right_to_make_pods(spark: Settings, spread: Spread) -> None:
    with pytest.raises(StageFailed, match="orbidden"):
        KubernetesLauncher(spark(spark_service_account="default")).launch(spread(), _ignore)


def test_deadline(spark: Settings, spread: Spread) -> None:
    with pytest.raises(StageFailed, match="deadline of 20 s"):
        KubernetesLauncher(spark(deadline_s=20)).launch(spread(**FOREVER), _ignore)


def test_cancel(spark: Settings, spread: Spread, cluster: Cluster) -> None:
    launcher, failures = KubernetesLauncher(spark()), []

    def launch() -> None:
        try:
            launcher.launch(spread(**FOREVER), _ignore)
        except StageFailed as failure:
            failures.append(str(failure))

    thread = threading.Thread(target=launch)
    thread.start()
    running(cluster, 2)
    launcher.cancel()
    assert executors_of(cluster) == []
    thread.join()
    assert "cancelled" in failures[0]


def test_executors_of_a_killed_run_are_removed_with_its_job(spark: Settings, spread: Spread, cluster: Cluster) -> None:
    parent = subprocess.Popen(kubernetes_caller(spread(**FOREVER), spark()), stdout=subprocess.DEVNULL)
    running(cluster, 2)
    parent.kill()
    parent.wait()
    cluster.do(lambda api: _clean(api))
    assert executors_of(cluster) == []


async def _clean(api: KubernetesApi) -> None:
    await remove_jobs(api, await find_jobs(api))


def test_manifest_of_a_driver_is_accepted(spark: Settings, spread: Spread, cluster: Cluster) -> None:
    call = spread()
    manifest = job_manifest(call, spark(), call.placement.resources, launcher="x")
    cluster.do(lambda api: api.create(api.jobs, manifest, dryRun="All"))
    executor = json.loads(manifest["spec"]["template"]["metadata"]["annotations"]["superworkflow/executor-pod"])
    executor["metadata"]["name"] = "x"
    executor["spec"]["containers"][0]["image"] = "x"
    created = cluster.do(lambda api: api.create(api.pods, executor, dryRun="All"))
    assert created["spec"]["securityContext"] == executor["spec"]["securityContext"]


def test_check(spark: Settings, cluster: Cluster, shared_folder: Path) -> None:
    stages = {"walk": placement(), "index": placement(count=99), "prepare": placement(memory="9Ti")}
    profile = Profile(name="x", launcher="kubernetes", kubernetes=spark(), stages=stages)

    def checks(profile: Profile) -> dict[str, tuple[bool | None, str]]:
        found = cluster.do(lambda api: preflight(api, profile, f"{shared_folder}/store"))
        return {check.name: (check.ok, check.detail) for check in found}

    found = checks(profile)
    assert found["spark account: superworkflow-spark"] == (True, "pods: create, get, list, watch, patch, delete")
    assert found["size: executors of walk"] == (True, "2 × 0.25 CPU, 832.0 MiB")
    assert "of 99 fit at once" in found["size: executors of index"][1]
    assert "no node is large enough: memory 9.0 TiB" in found["size: executors of prepare"][1]
    assert found["image: localhost/busybox:1"][0]
    poor = checks(profile.model_copy(update={"kubernetes": spark(spark_service_account="default")}))
    assert "may not create, get, list" in poor["spark account: default"][1]
