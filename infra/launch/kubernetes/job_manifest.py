"""From the call of a stage to the manifest of its Job."""

from __future__ import annotations

import copy
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from superworkflow.infra.config.kubernetes import KubernetesSettings, no_image
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.engines import engine
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.launch.kubernetes.engines.base import StagePods, engine_on_cluster
from superworkflow.infra.launch.kubernetes.pod_spec import (
    container_spec,
    environment,
    pod_spec,
    quantities,
    volumes_and_mounts,
)
from superworkflow.infra.launch.kubernetes.pod_status import CONTAINER

PREFIX = "superworkflow/"
MANAGED_BY = {"app.kubernetes.io/managed-by": "superworkflow"}
TTL_SECONDS = 120
"""For so long at least an ended Job stays for the launcher to read how it ended."""


@dataclass(frozen=True)
class OwnerPod:
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
    owner: OwnerPod | None = None,
    supersedes: Sequence[str] = (),
) -> dict[str, Any]:
    """The `batch/v1` Job of one attempt of one stage.

    Args:
        call: what to run.
        settings: the profile's `kubernetes` part.
        resources: of this attempt, which may have more memory than the profile says.
        launcher: id of the launcher that follows the Job.
        attempt: number of the attempt, from 1.
        owner: pod that owns the Job.
        supersedes: names of earlier Jobs for the same dataset whose stages have ended.

    Raises:
        UserError: no image is named for this kind of stage, or what its engine needs is missing.
    """
    labels = job_labels(call, launcher, attempt) | settings.labels
    name = _name(call)
    lock = ["--holder", name, *(f"--supersedes={dead}" for dead in supersedes)]
    annotations = {"annotations": dict(settings.annotations)} if settings.annotations else {}
    metadata: dict[str, Any] = {"name": name, "labels": labels, **annotations}
    if owner is not None:
        metadata["ownerReferences"] = owner_references(owner)
    manifest: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            # Where a Job makes another pod for one that is being deleted, both would run for a while.
            "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": settings.deadline_s,
            # The launcher removes what need not be kept; this is for when it no longer can.
            "ttlSecondsAfterFinished": max(settings.ttl_s, TTL_SECONDS),
            "template": {
                "metadata": {"labels": labels, **copy.deepcopy(annotations)},
                "spec": _pod(call, settings, resources, lock),
            },
        },
    }
    found = engine(call.placement.engine)
    if groups := found.groups(resources):
        pods = StagePods(settings, groups, stage_image(call, settings), labels)
        engine_on_cluster(call.placement.engine).shape(manifest, pods)
    return manifest


def owner_references(owner: OwnerPod | None) -> list[dict[str, Any]]:
    """Owner references of a Job, for its metadata."""
    if owner is None:
        return []
    return [
        {"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid,
         "controller": False, "blockOwnerDeletion": False}
    ]  # fmt: skip


def job_labels(call: StageCall, launcher: str, attempt: int) -> dict[str, str]:
    """Labels by which a Job is found again."""
    own = {
        "launcher": launcher,
        "stage": call.stage,
        "node": call.node,
        "attempt": str(attempt),
        "digest": call.place.digest,
        **call.labels,
    }
    return MANAGED_BY | {PREFIX + name: label_value(value) for name, value in own.items()}


def ours(**more: str) -> str:
    """Selector of our objects; `more` is what else they must carry, by its name without `PREFIX`."""
    wanted = MANAGED_BY | {PREFIX + name: value for name, value in more.items()}
    return ",".join(f"{name}={value}" for name, value in wanted.items())


def label_value(text: str) -> str:
    """The nearest text that a label may hold: at most 63 letters, digits, dashes, underscores and dots."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:63].strip("-_.")


def argument_of(job: dict[str, Any], flag: str) -> str | None:
    """Value of an argument of the command line that a Job runs."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    arguments = container.get("args") or []
    return arguments[arguments.index(flag) + 1] if flag in arguments[:-1] else None


def _name(call: StageCall) -> str:
    stem = re.sub(r"[^a-z0-9]+", "-", call.node.lower())[:30].strip("-")
    return f"sw-{stem}-{uuid.uuid4().hex[:10]}"


def _pod(call: StageCall, settings: KubernetesSettings, resources: Resources, more: list[str]) -> dict[str, Any]:
    volumes, mounts = volumes_and_mounts(settings, resources.ephemeral_storage, resources.shm)
    container = container_spec(settings, environment(settings, resources.threads), mounts) | {
        "name": CONTAINER,
        "image": stage_image(call, settings),
        "imagePullPolicy": settings.image_pull_policy,
        "args": [*call.arguments(resources), *more],
        "resources": quantities(settings, resources),
    }
    return pod_spec(settings, container, volumes, resources.gpu)


def stage_image(call: StageCall, settings: KubernetesSettings) -> str:
    """Image of the stage: its placement's own, else the one for its kind.

    Raises:
        UserError: neither is named.
    """
    image = call.placement.image or settings.image_for(call.image_kind, call.placement.resources.gpu.count)
    if image is None:
        raise no_image(call.node, call.image_kind)
    return image
