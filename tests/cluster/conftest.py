"""A real cluster for all tests of this room, and stages that run in it without an image of their own.

`SUPERWORKFLOW_TEST_CLUSTER` names a script: `SCRIPT FOLDER` starts a cluster whose node is this machine and prints its
kubeconfig's path last; `down.sh FOLDER --purge` in its folder stops it again. `SUPERWORKFLOW_TEST_KUBECONFIG`
names the kubeconfig of one that runs already, `SUPERWORKFLOW_TEST_NAMESPACE` the namespace to work in. Pods see Python
and the project through volumes of the node.
"""

import asyncio
import base64
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlparse

import pytest
import s3fs
import yaml

from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.launch.base import Launcher, StageCall
from superworkflow.infra.launch.kubernetes import ownership
from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.launcher import KubernetesLauncher
from superworkflow.infra.storage.s3 import PatientS3
from tests import launcher_cases
from tests.cluster.spark import java_home, java_volumes
from tests.java import QUICK_JAVA
from tests.launcher_cases import WITH_TOYS, Ground, caller_arguments
from tests.prefect_server import prefect_server
from tests.s3_servers import make_bucket, s3_access

T = TypeVar("T")
gate, pool = launcher_cases.gate, launcher_cases.pool
ROOT = Path(__file__).parent.parent.parent
NAMESPACE = os.environ.get("SUPERWORKFLOW_TEST_NAMESPACE", "superworkflow-tests")
SPARK_ACCOUNT = "superworkflow-spark"
EXPECTED = 100 << 20
"""What the toy stage is said to need; what turned out to be needed is remembered under it."""
SELECTOR = "app.kubernetes.io/managed-by=superworkflow"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.kubernetes)
    # Images are built last, when the tests that run in parallel are over and leave the processor to them.
    items.sort(key=lambda item: item.path.name == "test_images.py")


@dataclass
class Cluster:
    """The cluster, as an administrator sees it."""

    kubeconfig: Path

    def do(self, work: Callable[[KubernetesApi], Coroutine[Any, Any, T]]) -> T:
        async def connected() -> T:
            api = await KubernetesApi.connect(KubernetesSettings(namespace=NAMESPACE))
            try:
                return await work(api)
            finally:
                await api.close()

        return asyncio.run(connected())

    def jobs(self, **labels: str) -> list[Json]:
        selector = ",".join([SELECTOR, *(f"superworkflow/{key}={value}" for key, value in labels.items())])
        return self.do(lambda api: api.items(api.jobs, labelSelector=selector))

    def pods(self) -> list[Json]:
        return self.do(lambda api: api.items(api.pods, labelSelector=SELECTOR))

    def secrets(self) -> list[Json]:
        return self.do(lambda api: api.items(api.secrets, labelSelector=SELECTOR))

    def delete_job(self, name: str) -> None:
        self.do(lambda api: api.delete(f"{api.jobs}/{name}"))

    def process(self, name: str) -> int:
        """Process id of one of the cluster's programs; skips where that is not known."""
        recorded = self.kubeconfig.with_name("pids")
        if not recorded.exists():
            pytest.skip("the cluster's processes are not known here")
        return int(dict(line.split() for line in recorded.read_text().splitlines())[name])


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster; its kubeconfig is in the environment."""
    script, running = os.environ.get("SUPERWORKFLOW_TEST_CLUSTER"), os.environ.get("SUPERWORKFLOW_TEST_KUBECONFIG")
    if not (script or running):
        pytest.skip("SUPERWORKFLOW_TEST_CLUSTER names no script that starts a cluster")
    folder = tmp_path_factory.mktemp("cluster") / "state"
    before = os.environ.get("KUBECONFIG")
    try:
        if not running:
            assert script is not None
            log = folder.with_name("log").open("w")
            started = subprocess.run([script, folder], stdout=subprocess.PIPE, stderr=log, text=True, timeout=400)
            assert started.returncode == 0, folder.with_name("log").read_text()[-3000:]
            running = started.stdout.splitlines()[-1]
        os.environ["KUBECONFIG"] = running
        found = Cluster(Path(running))
        found.do(_make_namespace)
        yield found
        found.do(lambda api: api.delete(f"/api/v1/namespaces/{NAMESPACE}"))
    finally:
        os.environ.pop("KUBECONFIG", None)
        if before is not None:
            os.environ["KUBECONFIG"] = before
        if script and (folder / "pids").exists():
            subprocess.run([Path(script).with_name("down.sh"), folder, "--purge"], timeout=120)


@pytest.fixture(scope="session")
def prefect_api(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """API URL of a Prefect server process that pods reach too."""
    with prefect_server(cluster.do(node_address), tmp_path_factory.mktemp("prefect")) as url:
        yield url


async def _make_namespace(api: KubernetesApi) -> None:
    """The namespace of these tests, with its default account, which pods need."""
    body: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    while await api.get(f"/api/v1/namespaces/{NAMESPACE}") is not None:
        await asyncio.sleep(0.5)  # an earlier run's is still being deleted
    await api.create("/api/v1/namespaces", body)
    while await api.get(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default") is None:
        await asyncio.sleep(0.2)


def left_over(cluster: Cluster, looks: int) -> list[str]:
    """Names of our Jobs, pods and Secrets, as soon as there are none or after this number of looks."""
    left: list[str] = []
    for _ in range(looks):
        left = [each["metadata"]["name"] for each in cluster.jobs() + cluster.pods() + cluster.secrets()]
        if not left:
            break
        time.sleep(0.2)
    return left


@pytest.fixture(autouse=True)
def nothing_left(cluster: Cluster) -> Iterator[None]:
    """No Job, pod and Secret of ours may be left behind."""
    yield
    left = left_over(cluster, 100)
    if left:
        for job in cluster.jobs():
            cluster.delete_job(job["metadata"]["name"])
        raise AssertionError(f"left in the cluster: {left}")


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the node in which pods may write."""
    folder = tmp_path_factory.mktemp("shared")
    for each in (folder, folder / "store", folder / "numba"):
        each.mkdir(exist_ok=True)
        each.chmod(0o777)
    return folder


