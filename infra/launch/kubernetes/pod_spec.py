"""Pod specification shared by stages and their members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.contract.resources import Gpu, Resources

Json = dict[str, Any]

WRITTEN_BY_THE_STAGE = "FallbackToLogsOnError"
"""Policy by which a container without a message keeps the last lines of its log with its status: the stage's error."""


def pod_spec(settings: KubernetesSettings, container: Json, volumes: list[Json], gpu: Gpu = Gpu()) -> Json:  # noqa: B008
    """Spec of a pod with one container: never restarted, no user 0, no rights, placed as the profile says."""
    spec: Json = {
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
        "containers": [container],
        "volumes": volumes,
    }
    tolerations = [toleration.manifest() for toleration in settings.tolerations]
    if gpu.count:
        tolerations.append({"key": settings.gpu_resource, "operator": "Exists", "effect": "NoSchedule"})
    optional = {
        "serviceAccountName": settings.service_account,
        "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
        "nodeSelector": node_selector(settings, gpu),
        "tolerations": tolerations,
        "affinity": settings.affinity,
        "topologySpreadConstraints": settings.topology_spread_constraints,
        "priorityClassName": settings.priority_class,
        "runtimeClassName": settings.runtime_class,
    }
    return spec | {key: value for key, value in optional.items() if value}


def node_selector(settings: KubernetesSettings, gpu: Gpu) -> dict[str, str]:
    """Labels that a node must have."""
    return settings.node_selector | (settings.gpu_selectors.get(gpu.type or "", {}) if gpu.count else {})


def container_spec(settings: KubernetesSettings, env: Mapping[str, str], mounts: list[Json]) -> Json:
    """Base container: no privilege, a read-only root, environment and Secrets of the profile."""
    container: Json = {
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "volumeMounts": mounts,
        "terminationMessagePolicy": WRITTEN_BY_THE_STAGE,
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


def environment(settings: KubernetesSettings, threads: int) -> dict[str, str]:
    """Environment of a container that computes with this number of threads."""
    return {
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "NUMBA_CACHE_DIR": "/tmp/numba",
        "MPLCONFIGDIR": "/tmp/matplotlib",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        # The figures under /sys/fs/cgroup are this container's, not a whole machine's.
        "SUPERWORKFLOW_IN_CONTAINER": "1",
        **settings.env,
    }


def volumes_and_mounts(settings: KubernetesSettings, scratch: int = 0, shm: int = 0) -> tuple[list[Json], list[Json]]:
    """A writable /tmp, /dev/shm of a size, and the profile's volumes; sizes in bytes, 0 for no limit of their own."""
    limit = {"sizeLimit": str(scratch)} if scratch else {}
    volumes: list[Json] = [{"name": "tmp", "emptyDir": limit}]
    mounts: list[Json] = [{"name": "tmp", "mountPath": "/tmp"}]
    if shm:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(shm)}})
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


def cpu_quantity(cpu: float) -> str:
    """A Kubernetes quantity of processors, whole thousandths."""
    return f"{max(1, round(cpu * 1000))}m"


def quantities(settings: KubernetesSettings, resources: Resources) -> dict[str, dict[str, str]]:
    """Requests and limits; the limit of memory is the request, processors have one only where the profile sets it."""
    memory = str(resources.memory)
    requests = {"cpu": cpu_quantity(resources.cpu), "memory": memory}
    limits = {"memory": memory}
    if settings.cpu_limit is not None:
        limits["cpu"] = cpu_quantity(resources.cpu * settings.cpu_limit)
    if resources.ephemeral_storage:
        requests["ephemeral-storage"] = limits["ephemeral-storage"] = str(resources.ephemeral_storage)
    if resources.gpu.count:
        requests[settings.gpu_resource] = limits[settings.gpu_resource] = str(resources.gpu.count)
    return {"requests": requests, "limits": limits}
