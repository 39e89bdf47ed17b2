"""Ended Jobs of old runs, and Secrets that lost their Job, in the cluster."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from superworkflow.infra.launch.kubernetes.api import ApiError, Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.job_admin import FoundJob, find_jobs, remove_job
from superworkflow.infra.launch.kubernetes.job_manifest import ours


@dataclass(frozen=True)
class OldObjects:
    """Objects that nothing needs.

    Args:
        jobs: ended ones.
        secrets: names of those without a Job.
        note: why Secrets were not looked at; empty where they were.
    """

    jobs: tuple[FoundJob, ...] = ()
    secrets: tuple[str, ...] = ()
    note: str = ""


async def old_objects(api: KubernetesApi, before: datetime, kept: Collection[str]) -> OldObjects:
    """Find them.

    Args:
        api: the cluster.
        before: younger ones stay.
        kept: datasets whose Jobs stay, by digest.
    """
    jobs = await find_jobs(api)
    ended = tuple(
        job for job in jobs
        if job.state in ("succeeded", "failed") and job.digest not in kept
        and datetime.fromisoformat(job.created) < before
    )  # fmt: skip
    try:
        secrets = await api.items(api.secrets, labelSelector=ours())
    except ApiError as error:
        if error.status != 403:
            raise
        return OldObjects(ended, note="may not list Secrets")
    names = {job.name for job in jobs}
    lost = [each["metadata"]["name"] for each in secrets if _is_lost(each, names, before)]
    return OldObjects(ended, tuple(sorted(lost)))


async def remove_objects(api: KubernetesApi, found: OldObjects) -> None:
    """Remove them; what is gone since is no error."""
    for job in found.jobs:
        await remove_job(api, job.name)
    for name in found.secrets:
        await api.delete(f"{api.secrets}/{name}")


def _is_lost(secret: Json, jobs: Collection[str], before: datetime) -> bool:
    metadata = secret["metadata"]
    if metadata.get("ownerReferences") or metadata["name"] in jobs:
        return False
    return datetime.fromisoformat(metadata["creationTimestamp"]) < before
