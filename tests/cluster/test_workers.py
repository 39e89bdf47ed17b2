"""Worker groups on the cluster: the Job coordinates, workers are plain pods that the launcher keeps."""

import sys
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.base import Event, StageCall
from superworkflow.infra.launch.kubernetes.launcher import KubernetesLauncher
from superworkflow.infra.launch.kubernetes.pod_group import MEMBER_OF, ROLE
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.process.exit_status import Reason
from superworkflow.infra.storage.dataset import Dataset
from tests import toy_workers
from tests.cluster.conftest import EXPECTED, Cluster, Settings
from tests.infra.launch.kubernetes.pod_security import violations

DIGEST = "7" * 32


@pytest.fixture
def workers(settings: Settings) -> KubernetesSettings:
    """Settings for stages with worker groups, the tests' own among them."""
    return settings(command=[sys.executable, "-P", "-m", "tests.cluster.with_more_tasks"])


def _checksums(dataset: Dataset) -> dict[str, str]:
    return {entry.path: entry.sha256 for entry in dataset.manifest.files}


def _call(output: Path, **params: Any) -> StageCall:
    group = {"count": 2, "cpu": 0.2, "memory": "700Mi", "shm": "16Mi"}
    resources = Resources.model_validate({"cpu": 0.2, "memory": "700Mi", "workers": {"graph": group}})
    placed = Placement(engine="workers", resources=resources)
    return StageCall(
        "relax", "relax", params, {}, str(output), placed, {"flow-run": "tests"}, "torch", expected_memory=EXPECTED
    )


def test_lost_workers_are_replaced_and_the_bytes_are_those_of_one_process(
    cluster: Cluster, workers: KubernetesSettings, shared_folder: Path, tmp_path: Path
) -> None:
    """The first pods have too little memory; of the next ones, which have more, one is deleted at its work."""
    one = Resources.model_validate({"cpu": 1, "workers": {"count": 1, "cpu": 1, "memory": "1Gi"}})
    here = execute(toy_workers.STAGE, {}, {}, str(tmp_path / "here"), one, Progress("relax"), "workers")
    pods: list[Any] = []

    def on_event(event: Event) -> None:
        if event["event"] == "progress" and event["done"] >= 2 and not pods:
            pods.extend(cluster.do(lambda api: api.items(api.pods, labelSelector=f"{MEMBER_OF},{ROLE}=graph")))
            name = pods[1]["metadata"]["name"]
            cluster.do(lambda api: api.delete(f"{api.pods}/{name}", gracePeriodSeconds="0"))
        log.append(str(event.get("message")))

    log: list[str] = []
    output = shared_folder / "store" / "relax" / DIGEST
    launched = KubernetesLauncher(workers).launch(_call(output, seconds=0.5, fill_mib=800), on_event)
    made = Dataset.open(str(output))
    made.verify()
    assert _checksums(made) == _checksums(here.dataset)
    assert int(made.stats["resumed"] or 0) >= 2
    assert any("worker of role graph" in line and "ran out of memory" in line for line in log)
    assert any("was lost; starting another" in line for line in log)
    assert [attempt.reason for attempt in launched.attempts] == [Reason.OUT_OF_MEMORY, None]
    assert len(pods) == 2
    for pod in pods:
        assert [fault for fault in violations(pod["spec"]) if "hostPath" not in fault] == []  # the tests' own volumes
        assert not pod["spec"]["automountServiceAccountToken"]
        (container,) = pod["spec"]["containers"]
        assert not any("token" in str(each.get("value")).lower() for each in container["env"])
        assert pod["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    assert launched.figures["graphs"] == 3
    assert {holding.role for holding in launched.attempts[-1].holdings} == {"", "graph"}


def test_pods_of_an_elastic_role_join_and_leave_at_work(
    cluster: Cluster, workers: KubernetesSettings, shared_folder: Path, tmp_path: Path
) -> None:
    """The stage continues when as many members have joined or left as it has asked for."""
    tensor = {"count": 1, "most": 3, "cpu": 0.1, "memory": "192Mi"}
    here = execute(
        toy_workers.POOL, {}, {}, str(tmp_path / "here"),
        Resources.model_validate({"cpu": 1, "workers": {"tensor": tensor}}), Progress("pool"), "workers",
    )  # fmt: skip
    resources = Resources.model_validate({"cpu": 0.2, "memory": "700Mi", "workers": {"tensor": tensor}})
    output = shared_folder / "store" / "pool" / DIGEST
    call = StageCall(
        "pool", "pool", {"scales": [1, 3, 1], "seconds": 0.1}, {}, str(output),
        Placement(engine="workers", resources=resources), {"flow-run": "tests"}, "torch", expected_memory=EXPECTED,
    )  # fmt: skip
    events: list[Event] = []
    launched = KubernetesLauncher(workers).launch(call, events.append)
    made = Dataset.open(str(output))
    made.verify()
    assert _checksums(made) == _checksums(here.dataset)
    assert made.stats["members"] == 3
    assert [each["count"] for each in events if each["event"] == "scale"] == [3, 1]
    (attempt,) = launched.attempts
    spans = [(each.begin_s, each.end_s) for each in attempt.holdings if each.role == "tensor"]
    assert len(spans) == 3
    assert not any("lost" in str(each.get("message")) for each in events)
    assert int(made.stats["largest"] or 0) < 192 << 20
    longest = max(end_s - begin_s for begin_s, end_s in spans)
    assert sum(end_s - begin_s for begin_s, end_s in spans) < 3 * longest
