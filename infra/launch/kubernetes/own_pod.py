"""The pod in which this process runs, if it does."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from superworkflow.infra.launch.kubernetes.api import ApiError, KubernetesApi
from superworkflow.infra.launch.kubernetes.job_manifest import OwnerPod

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


async def own_pod(api: KubernetesApi) -> OwnerPod | None:
    """The flow's own pod, which then owns its Jobs; None outside of a cluster, or in another namespace than theirs."""
    if "KUBERNETES_SERVICE_HOST" not in os.environ or not _NAMESPACE.exists():
        return None
    if _NAMESPACE.read_text().strip() != api.namespace:
        return None  # owners of another namespace do not exist for Kubernetes, which would delete the Job
    name = os.environ.get("POD_NAME") or socket.gethostname()
    if uid := os.environ.get("POD_UID"):
        return OwnerPod(name, uid)
    try:
        pod = await api.get(f"{api.pods}/{name}")
    except ApiError:
        return None
    return OwnerPod(name, pod["metadata"]["uid"]) if pod else None