def open_to_pods(folder: Path | str) -> None:
    """Let pods, whose user is another, write into the same folders."""
    subprocess.run(["chmod", "-R", "a+rwX", folder], check=True)


Settings = Callable[..., KubernetesSettings]


@pytest.fixture(scope="session")
def settings(shared_folder: Path) -> Settings:
    """Settings with which pods run this project's own tree, with the kernels of OpenBLAS that this process runs: the
    bits of NumPy's products depend on them; more by name."""
    blas = {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_")}
    seen = ["/usr", os.path.realpath(sys.base_prefix), sys.prefix, str(ROOT)]
    volumes = [{"mount_path": path, "host_path": path, "read_only": True} for path in seen]
    volumes += [{"mount_path": f"/{n}", "host_path": f"/usr/{n}", "read_only": True} for n in ("lib", "lib64")]
    volumes.append({"mount_path": str(shared_folder), "host_path": str(shared_folder)})
    base = {
        "namespace": NAMESPACE,
        "images": {"cpu": "localhost/busybox:1", "torch": "localhost/busybox:1"},
        "command": [sys.executable, "-P", "-m", "superworkflow"],
        "env": {"PYTHONPATH": WITH_TOYS, "NUMBA_CACHE_DIR": str(shared_folder / "numba"), **blas},
        "volumes": volumes,
        "ttl_s": 0,
    }

    def make(**more: Any) -> KubernetesSettings:
        return KubernetesSettings.model_validate(base | {"env": base["env"] | more.pop("env", {})} | more)

    return make


class Pods(Ground):
    """The cluster, whose node is this machine."""

    ends_with_caller = False
    pays_for_waiting = False

    def __init__(self, cluster: Cluster, settings: Settings, folder: Path):
        super().__init__(folder)
        self.cluster, self._settings = cluster, settings

    def call(self, gate: Path | None = None, memory: int = 512 << 20, **more: Any) -> StageCall:
        return replace(super().call(gate, memory=memory, **more), expected_memory=EXPECTED)

    def launcher(self, **settings: Any) -> KubernetesLauncher:
        return KubernetesLauncher(self._settings(**settings))

    def caller(self, call: StageCall, **settings: Any) -> list[str]:
        return kubernetes_caller(call, self._settings(**settings))

    def running(self, call: StageCall) -> set[str]:
        jobs = self.cluster.jobs()
        return {job["metadata"]["uid"] for job in jobs if not (job.get("status") or {}).get("conditions")}

    def watch(self, call: StageCall, launcher: Launcher) -> None:
        """Until it would have been taken for dead, had it not shown that it lives."""
        assert isinstance(launcher, KubernetesLauncher)
        beats = set[str]()
        while len(beats) * ownership.RENEW_SECONDS <= ownership.DEAD_SECONDS + 1:
            (job,) = self.cluster.jobs()
            assert ownership.launcher_of(job)[0] == launcher.id
            beats.add(job["metadata"]["annotations"][ownership.HEARTBEAT])
            time.sleep(0.1)


def kubernetes_caller(call: StageCall, settings: KubernetesSettings) -> list[str]:
    """Command line of a process that launches a call as a Job; see `caller_arguments`."""
    return caller_arguments(call, {"launcher": "kubernetes", "kubernetes": settings.model_dump()})


@pytest.fixture
def ground(cluster: Cluster, settings: Settings, shared_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Pods:
    """The cluster and a store of its own, with launchers that show more often than usual that they live."""
    for name, seconds in (("RENEW", 0.5), ("LOOK", 0.5), ("DEAD", 6.0)):
        monkeypatch.setattr(ownership, f"{name}_SECONDS", seconds)
    folder = shared_folder / uuid.uuid4().hex
    for each in (folder, folder / "store"):
        each.mkdir()
        each.chmod(0o777)
    return Pods(cluster, settings, folder)


@pytest.fixture(scope="module")
def account(cluster: Cluster) -> Iterator[None]:
    """The account of drivers with the shipped rights, in the namespace of the tests."""
    text = (ROOT / "infra" / "kubernetes" / "rbac.yaml").read_text()
    text = text.replace("namespace: superworkflow\n", f"namespace: {NAMESPACE}\n")
    text = text.replace("namespace: superworkflow}", f"namespace: {NAMESPACE}}}")
    documents = [each for each in yaml.safe_load_all(text) if each["metadata"]["name"] == SPARK_ACCOUNT]
    group = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    paths = {
        "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
        "Role": f"{group}/roles", "RoleBinding": f"{group}/rolebindings",
    }  # fmt: skip

    async def apply(api: KubernetesApi) -> None:
        for document in documents:
            await api.create(paths[document["kind"]], document)

    async def remove(api: KubernetesApi) -> None:
        for document in documents:
            await api.delete(f"{paths[document['kind']]}/{SPARK_ACCOUNT}")

    assert {document["kind"] for document in documents} == set(paths)
    cluster.do(apply)
    yield
    cluster.do(remove)


@pytest.fixture
def spark(settings: Settings, account: None) -> Settings:
    """Settings for stages on Spark, the tests' own among them."""

    def make(**more: Any) -> KubernetesSettings:
        command = [sys.executable, "-P", "-m", "tests.cluster.with_more_tasks"]
        images = dict.fromkeys(("spark", "cpu"), "localhost/busybox:1")
        base = settings()
        # Java in drivers and executors reads its options there.
        env = {"JAVA_HOME": str(java_home()), "PATH": "/usr/bin:/bin", "JDK_JAVA_OPTIONS": QUICK_JAVA}
        volumes = [volume.model_dump() for volume in base.volumes] + java_volumes()
        given = {"spark_service_account": SPARK_ACCOUNT, "command": command, "images": images, "volumes": volumes}
        return settings(**{**given, **more}, env=env)

    return make


@pytest.fixture
def quota(cluster: Cluster) -> Iterator[Callable[[dict[str, str]], None]]:
    """A quota of the namespace, until the test ends."""
    path = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"

    def limit(hard: dict[str, str]) -> None:
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
        cluster.do(lambda api: api.create(path, body))
        until = time.monotonic() + 60
        while time.monotonic() < until:  # pods are refused until the controller has counted those that are there
            seen = cluster.do(lambda api: api.get(f"{path}/q")) or {}
            if (seen.get("status") or {}).get("hard") == hard:
                return
            time.sleep(0.2)

    yield limit
    cluster.do(lambda api: api.delete(f"{path}/q"))


async def node_address(api: KubernetesApi) -> str:
    """Address of this machine that pods reach."""
    return str(urlparse(api.server).hostname)


def _forget_servers() -> None:
    s3fs.S3FileSystem.clear_instance_cache()
    PatientS3.clear_instance_cache()


@pytest.fixture
def bucket(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URI of a bucket on an S3 server that pods reach; its credentials are in a Secret."""
    (folder := tmp_path / "s3-server").mkdir()
    with s3_access(folder, cluster.do(node_address)) as given:
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        secret = {name: given[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        data = {name: base64.b64encode(value.encode()).decode() for name, value in secret.items()}
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s3"}, "data": data}
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets"
        _forget_servers()
        try:
            make_bucket("cluster-tests")
            cluster.do(lambda api: api.create(path, body))
            yield "s3://cluster-tests"
        finally:
            cluster.do(lambda api: api.delete(f"{path}/s3"))
            _forget_servers()
