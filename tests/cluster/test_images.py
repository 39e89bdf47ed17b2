"""The project's own images, built with Docker and run by a cluster that keeps its datasets in a bucket.

`tests/docker.py` says how Docker is found. `SUPERWORKFLOW_TEST_IMPORT` names a command that reads an
archive of images and shows them to the nodes, such as `kind load image-archive /dev/stdin`; the cluster's containerd
is asked when its socket is in the folder of the kubeconfig.
"""

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from superworkflow.infra.launch.kubernetes.api import Json
from superworkflow.infra.storage.dataset import Dataset
from tests import warm
from tests.cluster.conftest import NAMESPACE, ROOT, SPARK_ACCOUNT, Cluster
from tests.docker import DOCKER, build, docker
from tests.flows.command_line import SMALL, CommandLine

pytestmark = [pytest.mark.timeout(1500), pytest.mark.slow]
KINDS = ("cpu", "torch-cpu", "spark")
KIND_OF = {
    "index": "cpu", "label": "cpu", "walk": "spark", "prepare": "cpu", "embed": "torch-cpu", "evaluate": "cpu",
    "publish": "cpu",
}  # fmt: skip
"""Image of each stage of a run without link prediction."""
NOT_IN_A_STAGE = {"prefect", "mlflow", "mlflow-skinny", "optuna", "kubernetes-asyncio"}


@pytest.fixture(scope="module")
def images(cluster: Cluster) -> dict[str, str]:
    """Name of the image of each kind, built here and shown to the cluster."""
    names = build(*KINDS)
    archive = subprocess.Popen([DOCKER, "save", *names.values()], stdout=subprocess.PIPE)
    imported = subprocess.run(_import_command(cluster), stdin=archive.stdout, capture_output=True, text=True)
    assert archive.wait() == 0
    assert imported.returncode == 0, imported.stderr
    return names


def _import_command(cluster: Cluster) -> list[str]:
    if given := os.environ.get("SUPERWORKFLOW_TEST_IMPORT"):
        return shlex.split(given)
    socket = cluster.kubeconfig.with_name("run") / "containerd.sock"
    if not socket.exists():
        pytest.skip("SUPERWORKFLOW_TEST_IMPORT says how the cluster gets images")
    return ["ctr", "-a", str(socket), "-n", "k8s.io", "images", "import", "-"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_holds_what_its_stages_need_and_no_more(images: dict[str, str], kind: str) -> None:
    listing = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()), sep='\\n')"
    listed = docker("run", "--rm", "--network", "none", "--entrypoint", "python", images[kind], "-c", listing)
    assert listed.returncode == 0, listed.stderr
    found = {_normal(line) for line in listed.stdout.splitlines()}
    files = [ROOT / "infra" / "images" / f"{name}.txt" for name in ("base", kind)]
    lines = [line for file in files for line in file.read_text().splitlines()]
    pinned = {_normal(line) for line in lines if line and line[0] not in "#-"}
    assert pinned <= found
    names = {line.split("==")[0] for line in found}
    assert not names & NOT_IN_A_STAGE
    assert ("pyspark" in names) == (kind == "spark")
    assert ("torch" in names) == (kind == "torch-cpu")
    assert {line.split("==")[0] for line in found - pinned} <= {"pip", "setuptools", "wheel"}  # the base image's own
    assert docker("image", "inspect", "--format", "{{.Config.User}}", images[kind]).stdout.strip() == "1000"


def _normal(requirement: str) -> str:
    name, _, version = requirement.partition("==")
    return f"{re.sub('[-_.]+', '-', name).lower()}=={version}"


