"""A flow in a pod of its own with the rights that the project ships, and stages whose store is a bucket."""

import os
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.base import Event, StageCall
from superworkflow.infra.launch.kubernetes.api import ApiError, Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.launcher import KubernetesLauncher
from superworkflow.infra.storage.dataset import Dataset
from tests.cluster.conftest import ROOT, Cluster, Pods, Settings
from tests.cluster.test_commands import _checks, _profile
from tests.launcher_cases import at_work, says, stage_processes
from tests.s3_servers import KIND

NAMESPACE = "superworkflow"
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "Role": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles",
    "RoleBinding": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings",
    "NetworkPolicy": f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
PODS, JOBS = f"/api/v1/namespaces/{NAMESPACE}/pods", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


@pytest.fixture(scope="module")
def rights(cluster: Cluster) -> Iterator[None]:
    """The namespace, accounts and roles of the shipped manifest."""
    documents = list(yaml.safe_load_all((ROOT / "infra" / "kubernetes" / "rbac.yaml").read_text()))

    async def apply(api: KubernetesApi) -> None:
        for document in documents:
            await api.create(_PATHS[document["kind"]], document)

    async def remove(api: KubernetesApi) -> None:
        for document in reversed(documents):
            await api.delete(f"{_PATHS[document['kind']]}/{document['metadata']['name']}")

    cluster.do(apply)
    yield
    cluster.do(remove)


def _flow_pod(settings: KubernetesSettings, command: list[str]) -> Json:
    volumes = [
        {"name": f"v{number}", "hostPath": {"path": volume.host_path}} for number, volume in enumerate(settings.volumes)
    ]
    mounts = [
        {"name": f"v{number}", "mountPath": volume.mount_path, "readOnly": volume.read_only}
        for number, volume in enumerate(settings.volumes)
    ]
    container = {
        "name": "flow", "image": "localhost/busybox:1", "imagePullPolicy": "IfNotPresent", "command": command,
        "env": [{"name": name, "value": value} for name, value in settings.env.items()], "volumeMounts": mounts,
    }  # fmt: skip
    spec = {
        "serviceAccountName": NAMESPACE, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
        "containers": [container], "volumes": volumes,
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a-flow"}, "spec": spec}


def _eventually(cluster: Cluster, path: str, there: bool) -> list[Json]:
    """Objects of ours at `path`, as soon as there are some, or none."""
    found: list[Json] = []
    for _ in range(300):
        found = cluster.do(lambda api: api.items(path, labelSelector="app.kubernetes.io/managed-by=superworkflow"))
        if bool(found) == there:
            return found
        time.sleep(0.2)
    raise AssertionError(f"{path}: {found}")


def test_jobs_of_a_flow_in_a_pod_end_with_it(
    rights: None, cluster: Cluster, settings: Settings, ground: Pods, gate: Path
) -> None:
    """Its account has the shipped rights only; the stages' account has none."""
    chosen = {"namespace": NAMESPACE, "service_account": "superworkflow-stage"}
    pod = _flow_pod(settings(**chosen), ground.caller(ground.call(gate), **chosen))
    pod = cluster.do(lambda api: api.create(PODS, pod))
    try:
        _eventually(cluster, JOBS, there=True)
        (job,) = cluster.do(lambda api: api.items(JOBS))
        (owner,) = job["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Pod", pod["metadata"]["uid"])
        for _ in range(300):
            log = cluster.do(lambda api: _text(api, f"{PODS}/a-flow/log"))
            if '"event": "progress"' in log:
                break
            time.sleep(0.2)
        assert '"event": "progress"' in log
    finally:
        cluster.do(lambda api: api.delete(f"{PODS}/a-flow"))
    _eventually(cluster, JOBS, there=False)
    _eventually(cluster, PODS, there=False)


async def _text(api: KubernetesApi, path: str) -> str:
    """A pod's log so far: empty while the kubelet still reports a container, which may run already, as being made."""
    try:
        return "\n".join([line async for line in api.lines(path)])
    except ApiError as refused:
        if refused.status == 400 and "waiting to start" in str(refused):
            return ""
        raise


def test_store_is_a_bucket(settings: Settings, bucket: str, tmp_path: Path) -> None:
    chosen = settings(
        env_secrets=["s3"], env={"AWS_ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL"], "AWS_DEFAULT_REGION": "us-east-1"}
    )
    (tmp_path / "edges.csv").write_text("a,b\nb,c\nc,a\n")
    placement = Placement(resources=Resources(cpu=0.1, memory=768 << 20))
    graph, walks = f"{bucket}/s/index/{'c' * 32}", f"{bucket}/s/walk/{'d' * 32}"
    launcher, events = KubernetesLauncher(chosen), list[Event]()
    index = StageCall("index", "index", {}, {"edges": f"{tmp_path}/edges.csv"}, graph, placement)
    assert launcher.launch(index, events.append).measured.rows == 3
    walk = StageCall("walk", "walk", {"num_walks": 3}, {"graph": graph}, walks, placement)
    assert launcher.launch(walk, events.append).measured.rows == 9
    dataset = Dataset.open(walks)
    dataset.verify()
    dataset.close()
    assert "a-secret-of-the-cluster" not in str(events)


def test_retry_does_not_wait_for_the_lease_of_its_dead_attempt(ground: Pods, gate: Path, bucket: str) -> None:
    """Killed without a moment to let go, as by the kernel for lack of memory; a lease lasts for a minute."""
    there = {name: os.environ[name] for name in ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION")}
    launcher, killed, events = ground.launcher(env_secrets=["s3"], env=there), set[int](), list[Event]()
    call = replace(ground.call(gate), output=f"{bucket}/s/gated/{'e' * 32}")

    def kill() -> None:
        stages = stage_processes(call)
        if not killed:
            killed.update(process.pid for process in stages)
            for process in stages:
                process.kill()
        elif not killed & {process.pid for process in stages}:
            gate.touch()  # the second attempt is at work

    assert launcher.launch(call, at_work(kill, events)).measured.rows == 2
    assert killed
    assert says(events, "retrying once")

    assert not says(events, "another run is making this dataset")


def test_check_finds_wrong_credentials(settings: Settings, bucket: str, tmp_path: Path) -> None:
    """The server looks at credentials from now on, and knows none."""
    if KIND != "moto":
        pytest.skip("only moto has an API to reset its credentials")
    request = urllib.request.Request(
        f"{os.environ['AWS_ENDPOINT_URL']}/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"}
    )
    assert urllib.request.urlopen(request).status == 200
    changed = {"env": {name: os.environ[name] for name in ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION")}}
    profile = _profile(tmp_path, settings, env_secrets=["s3"], **changed)
    ok, detail = _checks("--profile", profile, "--store", f"{bucket}/s", expect=1)["image: localhost/busybox:1"]
    assert ok is False
    assert "the store cannot be written" in detail
    assert "Access Key" in detail
