"""Stages through credentials that Prefect keeps, and on a store in a volume claim."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.storage.dataset import Dataset
from tests.cluster.conftest import NAMESPACE, Cluster, Pods, Settings
from tests.launcher_cases import WITH_TOYS, ignore

REGISTER = """
import sys
from prefect_kubernetes.credentials import KubernetesClusterConfig, KubernetesCredentials
config = KubernetesClusterConfig.from_file(sys.argv[1])
KubernetesCredentials(cluster_config=config).save("the-cluster", overwrite=True)
"""


def _ended(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "PYTHONPATH": WITH_TOYS, **environment}
    return subprocess.run(arguments, capture_output=True, text=True, timeout=200, env=given)


def test_credentials_of_a_block(ground: Pods, cluster: Cluster, prefect_api: str, tmp_path: Path) -> None:
    """The launcher's own process has no kubeconfig: the block in Prefect's server is the only way to the cluster."""
    nowhere = {"PREFECT_API_URL": prefect_api, "KUBECONFIG": f"{tmp_path}/none"}
    saved = _ended(sys.executable, "-P", "-c", REGISTER, str(cluster.kubeconfig), PREFECT_API_URL=prefect_api)
    assert saved.returncode == 0, saved.stderr
    call = ground.call()
    done = _ended(*ground.caller(call, credentials="the-cluster"), **nowhere)
    assert done.returncode == 0, done.stderr
    assert Dataset.open(call.output).manifest.rows == 2
    wrong = _ended(*ground.caller(call, credentials="none-such"), **nowhere)
    assert wrong.returncode != 0
    assert "profile: kubernetes.credentials" in wrong.stderr


@pytest.fixture
def claim(cluster: Cluster, shared_folder: Path) -> Iterator[str]:
    """A claim that is bound by hand to a volume: the shared folder of the node."""
    name = f"{NAMESPACE}-store"
    size = {"storage": "1Gi"}
    common: Json = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume: Json = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {**common, "capacity": size, "hostPath": {"path": str(shared_folder)},
                 "persistentVolumeReclaimPolicy": "Retain"},
    }  # fmt: skip
    claimed: Json = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {**common, "volumeName": name, "resources": {"requests": size}},
    }  # fmt: skip
    volumes, claims = "/api/v1/persistentvolumes", f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"

    async def make(api: KubernetesApi) -> None:
        await api.create(volumes, volume)
        await api.create(claims, claimed)

    async def remove(api: KubernetesApi) -> None:
        await api.delete(f"{claims}/{name}")
        await api.delete(f"{volumes}/{name}")

    cluster.do(make)
    yield name
    cluster.do(remove)


def test_store_in_a_volume_claim(settings: Settings, ground: Pods, claim: str, shared_folder: Path) -> None:
    volumes = [each.model_dump(exclude_none=True) for each in settings().volumes]
    for volume in volumes:
        if volume["mount_path"] == str(shared_folder):
            del volume["host_path"]
            volume["claim"] = claim
    call = ground.call()
    assert ground.launcher(volumes=volumes).launch(call, ignore).measured.rows == 2
    Dataset.open(call.output).verify()
