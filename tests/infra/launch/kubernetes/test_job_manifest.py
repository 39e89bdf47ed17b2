"""Manifests of Jobs: what a call becomes, held against the current schema."""

import argparse
import json
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest

from superworkflow.__main__ import main
from superworkflow.commands import stage
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.profile import Placement, load_profile
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.launch.kubernetes.job_manifest import OwnerPod, job_manifest, label_value

DIGEST = "0123456789abcdef0123456789abcdef"
ALL = KubernetesSettings.model_validate(
    {
        "namespace": "graphs", "service_account": "stages", "images": {"cpu": "r/cpu:1", "torch-cuda": "r/cuda:1"},
        "image_pull_secrets": ["registry", "mirror"], "env": {"AWS_ENDPOINT_URL": "http://s3"}, "env_secrets": ["s3"],
        "volumes": [
            {"mount_path": "/data", "host_path": "/srv"}, {"mount_path": "/m", "claim": "m", "read_only": True},
        ],
        "node_selector": {"pool": "graphs"}, "gpu_selectors": {"T4": {"accelerator": "nvidia-t4"}},
        "tolerations": [{"key": "graphs", "effect": "NoSchedule"}], "labels": {"team": "a"}, "deadline_s": 77,
        "annotations": {"sidecar.istio.io/inject": "false"}, "priority_class": "batch", "runtime_class": "nvidia",
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "spot", "operator": "DoesNotExist"}]}]}}},
        "topology_spread_constraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"team": "a"}}}], "cpu_limit": 2,
        "ttl_s": 300, "grace_s": 3,
    }
)  # fmt: skip
GPU = Resources.model_validate(
    {"cpu": 1.5, "memory": "2Gi", "gpu": {"count": 2, "type": "T4"}, "ephemeral_storage": "3Gi", "shm": "1Gi"}
)


def _call(resources: Resources, kind: str = "torch", image: str | None = None) -> StageCall:
    return StageCall(
        "holdout-embed", "embed", {"p": 0.5}, {"graph": "s3://b/index/x"}, f"s3://b/embed/{DIGEST}",
        Placement(resources=resources, image=image), {"flow-run": "run 1"}, kind,
    )  # fmt: skip


def _manifest(settings: KubernetesSettings = ALL, resources: Resources = GPU, **more: Any) -> dict[str, Any]:
    return job_manifest(
        _call(resources, **more), settings, resources, launcher="l1", attempt=2, owner=OwnerPod("flow", "u-1")
    )


@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
@pytest.mark.parametrize("settings", [ALL, KubernetesSettings(images={"torch": "t:1"})], ids=["all", "least"])
def test_fits_the_schema(settings: KubernetesSettings, version: str) -> None:
    resources = GPU if settings is ALL else Resources(cpu=1)
    kubernetes_validate.validate(_manifest(settings, resources), version, strict=True)


