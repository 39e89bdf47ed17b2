"""Jobs of stages in the cluster, of all launchers: find and remove them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.job_manifest import MANAGED_BY, PREFIX, ours
from superworkflow.infra.launch.kubernetes.pod_group import remove_members

T = TypeVar("T")


@dataclass(frozen=True)
class FoundJob:
    """One Job of ours."""

    name: str
    node: str
    stage: str
    flow_run: str
    digest: str
    attempt: str
    state: Literal["waiting", "running", "succeeded", "failed"]
    created: str


def with_cluster(settings: KubernetesSettings, work: Callable[[KubernetesApi], Coroutine[Any, Any, T]]) -> T:
    """Run `work` with a connection of its own."""

    async def connected() -> T:
        api = await KubernetesApi.connect(settings)
        try:
            return await work(api)
        finally:
            await api.close()

    return asyncio.run(connected())


async def find_jobs(api: KubernetesApi, flow_run: str | None = None) -> list[FoundJob]:
    """All Jobs of stages in the namespace, oldest first; those of one flow run where it is given."""
    labels = {"flow-run": flow_run} if flow_run else {}
    found = await api.items(api.jobs, labelSelector=ours(**labels))
    return sorted((_found(job) for job in found), key=lambda job: (job.created, job.name))


async def remove_jobs(api: KubernetesApi, jobs: list[FoundJob]) -> None:
    """Delete these Jobs and wait until their pods are gone."""
    await asyncio.gather(*(remove_job(api, job.name) for job in jobs))


async def create_job(api: KubernetesApi, job: Json, secret: Mapping[str, str]) -> Json:
    """Create a Job, and a Secret of its name that ends with it.

    The Secret comes first, since a pod that does not find it is tried again only after seconds.

    Args:
        api: the cluster.
        job: its manifest.
        secret: what the Job's pods read from the Secret; empty for none.
    """
    if not secret:
        return await api.create(api.jobs, job)
    name = job["metadata"]["name"]
    # Until there is a Job to end with, it ends with what will own that: the flow's pod, where the flow has one.
    owners = job["metadata"].get("ownerReferences", [])
    body = {
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "labels": MANAGED_BY, "ownerReferences": owners},
        "stringData": dict(secret), "immutable": True,
    }  # fmt: skip
    await api.create(api.secrets, body)
    created: Json | None = None
    try:
        created = await api.create(api.jobs, job)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": created["metadata"]["uid"]}
        operations = [{"op": "add", "path": "/metadata/ownerReferences", "value": [owner]}]
        await api.change(f"{api.secrets}/{name}", operations)
        return created
    finally:
        if created is None:
            await api.delete(f"{api.secrets}/{name}")


async def remove_job(api: KubernetesApi, name: str) -> None:
    """Delete one Job and wait until it, its pods and their members are gone."""
    await api.delete(f"{api.jobs}/{name}")
    while True:
        pods = await api.items(api.pods, labelSelector=f"job-name={name}")
        if not pods and await api.get(f"{api.jobs}/{name}") is None:
            return await remove_members(api, name)  # only now: a stage that lives may ask for new ones
        for pod in pods:
            if "deletionTimestamp" in pod["metadata"] and not _has_run(pod):
                # There is no process to wait for, only a node that takes its time.
                await api.delete(f"{api.pods}/{pod['metadata']['name']}", gracePeriodSeconds="0")
        await asyncio.sleep(0.2)


def _has_run(pod: Json) -> bool:
    """True if a container of the pod has begun, now or earlier."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(set(status.get("state") or {}) & {"running", "terminated"} for status in statuses)


def _found(job: Json) -> FoundJob:
    labels = job["metadata"].get("labels") or {}
    node, stage, run, digest, attempt = (
        str(labels.get(PREFIX + key, "")) for key in ("node", "stage", "flow-run", "digest", "attempt")
    )
    return FoundJob(
        name=job["metadata"]["name"], node=node, stage=stage, flow_run=run, digest=digest, attempt=attempt,
        state=_state(job.get("status") or {}), created=str(job["metadata"]["creationTimestamp"]),
    )  # fmt: skip


def is_finished(job: Json) -> bool:
    """True if the cluster says that a Job has ended, well or not."""
    return _state(job.get("status") or {}) in ("succeeded", "failed")


def _state(status: Json) -> Literal["waiting", "running", "succeeded", "failed"]:
    conditions = {c["type"] for c in status.get("conditions") or () if c["status"] == "True"}
    if "Complete" in conditions:
        return "succeeded"
    if "Failed" in conditions:
        return "failed"
    return "running" if status.get("active") else "waiting"
