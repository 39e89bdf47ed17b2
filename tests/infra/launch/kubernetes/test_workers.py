"""The pods of worker groups, as manifests."""

import asyncio
import copy
from pathlib import Path
from typing import Any, cast

import kubernetes_validate
import pytest
import yaml

import superworkflow.infra
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.engines import engine
from superworkflow.infra.engines.lifeline import STAGE_GONE
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.launch.kubernetes import kept_pods
from superworkflow.infra.launch.kubernetes.api import KubernetesApi
from superworkflow.infra.launch.kubernetes.engines.base import engine_on_cluster
from superworkflow.infra.launch.kubernetes.engines.workers import WorkerPods
from superworkflow.infra.launch.kubernetes.job_manifest import job_manifest
from superworkflow.infra.launch.kubernetes.kept_pods import TALKS
from superworkflow.infra.launch.kubernetes.pod_group import FollowedJob
from superworkflow.infra.process.exit_status import Diagnosis, Reason
from tests.infra.launch.kubernetes.pod_security import violations

SETTINGS = KubernetesSettings.model_validate({"images": {"torch": "torch-cpu:1", "torch-cuda": "torch-cuda:1"}})
WORKERS = {
    "graph": {"count": 2, "cpu": 1.5, "memory": "1Gi", "shm": "64Mi"},
    "tensor": {"count": 3, "cpu": 1, "memory": "2Gi", "gpu": {"count": 1, "type": "T4"}},
}


@pytest.fixture
def job() -> Any:
    placed = Placement(engine="workers", resources=Resources.model_validate({"workers": WORKERS}))
    call = StageCall("relax", "relax", {}, {}, "/store/relax/" + "0" * 32, placed, image_kind="torch")
    return job_manifest(call, SETTINGS, placed.resources, launcher="here")


def _worker(job: Any, role: str) -> Any:
    groups = engine("workers").groups(Resources.model_validate({"workers": WORKERS}))
    name = job["metadata"]["name"]
    api = cast("KubernetesApi", None)  # nothing is asked of the cluster
    found = {
        each.role: each
        for each in engine_on_cluster("workers").members(FollowedJob(api, SETTINGS, name, print), groups)
    }
    followed = found[role]
    assert isinstance(followed, WorkerPods)
    template = job["spec"]["template"]
    metadata = {"name": "own", "uid": "1", "labels": {**template["metadata"]["labels"], "job-name": name}}
    own = {"metadata": metadata, "spec": template["spec"], "status": {"podIP": "10.0.0.1"}}
    return followed.pod(own, f"{name}-{role}-0-0")