def test_schema_check_sees_faults() -> None:
    manifest = _manifest()
    manifest["spec"]["backofLimit"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_labels_owner_and_limits_in_time() -> None:
    job = _manifest()
    labels = job["metadata"]["labels"]
    assert labels == job["spec"]["template"]["metadata"]["labels"]
    assert labels.items() >= {
        "app.kubernetes.io/managed-by": "superworkflow", "superworkflow/digest": DIGEST, "superworkflow/attempt": "2",
        "superworkflow/stage": "embed", "superworkflow/node": "holdout-embed", "superworkflow/flow-run": "run-1",
        "superworkflow/launcher": "l1", "team": "a",
    }.items()  # fmt: skip
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["name"], owner["uid"]) == ("flow", "u-1")
    spec = job["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (0, 77, 300)
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 3


def test_planned_digest_reaches_the_stage() -> None:
    call = replace(_call(GPU), digest=DIGEST)
    arguments = call.arguments(GPU)
    assert arguments[arguments.index("--digest") + 1] == DIGEST
    assert "--digest" not in _call(GPU).arguments(GPU)


def test_resources() -> None:
    pod = _manifest()["spec"]["template"]["spec"]
    given = pod["containers"][0]["resources"]
    assert given["requests"] == {
        "cpu": "1500m", "memory": str(2 << 30), "ephemeral-storage": str(3 << 30), "nvidia.com/gpu": "2",
    }  # fmt: skip
    assert given["limits"] == given["requests"] | {"cpu": "3000m"}
    without = _manifest(ALL.model_copy(update={"cpu_limit": None}))["spec"]["template"]["spec"]
    limits = without["containers"][0]["resources"]["limits"]
    assert limits == {key: value for key, value in given["requests"].items() if key != "cpu"}
    assert [each["name"] for each in pod["imagePullSecrets"]] == ["registry", "mirror"]
    assert (pod["priorityClassName"], pod["runtimeClassName"]) == ("batch", "nvidia")
    assert pod["affinity"] == ALL.affinity
    assert pod["topologySpreadConstraints"] == ALL.topology_spread_constraints
    assert pod["nodeSelector"] == {"pool": "graphs", "accelerator": "nvidia-t4"}
    assert {toleration["key"] for toleration in pod["tolerations"]} == {"graphs", "nvidia.com/gpu"}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    assert volumes[mounts["/dev/shm"]]["emptyDir"] == {"medium": "Memory", "sizeLimit": str(1 << 30)}
    assert volumes[mounts["/tmp"]]["emptyDir"] == {"sizeLimit": str(3 << 30)}
    assert volumes[mounts["/data"]]["hostPath"] == {"path": "/srv"}
    assert volumes[mounts["/m"]]["persistentVolumeClaim"] == {"claimName": "m"}


def test_annotations_are_those_of_the_job_and_its_pod() -> None:
    job = _manifest()
    of_pod = job["spec"]["template"]["metadata"]["annotations"]
    assert job["metadata"]["annotations"] == of_pod == ALL.annotations
    job["metadata"]["annotations"]["superworkflow/heartbeat"] = "now"
    assert of_pod == ALL.annotations == {"sidecar.istio.io/inject": "false"}
    assert "annotations" not in _manifest(KubernetesSettings(images={"torch": "t:1"}), Resources(cpu=1))["metadata"]


def test_no_privilege_and_no_secret_values() -> None:
    pod = _manifest()["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] != 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert container["envFrom"] == [{"secretRef": {"name": "s3"}}]
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    assert environment["HOME"] == "/tmp"
    assert environment["NUMBA_CACHE_DIR"].startswith("/tmp/")


def test_arguments_are_those_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    (container,) = _manifest(kind="torch", image="mine:1")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "mine:1"
    arguments = container["args"]
    assert json.loads(arguments[arguments.index("--params-json") + 1]) == {"p": 0.5}
    assert Resources.model_validate_json(arguments[arguments.index("--resources-json") + 1]) == GPU
    assert arguments[arguments.index("--engine") + 1] == "in-process"
    with pytest.raises(SystemExit) as ended:
        main(arguments)  # understood: what it says is about the parameter, and as an event
    assert ended.value.code == 2
    assert "embed.p: unknown parameter" in capsys.readouterr().out


def test_lease_is_held_under_the_name_of_the_job() -> None:
    """So that the next attempt need not wait for the lease of one that is known to be dead."""
    job = job_manifest(_call(GPU), ALL, GPU, launcher="l1", supersedes=["sw-embed-1", "sw-embed-2"])
    (container,) = job["spec"]["template"]["spec"]["containers"]
    parser = argparse.ArgumentParser()
    stage.add_arguments(parser, [])
    options = parser.parse_args(container["args"][1:])
    assert options.holder == job["metadata"]["name"]
    assert options.supersedes == ["sw-embed-1", "sw-embed-2"]


def test_image_by_kind() -> None:
    assert ALL.image_for("torch", 1) == "r/cuda:1"
    assert ALL.image_for("cpu", 0) == "r/cpu:1"
    with pytest.raises(UserError, match=r"no image for stage holdout-embed.*torch: REGISTRY"):
        _manifest(resources=Resources(cpu=1))


@pytest.mark.parametrize(("text", "value"), [("a b/c", "a-b-c"), ("x" * 80, "x" * 63), ("-x-", "x"), ("é", "")])
def test_label_values(text: str, value: str) -> None:
    assert label_value(text) == value


def test_shipped_profile() -> None:
    profile = load_profile("kubernetes")
    assert profile.launcher == "kubernetes"
    assert {"cpu", "torch", "torch-cuda"} <= set(profile.kubernetes.images)


@pytest.mark.parametrize("volume", [{"mount_path": "/x"}, {"mount_path": "/x", "host_path": "/y", "claim": "z"}])
def test_volume_is_of_one_kind(volume: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="either host_path or claim"):
        KubernetesSettings.model_validate({"volumes": [volume]})


def test_covers() -> None:
    assert ALL.covers("/data/store")
    assert ALL.covers("/data")
    assert not ALL.covers("/database")
