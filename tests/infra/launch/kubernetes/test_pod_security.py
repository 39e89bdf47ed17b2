"""Every pod that we make keeps to the restricted Pod Security Standard, which the shipped namespace enforces.

That the cluster itself admits them is not seen here: the tests' cluster is older than this admission.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.utilities.templating import apply_values

import superworkflow.infra
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.profile import Placement, load_profile
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.launch.kubernetes.flow_pod import flow_pod_variables, pool_template
from superworkflow.infra.launch.kubernetes.job_manifest import OwnerPod, job_manifest
from superworkflow.infra.launch.kubernetes.preflight import probe_manifest
from tests.infra.launch.kubernetes.pod_security import violations

Json = dict[str, Any]

RICH = KubernetesSettings.model_validate(
    {
        "service_account": "stages", "spark_service_account": "drivers", "image_pull_secrets": ["registry"],
        "images": {"cpu": "r/cpu:1", "torch-cuda": "r/cuda:1", "spark": "r/spark:1", "flow": "r/flow:1"},
        "env_secrets": ["s3"], "volumes": [{"mount_path": "/m", "claim": "m"}], "command": ["python"],
        "tolerations": [{"key": "graphs"}], "user": 1234,
    }
)  # fmt: skip
SIZES = {
    "cpu": {"cpu": 1, "memory": "1Gi"},
    "torch": {"cpu": 1, "memory": "1Gi", "gpu": {"count": 1}, "shm": "1Gi", "ephemeral_storage": "1Gi"},
    "spark": {"cpu": 1, "memory": "1Gi", "executors": {"count": 2, "cpu": 1, "memory": "1Gi"}},
}


def _job(settings: KubernetesSettings, kind: str) -> Json:
    resources = Resources.model_validate(SIZES[kind])
    placement = Placement(engine="spark" if kind == "spark" else "in-process", resources=resources)
    call = StageCall("walk", "walk", {}, {}, "s3://b/walk/0123", placement, {}, kind)
    return job_manifest(call, settings, resources, launcher="l", owner=OwnerPod("flow", "u"))


def _pods(settings: KubernetesSettings) -> dict[str, Json]:
    """Specs of all pods that a profile with these settings leads to, by what they are."""
    jobs = {f"stage: {kind}": _job(settings, kind) for kind in SIZES}
    jobs["probe"] = probe_manifest(settings, "r/cpu:1", "s3://b")
    pods = {name: job["spec"]["template"]["spec"] for name, job in jobs.items()}
    annotations = jobs["stage: spark"]["spec"]["template"]["metadata"]["annotations"]
    pods["executor"] = json.loads(annotations["superworkflow/executor-pod"])["spec"]
    pool = pool_template()
    properties = pool["variables"]["properties"]
    defaults = {name: each["default"] for name, each in properties.items() if "default" in each}
    configuration = apply_values(pool["job_configuration"], {**defaults, **flow_pod_variables(settings)})
    pods["flow"] = configuration["job_manifest"]["spec"]["template"]["spec"]
    return pods


@pytest.mark.parametrize("which", ["rich", "shipped"])
def test_every_pod_is_admitted(which: str) -> None:
    settings = RICH if which == "rich" else load_profile("kubernetes").kubernetes
    pods = _pods(settings)
    assert len(pods) == 6
    assert {name: found for name, pod in pods.items() if (found := violations(pod))} == {}


def test_folders_of_the_node_are_what_is_refused() -> None:
    volumes = {"volumes": [{"mount_path": "/data", "host_path": "/srv"}]}
    settings = KubernetesSettings.model_validate(RICH.model_dump() | volumes)
    assert {tuple(violations(pod)) for pod in _pods(settings).values()} == {("volume volume-0: hostPath",)}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("hostNetwork",), True),
        (("hostPID",), True),
        (("securityContext", "runAsUser"), 0),
        (("securityContext", "seccompProfile"), {"type": "Unconfined"}),
        (("securityContext", "seccompProfile"), None),
        (("securityContext", "sysctls"), [{"name": "kernel.msgmax", "value": "1"}]),
        (("securityContext", "appArmorProfile"), {"type": "Unconfined"}),
        (("volumes",), [{"name": "v", "hostPath": {"path": "/"}}]),
        (("containers", 0, "securityContext", "allowPrivilegeEscalation"), None),
        (("containers", 0, "securityContext", "privileged"), True),
        (("containers", 0, "securityContext", "capabilities"), {"drop": ["NET_RAW"]}),
        (("containers", 0, "securityContext", "capabilities"), {"drop": ["ALL"], "add": ["SYS_PTRACE"]}),
        (("containers", 0, "securityContext", "runAsNonRoot"), False),
        (("containers", 0, "securityContext", "runAsUser"), 0),
        (("containers", 0, "securityContext", "seLinuxOptions"), {"type": "spc_t"}),
        (("containers", 0, "ports"), [{"containerPort": 1, "hostPort": 1}]),
        (("initContainers",), [{"name": "first"}]),
    ],
)
def test_the_check_sees_each_fault(path: tuple[Any, ...], value: Any) -> None:
    pod = copy.deepcopy(_pods(RICH)["stage: cpu"])
    place: Any = pod
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert violations(pod)


def test_the_shipped_namespace_enforces_it() -> None:
    documents = yaml.safe_load_all((Path(superworkflow.infra.__file__).parent / "kubernetes" / "rbac.yaml").read_text())
    (namespace,) = [each for each in documents if each["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
