"""Pods of members that the launcher makes, replaces and removes; the stage has no rights in the cluster.

They are plain pods that belong to the stage's own, and so end with it. What they share with it alone is in a Secret of
the Job's name.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from superworkflow.infra.contract.resources import Group
from superworkflow.infra.engines.lifeline import STAGE_GONE
from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.job_manifest import OwnerPod, owner_references
from superworkflow.infra.launch.kubernetes.permissions import Check, own_right
from superworkflow.infra.launch.kubernetes.pod_group import MEMBER_OF, ROLE, FollowedJob, PodGroup
from superworkflow.infra.launch.kubernetes.pod_spec import (
    container_spec,
    environment,
    pod_spec,
    quantities,
    volumes_and_mounts,
)
from superworkflow.infra.launch.kubernetes.pod_status import CONTAINER, PodStatus
from superworkflow.infra.process.exit_status import Diagnosis, Reason

TALKS = "superworkflow/worker-group"
"""Label of such members and of their stage's pod: rbac.yaml admits only traffic between pods that carry it."""
LOSSES = 5
"""Pods of one role that are replaced; when more are lost, something is wrong with all of them. An elastic role has one
more for each member that it may have."""
CUT_OFF_SECONDS = 20.0
"""Seconds for the cluster to report the end of the stage's own pod after a member has found its process gone. If it
still runs then, the member has only lost its connection, and is replaced."""
RIGHTS = (("", "pods", "", ("create",)), ("", "secrets", "", ("create", "patch", "delete")))
"""Permissions that a launcher needs for such members, beyond those for all stages."""

_OF_THE_JOB = ("job-name", "controller-uid")
"""Labels that the cluster gives to pods of Jobs; also below `batch.kubernetes.io/`."""


class KeptPods(PodGroup):
    """The members of one role: a constant number of pods while the stage's own runs."""

    command: ClassVar[str]
    """Command of ours that a member runs."""

    def __init__(self, job: FollowedJob, role: str, group: Group):
        super().__init__(job, role, group)
        self._without_stage: dict[str, float] = {}  # when members were first seen to have ended so

    async def look(self, own: Json | None = None) -> Diagnosis | None:
        """Take in the present state, and make the pods that are missing; see `PodGroup`.

        One that ran out of memory would do so again: all begin anew, with more, from the checkpoint.
        """
        problem = await super().look(own)
        if problem is None and any(pod.out_of_memory for pod in self._seen.values()):
            problem = self._ended_badly()
        if problem is not None or own is None or not PodStatus(own).running or not own["status"].get("podIP"):
            return problem
        self._note_cut_off()
        return await self._keep(own) or await self._waiting()

    def _note_cut_off(self) -> None:
        now = time.monotonic()
        for name, pod in self._seen.items():
            if pod.exit_code == STAGE_GONE and now - self._without_stage.setdefault(name, now) >= CUT_OFF_SECONDS:
                self._cut_off.add(name)

    async def _keep(self, own: Json) -> Diagnosis | None:
        """Make the pods that are missing; why there is no hope for them, or None."""
        lost = 0
        for number in range(self.group.count):
            pods = {name: pod for name, pod in self._seen.items() if name.startswith(f"{self._stem(number)}-")}
            ended = [name for name, pod in pods.items() if name in self._gone or pod.terminated]
            done = any(self._released(pod) for pod in pods.values())
            lost += 0 if done else len(ended)
            if len(ended) < len(pods) or done:
                continue
            if lost > LOSSES:
                return self._ended_badly() or Diagnosis(
                    Reason.NODE_LOST, f"pods of role {self.role} were lost {lost} times", "Run again to resume."
                )
            if ended:
                self._job.log(f"the {self.title} {max(ended)} was lost; starting another")
            await self._make(own, f"{self._stem(number)}-{len(pods)}")
        return None

    async def _make(self, own: Json, name: str) -> None:
        made = await self._api.create(self._api.pods, self.pod(own, name))
        self._seen[made["metadata"]["name"]] = PodStatus(made)

    async def _waiting(self) -> Diagnosis | None:
        """Problem of a member that all others wait for; None where work continues with those that are there."""
        return None

    @property
    def threads(self) -> int:
        """Threads of each process of a member."""
        return self.group.each.threads

    def _stem(self, number: int) -> str:
        return f"{self._job.name}-{self.role}-{number}"

    def image(self, own: Json) -> str:
        """Image of members: the stage's.

        Args:
            own: the stage's pod.
        """
        (container,) = own["spec"]["containers"]
        return str(container["image"])

    def variables(self, own: Json) -> list[Json]:
        """Environment of a member's container.

        Args:
            own: the stage's pod.
        """
        values = environment(self._job.settings, self.threads)
        return [{"name": name, "value": value} for name, value in values.items()]

    def pod(self, own: Json, name: str) -> Json:
        """The manifest of one member's pod.

        Args:
            own: the stage's pod.
            name: of the member's.
        """
        settings, each = self._job.settings, self.group.each
        volumes, mounts = volumes_and_mounts(settings, shm=each.shm)
        container = container_spec(settings, {}, mounts) | {
            "name": CONTAINER,
            "image": self.image(own),
            "imagePullPolicy": settings.image_pull_policy,
            "args": [self.command],
            "env": self.variables(own),
            "resources": quantities(settings, each),
        }
        labels = {key: value for key, value in own["metadata"]["labels"].items() if not _is_of_the_job(key)}
        owner = OwnerPod(own["metadata"]["name"], own["metadata"]["uid"])
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name, "labels": {**labels, MEMBER_OF: self._job.name, ROLE: self.role},
                "annotations": dict(settings.annotations),
                "ownerReferences": owner_references(owner),
            },
            "spec": pod_spec(settings, container, volumes, each.gpu),
        }  # fmt: skip


def keep_members(manifest: Json, address: str, secrets: Sequence[str]) -> None:
    """Let the pod of a Job have members that the launcher keeps.

    Args:
        manifest: the Job, changed in place.
        address: name of the variable in which the stage finds its pod's own address.
        secrets: names of variables that come from the Job's Secret.
    """
    template = manifest["spec"]["template"]
    template["metadata"]["labels"] = {**template["metadata"]["labels"], TALKS: "true"}
    (container,) = template["spec"]["containers"]
    own = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    container["env"] += [{"name": address, "valueFrom": own}]
    container["env"] += [secret_variable(manifest["metadata"]["name"], each) for each in secrets]


def secret_variable(job: str, name: str) -> Json:
    """An environment variable from the Secret of a Job."""
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": job, "key": name}}}


async def kept_checks(api: KubernetesApi) -> list[Check]:
    """True if the launcher may make such members, and the Secrets that they share with their stage."""
    return [await own_right(api, *right) for right in RIGHTS]


def _is_of_the_job(label: str) -> bool:
    return label in _OF_THE_JOB or label.startswith("batch.kubernetes.io/")