@pytest.mark.parametrize("role", ["graph", "tensor"])
def test_workers_are_valid_pods_without_rights(job: Any, role: str) -> None:
    pod = _worker(job, role)
    for version in ("1.30", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(pod, version, strict=True)
        kubernetes_validate.validate(job, version, strict=True)
    assert violations(pod["spec"]) == []
    assert "job-name" not in pod["metadata"]["labels"]
    (container,) = pod["spec"]["containers"]
    assert container["image"] == ("torch-cuda:1" if role == "tensor" else "torch-cpu:1")
    assert container["resources"]["limits"].get("nvidia.com/gpu") == ("1" if role == "tensor" else None)
    (token,) = (each for each in container["env"] if "TOKEN" in each["name"])
    assert token["valueFrom"]["secretKeyRef"]["name"] == job["metadata"]["name"]


def test_ranks_of_roles_follow_each_other(job: Any) -> None:
    setups = {}
    for role in WORKERS:
        (container,) = _worker(job, role)["spec"]["containers"]
        text = next(each["value"] for each in container["env"] if each["name"] == "SUPERWORKFLOW_WORKER")
        setups[role] = yaml.safe_load(text)
    assert [(each["offset"], each["agents"], each["count"]) for each in setups.values()] == [(0, 5, 1), (2, 5, 1)]


class _Cluster:
    """Pods of a cluster that starts and ends them at once."""

    pods, events = "/pods", "/events"

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.clock = 0

    async def items(self, path: str, **query: str) -> list[Any]:
        self.clock += 10
        self.found = {name: pod for name, pod in self.found.items() if "deletionTimestamp" not in pod["metadata"]}
        return [copy.deepcopy(pod) for pod in self.found.values()]

    async def create(self, path: str, body: Any) -> Any:
        now = f"2026-01-01T00:{self.clock // 60:02}:{self.clock % 60:02}Z"
        pod = copy.deepcopy(body)
        pod["metadata"]["creationTimestamp"] = now
        state = {"name": "stage", "state": {"running": {"startedAt": now}}}
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
        pod["status"] = {"containerStatuses": [state], "conditions": [scheduled]}
        self.found[pod["metadata"]["name"]] = pod
        return copy.deepcopy(pod)

    async def delete(self, path: str, **query: str) -> bool:
        self.found[path.rpartition("/")[2]]["metadata"]["deletionTimestamp"] = "now"
        return True

    def end(self, name: str, code: int) -> None:
        status = self.found[name]["status"]["containerStatuses"][0]
        status["state"] = {"terminated": {"exitCode": code, "startedAt": "2026-01-01T00:00:00Z"}}


def _own(job: Any) -> Any:
    """The stage's own pod, which runs."""
    template = job["spec"]["template"]
    return {
        "metadata": {"name": "own", "uid": "1", "labels": template["metadata"]["labels"]}, "spec": template["spec"],
        "status": {"podIP": "10.0.0.1", "containerStatuses": [{"name": "stage", "state": {"running": {}}}]},
    }  # fmt: skip


def test_pods_of_an_elastic_role_come_and_go_as_the_stage_asks(job: Any) -> None:
    cluster, log = _Cluster(), list[str]()
    elastic = {"tensor": {"count": 2, "most": 4, "cpu": 0.125, "memory": "192Mi"}}
    groups = engine("workers").groups(Resources.model_validate({"workers": elastic}))
    name, own = job["metadata"]["name"], _own(job)

    def follow() -> Any:
        api = cast("KubernetesApi", cluster)
        (found,) = engine_on_cluster("workers").members(FollowedJob(api, SETTINGS, name, log.append), groups)
        return found

    def look() -> list[str]:
        assert asyncio.run(members.look(own)) is None
        return [each for each, pod in cluster.found.items() if "deletionTimestamp" not in pod["metadata"]]

    def scale(count: Any, **more: Any) -> bool:
        return bool(members.hear({"event": "scale", "role": "tensor", "count": count, **more}))

    members = follow()
    first = look()
    assert len(first) == 2
    assert [scale(count) for count in (0, 5, True, "3", None)] == [False] * 5
    assert scale(4)
    grown = look()
    assert grown[:2] == first
    assert len(grown) == 4
    members = follow()  # another launcher, which has not read yet what the stage asked for
    assert look() == grown
    assert scale(1)
    (kept,) = look()
    assert kept in first
    assert scale(1, hanging=[kept, 7])
    (other,) = look()
    assert other != kept
    assert f"the worker of role tensor {kept} hangs; starting another" in log
    cluster.end(other, 137)
    assert len(look()) == 2  # the one that ended, and another
    assert members.figures()["tensors_lost"] == 1
    assert sorted(each.role for each in members.holdings(None)) == ["tensor"] * 6
    cluster.end(look()[-1], 0)  # the stage lets its members end
    assert len(look()) == 2


@pytest.mark.parametrize("more", [{}, {"most": 3}], ids=["fixed", "elastic"])
def test_no_pods_are_made_for_members_that_end_just_before_their_stage(
    job: Any, more: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They see sooner than the cluster reports it that the stage's process has ended, well or badly."""
    cluster, log = _Cluster(), list[str]()
    workers = {"graph": {"count": 2, "cpu": 0.5, "memory": "1Gi", **more}}
    groups = engine("workers").groups(Resources.model_validate({"workers": workers}))
    name, own = job["metadata"]["name"], _own(job)
    api = cast("KubernetesApi", cluster)
    (members,) = engine_on_cluster("workers").members(FollowedJob(api, SETTINGS, name, log.append), groups)

    def look() -> list[str]:
        assert asyncio.run(members.look(own)) is None
        return list(cluster.found)

    one, other = look()
    cluster.end(one, STAGE_GONE)
    assert look() == [one, other]
    cluster.end(other, STAGE_GONE)
    assert look() == [one, other]
    assert members.failure(Diagnosis(Reason.FAILED, "", "")) is None
    assert members.figures()["graphs_lost"] == 0
    monkeypatch.setattr(kept_pods, "CUT_OFF_SECONDS", 0.0)  # the stage still runs: they lost their connections to it
    assert len(look()) == 4
    assert len(look()) == 4
    assert members.figures()["graphs_lost"] == 2


def test_only_pods_of_groups_may_call_them(job: Any) -> None:
    documents = yaml.safe_load_all((Path(superworkflow.infra.__file__).parent / "kubernetes" / "rbac.yaml").read_text())
    (policy,) = (each for each in documents if each["kind"] == "NetworkPolicy")
    kubernetes_validate.validate(policy, kubernetes_validate.latest_version(), strict=True)
    selected = policy["spec"]["podSelector"]["matchLabels"]
    assert policy["spec"]["ingress"] == [{"from": [{"podSelector": {"matchLabels": selected}}]}]
    assert selected == {TALKS: "true"}
    for labels in (job["spec"]["template"]["metadata"]["labels"], _worker(job, "graph")["metadata"]["labels"]):
        assert selected.items() <= labels.items()
