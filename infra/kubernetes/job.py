"""From the call of a stage to the manifest of its Job."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.errors import UserError
from infra.kubernetes.diagnosis import CONTAINER
from infra.kubernetes.settings import KubernetesSettings
from infra.launch.base import StageCall
from infra.resources import Resources

PREFIX = "superworkflow/"
MANAGED_BY = {"app.kubernetes.io/managed-by": "superworkflow"}
TTL_SECONDS = 120
"""For so long at least an ended Job stays for the launcher to read how it ended."""


@dataclass(frozen=True)
class Owner:
    """The pod in which the flow itself runs; its Jobs end with it."""

    name: str
    uid: str


def job_manifest(
    call: StageCall,
    settings: KubernetesSettings,
    resources: Resources,
    *,
    launcher: str,
    attempt: int = 1,
    owner: Owner | None = None,
) -> dict[str, Any]:
    """The `batch/v1` Job of one attempt of one stage.

    Args:
        call: what to run.
        settings: the profile's `kubernetes` part.
        resources: of this attempt, which may have more memory than the profile says.
        launcher: id of the launcher that follows the Job.
        attempt: number of the attempt, from 1.
        owner: pod that owns the Job.

    Raises:
        UserError: no image is named for this kind of stage.
    """
    labels = job_labels(call, launcher, attempt) | settings.labels
    metadata: dict[str, Any] = {"name": _name(call), "labels": labels}
    if owner is not None:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid,
             "controller": False, "blockOwnerDeletion": False}
        ]  # fmt: skip
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "activeDeadlineSeconds": settings.deadline_s,
            # The launcher removes what need not be kept; this is for when it no longer can.
            "ttlSecondsAfterFinished": max(settings.ttl_s, TTL_SECONDS),
            "template": {"metadata": {"labels": labels}, "spec": _pod(call, settings, resources)},
        },
    }


def job_labels(call: StageCall, launcher: str, attempt: int) -> dict[str, str]:
    """Labels by which a Job is found again."""
    own = {
        "launcher": launcher,
        "stage": call.stage,
        "node": call.node,
        "attempt": str(attempt),
        "digest": call.output.rsplit("/", 1)[-1],
        **call.labels,
    }
    return MANAGED_BY | {PREFIX + name: label_value(value) for name, value in own.items()}


def label_value(text: str) -> str:
    """The nearest text that a label may hold: at most 63 letters, digits, dashes, underscores and dots."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:63].strip("-_.")


def stage_arguments(call: StageCall, resources: Resources) -> list[str]:
    """Arguments of the command line that run the stage and report in events."""
    arguments = ["stage", call.stage, "--params-json", json.dumps(dict(call.params))]
    for name, uri in call.inputs.items():
        arguments += ["--input", f"{name}={uri}"]
    arguments += ["--output", call.output, "--resources-json", resources.model_dump_json()]
    return [*arguments, "--engine", call.placement.engine, "--events"]


def _name(call: StageCall) -> str:
    stem = re.sub(r"[^a-z0-9]+", "-", call.node.lower())[:30].strip("-")
    return f"sw-{stem}-{uuid.uuid4().hex[:10]}"


def _pod(call: StageCall, settings: KubernetesSettings, resources: Resources) -> dict[str, Any]:
    gpu = resources.gpu
    volumes, mounts = _volumes(settings, resources)
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": settings.grace_s,
        # The stage would be process 1 otherwise, which the kernel lets ignore the signal to end.
        "shareProcessNamespace": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": settings.user,
            "runAsGroup": settings.user,
            "fsGroup": settings.user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(call, settings, resources, mounts)],
        "volumes": volumes,
    }
    selector = settings.node_selector | (settings.gpu_selectors.get(gpu.type or "", {}) if gpu.count else {})
    tolerations = [toleration.manifest() for toleration in settings.tolerations]
    if gpu.count:
        tolerations.append({"key": settings.gpu_resource, "operator": "Exists", "effect": "NoSchedule"})
    optional = {
        "serviceAccountName": settings.service_account,
        "imagePullSecrets": [{"name": settings.image_pull_secret}] if settings.image_pull_secret else None,
        "nodeSelector": selector,
        "tolerations": tolerations,
    }
    return spec | {key: value for key, value in optional.items() if value}


def _container(
    call: StageCall, settings: KubernetesSettings, resources: Resources, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": stage_image(call, settings),
        "imagePullPolicy": settings.image_pull_policy,
        "args": stage_arguments(call, resources),
        "env": [{"name": name, "value": value} for name, value in _environment(settings, resources).items()],
        "resources": _quantities(settings, resources),
        "volumeMounts": mounts,
        # With the pod's status come the last lines of its log, among them the stage's own error.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if settings.command:
        container["command"] = settings.command
    if settings.env_secrets:
        container["envFrom"] = [{"secretRef": {"name": name}} for name in settings.env_secrets]
    return container


def stage_image(call: StageCall, settings: KubernetesSettings) -> str:
    """Image of the stage: its placement's own, else the one for its kind.

    Raises:
        UserError: neither is named.
    """
    image = call.placement.image or settings.image_for(call.image_kind, call.placement.resources.gpu.count)
    if image is None:
        raise UserError(
            f"no image for stage {call.node}", where="profile: kubernetes.images",
            remedy=f"Name one: `kubernetes: {{images: {{{call.image_kind}: REGISTRY/NAME:TAG}}}}`",
        )  # fmt: skip
    return image


def _environment(settings: KubernetesSettings, resources: Resources) -> Mapping[str, str]:
    threads = str(resources.threads)
    return {
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "NUMBA_CACHE_DIR": "/tmp/numba",
        "MPLCONFIGDIR": "/tmp/matplotlib",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        # The figures under /sys/fs/cgroup are this container's, not a whole machine's.
        "SUPERWORKFLOW_IN_CONTAINER": "1",
        **settings.env,
    }


def _quantities(settings: KubernetesSettings, resources: Resources) -> dict[str, dict[str, str]]:
    """Requests and limits; memory is never lent beyond what is asked for, processors may be."""
    memory = str(resources.memory)
    requests = {"cpu": f"{max(1, round(resources.cpu * 1000))}m", "memory": memory}
    limits = {"memory": memory}
    if resources.ephemeral_storage:
        requests["ephemeral-storage"] = limits["ephemeral-storage"] = str(resources.ephemeral_storage)
    if resources.gpu.count:
        requests[settings.gpu_resource] = limits[settings.gpu_resource] = str(resources.gpu.count)
    return {"requests": requests, "limits": limits}


def _volumes(settings: KubernetesSettings, resources: Resources) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    scratch = {"sizeLimit": str(resources.ephemeral_storage)} if resources.ephemeral_storage else {}
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": scratch}]
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]
    if resources.shm:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(resources.shm)}})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    for number, volume in enumerate(settings.volumes):
        name = f"volume-{number}"
        source = (
            {"hostPath": {"path": volume.host_path}}
            if volume.host_path
            else {"persistentVolumeClaim": {"claimName": volume.claim}}
        )
        volumes.append({"name": name, **source})
        mounts.append({"name": name, "mountPath": volume.mount_path, "readOnly": volume.read_only})
    return volumes, mounts