@pytest.fixture
def profile(images: dict[str, str], bucket: str, account: None, tmp_path: Path) -> Path:
    """Every stage in the image of its kind, walks on Spark; nothing of this machine is seen by pods."""
    kubernetes = {
        "namespace": NAMESPACE, "spark_service_account": SPARK_ACCOUNT, "env_secrets": ["s3"], "ttl_s": 0,
        "images": {"cpu": images["cpu"], "torch": images["torch-cpu"], "spark": images["spark"]},
        "env": {name: os.environ[name] for name in ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION")},
    }  # fmt: skip
    executors = {"count": 1, "cpu": 0.25, "memory": "832Mi"}
    walk = {"engine": "spark", "resources": {"cpu": 0.25, "memory": "1Gi", "executors": executors}}
    default = {"resources": {"cpu": 0.25, "memory": "1Gi"}}
    values = {"launcher": "kubernetes", "concurrency": 2, "kubernetes": kubernetes, "default": default,
              "stages": {"walk": walk}}  # fmt: skip
    path = tmp_path / "images.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def _pods_while(process: subprocess.Popen[str], cluster: Cluster) -> Iterator[Json]:
    """Pods as they are seen until the process ends."""
    while process.poll() is None:
        yield from cluster.pods()
        time.sleep(0.5)


def test_a_run_on_images_is_as_on_this_machine(
    images: dict[str, str], profile: Path, bucket: str, graph_files: tuple[Path, Path], prefect_api: str,
    cluster: Cluster, tmp_path: Path,
) -> None:  # fmt: skip
    environment = {"PREFECT_API_URL": prefect_api, "MLFLOW_TRACKING_URI": ""}
    here = tmp_path / "here.yaml"
    here.write_text("default: {resources: {cpu: 0.25, memory: 1Gi}}")
    chosen = [*SMALL, "node2vec.link_prediction=false"]
    command = CommandLine(tmp_path / "store", *graph_files, environment, chosen)
    local = command("run", "--json", "--profile", str(here)).document

    arguments = ["run", "node2vec", "--edges", str(graph_files[0]), "--labels", str(graph_files[1]), "--set", *chosen,
                 "--json", "--profile", str(profile), "--store", f"{bucket}/store"]  # fmt: skip
    with (tmp_path / "err").open("w") as err:
        process = warm.Popen(arguments, env=os.environ | environment, stdout=subprocess.PIPE, stderr=err)
        pods = {pod["metadata"]["name"]: pod for pod in _pods_while(process, cluster)}
        out, _ = process.communicate()
    errors = (tmp_path / "err").read_text()
    assert process.returncode == 0, errors[-4000:]
    there = json.loads(out)

    assert [stage["name"] for stage in there["stages"]] == list(KIND_OF)
    assert there["metrics"] == local["metrics"]
    for one, other in zip(there["stages"], local["stages"], strict=True):
        assert one["digest"] == other["digest"]
        assert "@sha256:" in one["image"]
        assert one["figures"]["container_cpu_s"] > 0
        assert _files(one["output"]) == _files(other["output"])
    ran = {
        pod["metadata"]["labels"]["superworkflow/node"]: pod["spec"]["containers"][0]["image"] for pod in pods.values()
    }
    assert ran == {stage: images[kind] for stage, kind in KIND_OF.items()}
    _assert_confined(list(pods.values()), images)
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in out + errors + json.dumps(list(pods.values()))


def _files(uri: str) -> list[Any]:
    """Name, size and SHA-256 of each file of a dataset whose content was held against them."""
    dataset = Dataset.open(uri)
    dataset.verify()
    dataset.close()
    return dataset.manifest.files


def _assert_confined(pods: list[Json], images: dict[str, str]) -> None:
    """Pods of all images, an executor among them, none of which was user 0 or could write to its root."""
    containers = [(pod, container) for pod in pods for container in pod["spec"]["containers"]]
    assert {container["image"] for _, container in containers} == set(images.values())
    assert sum("superworkflow/member-of" in pod["metadata"]["labels"] for pod in pods) == 1
    for pod, container in containers:
        assert pod["spec"]["securityContext"]["runAsUser"] == 1000
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert not any("hostPath" in volume for volume in pod["spec"]["volumes"])
