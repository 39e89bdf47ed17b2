"""Worker groups on Kubernetes: the launcher makes, replaces and removes the pods of workers, which have no rights.

They are plain pods that belong to the coordinator's, and so end with it. What they share with it, the token of the
group, is in a Secret of the Job's name.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence

from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.contract.resources import Group
from superworkflow.infra.engines.scaling import asked_count
from superworkflow.infra.engines.workers import ADDRESS_VARIABLE, TOKEN_VARIABLE
from superworkflow.infra.engines.workers.setup import CHANNEL_PORT, SETUP_VARIABLE, STORE_PORT, new_token
from superworkflow.infra.launch.base import Event
from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.engines.base import OnCluster, StagePods
from superworkflow.infra.launch.kubernetes.permissions import Check, own_right
from superworkflow.infra.launch.kubernetes.pod_group import MEMBER_OF, ROLE, FollowedJob, PodGroup, grace
from superworkflow.infra.launch.kubernetes.pod_spec import (
    container_spec,
    environment,
    pod_spec,
    quantities,
    volumes_and_mounts,
)
from superworkflow.infra.launch.kubernetes.pod_status import CONTAINER, PodStatus
from superworkflow.infra.launch.kubernetes.start_timeout import StartTimeout
from superworkflow.infra.process.exit_status import Diagnosis, Reason

TALKS = "superworkflow/worker-group"
"""Label of coordinators and workers: rbac.yaml admits only traffic between pods that carry it."""
LOSSES = 5
"""Pods of one role that are replaced; when more are lost, something is wrong with all of them. An elastic role has one
more for each member that it may have."""
HOST_CHARACTERS = 63
"""Characters of a pod's name that its container takes as host name."""

RIGHTS = (("", "pods", "", ("create",)), ("", "secrets", "", ("create", "patch", "delete")))
"""Permissions that a launcher needs for worker groups, beyond those for all stages."""

_OF_THE_JOB = ("job-name", "controller-uid")
"""Labels that the cluster gives to pods of Jobs; also below `batch.kubernetes.io/`."""


class WorkerPods(PodGroup):
    """The workers of one fixed role: a constant number of pods while the coordinator's runs."""

    def __init__(self, job: FollowedJob, role: str, group: Group, offset: int, agents: int):
        super().__init__(job, role, group)
        self._offset, self._agents = offset, agents
        self._each = StartTimeout(job.settings, job.log)

    @property
    def title(self) -> str:
        """See `PodGroup`."""
        return f"worker of role {self.role}"

    async def look(self, own: Json | None = None) -> Diagnosis | None:
        """Take in the present state, and make the pods that are missing; see `PodGroup`.

        One that ran out of memory would do so again: all begin anew, with more, from the checkpoint.
        """
        problem = await super().look(own)
        if problem is None and any(pod.out_of_memory for pod in self._seen.values()):
            problem = self._ended_badly()
        if problem is not None or own is None or not PodStatus(own).running or not own["status"].get("podIP"):
            return problem
        return await self._keep(own) or await self._waiting()

    async def _keep(self, own: Json) -> Diagnosis | None:
        """Make the pods that are missing; why there is no hope for them, or None."""
        lost = 0
        for number in range(self.group.count):
            pods = {name: pod for name, pod in self._seen.items() if name.startswith(f"{self._stem(number)}-")}
            ended = [name for name, pod in pods.items() if name in self._gone or pod.terminated]
            done = any(pod.exit_code == 0 for pod in pods.values())
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
        """Problem that has kept a member from starting for too long: ranks need all of them."""
        for name in self._present():
            pod = self._seen[name]
            if not pod.started and (found := await self._problem(pod)) is not None:
                return self._each.consider(found, started=False)
        return self._each.consider(None, started=True)

    def _stem(self, number: int) -> str:
        return f"{self._job.name}-{self.role}-{number}"

    def pod(self, own: Json, name: str) -> Json:
        """The manifest of one worker's pod.

        Args:
            own: the coordinator's pod.
            name: of the worker's.
        """
        settings, each = self._job.settings, self.group.each
        setup = {
            "host": own["status"]["podIP"], "port": CHANNEL_PORT, "store_port": STORE_PORT, "role": self.role,
            "count": 1, "offset": self._offset, "agents": self._agents, "threads": each.threads,
            "gpus": each.gpu.count, "elastic": self.group.elastic,
        }  # fmt: skip
        volumes, mounts = volumes_and_mounts(settings, shm=each.shm)
        container = container_spec(settings, environment(settings, each.threads), mounts)
        (coordinator,) = own["spec"]["containers"]
        image = settings.image_for("torch", each.gpu.count) if each.gpu.count else None
        container |= {
            "name": CONTAINER,
            "image": image or coordinator["image"],
            "imagePullPolicy": settings.image_pull_policy,
            "args": ["worker"],
            "resources": quantities(settings, each),
        }
        container["env"] += [{"name": SETUP_VARIABLE, "value": json.dumps(setup)}, _token(self._job.name)]
        labels = {key: value for key, value in own["metadata"]["labels"].items() if not _is_of_the_job(key)}
        reference = {"apiVersion": "v1", "kind": "Pod", "name": own["metadata"]["name"], "uid": own["metadata"]["uid"]}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name, "labels": {**labels, MEMBER_OF: self._job.name, ROLE: self.role},
                "annotations": dict(settings.annotations),
                "ownerReferences": [{**reference, "controller": False, "blockOwnerDeletion": False}],
            },
            "spec": pod_spec(settings, container, volumes, gpus=each.gpu.count, gpu_type=each.gpu.type),
        }  # fmt: skip


class ElasticPods(WorkerPods):
    """The members of one elastic role: as many pods as the stage asks for.

    Which ones leave is decided here: those that do not run yet, then those that were made last. They are asked by
    SIGTERM, finish their item, and are killed after the pod's grace.
    """

    _wanted: int | None = None
    _hanging: frozenset[str] = frozenset()

    def hear(self, event: Event) -> bool:
        """See `PodGroup`."""
        request = asked_count(event, {self.role: self.group})
        if request is None:
            return False
        self._wanted = request[1]
        hanging = event.get("hanging")
        if isinstance(hanging, list):
            self._hanging |= {host for host in hanging if isinstance(host, str)}
        return True

    async def _keep(self, own: Json) -> Diagnosis | None:
        """Make and delete pods until there are as many as asked for.

        A launcher that has adopted the Job deletes none before it has read what the stage has asked for.
        """
        there = sorted((self._seen[name] for name in self._present() if self._stays(name)), key=_by_merit)
        for pod in there:
            if pod.name[:HOST_CHARACTERS] in self._hanging:
                self._job.log(f"the {self.title} {pod.name} hangs; starting another")
                await self._delete(pod, gracePeriodSeconds="0")
        there = [pod for pod in there if self._stays(pod.name)]
        for pod in there[self._wanted :] if self._wanted is not None else ():
            await self._delete(pod, **grace(pod.running))
        ended = {name: pod for name, pod in self._seen.items() if name not in self._left and not self._runs(name)}
        if any(pod.exit_code == 0 for pod in ended.values()):
            return None  # the stage has let all of them end
        if len(ended) > LOSSES + self.group.largest:
            return self._ended_badly() or Diagnosis(
                Reason.NODE_LOST, f"pods of role {self.role} were lost {len(ended)} times", "Run again to resume."
            )
        for _ in range((self._wanted or self.group.count) - len(there)):
            await self._make(own, f"{self._job.name}-{self.role}-{secrets.token_hex(4)}")
        return None

    def _runs(self, name: str) -> bool:
        """True if it has not ended."""
        return name not in self._gone and not self._seen[name].terminated

    def _stays(self, name: str) -> bool:
        """True if it has not ended, and nobody has asked it to."""
        leaving = name in self._left or "deletionTimestamp" in self._seen[name].metadata
        return self._runs(name) and not leaving

    async def _delete(self, pod: PodStatus, **query: str) -> None:
        self._left.add(pod.name)
        await self._api.delete(f"{self._api.pods}/{pod.name}", **query)

    async def _waiting(self) -> Diagnosis | None:
        """None: work continues with the members that are there."""
        return None


class WorkersOnCluster(OnCluster):
    """The stage's pod is the coordinator; the launcher makes the pods of its workers."""

    def shape(self, manifest: Json, stage: StagePods) -> None:
        """See `OnCluster`."""
        template = manifest["spec"]["template"]
        template["metadata"]["labels"] = {**template["metadata"]["labels"], TALKS: "true"}
        (container,) = template["spec"]["containers"]
        address = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
        container["env"] += [{"name": ADDRESS_VARIABLE, "valueFrom": address}, _token(manifest["metadata"]["name"])]

    def secret(self) -> Mapping[str, str]:
        """See `OnCluster`."""
        return {TOKEN_VARIABLE: new_token()}

    def members(self, job: FollowedJob, groups: Mapping[str, Group]) -> Sequence[PodGroup]:
        """See `OnCluster`."""
        found: list[PodGroup] = []
        offset, agents = 0, sum(group.count for group in groups.values() if not group.elastic)
        for role, group in groups.items():
            if group.elastic:
                found.append(ElasticPods(job, role, group, 0, 1))
            else:
                found.append(WorkerPods(job, role, group, offset, agents))
                offset += group.count
        return found

    async def checks(self, api: KubernetesApi, settings: KubernetesSettings) -> list[Check]:
        """True if the launcher may make workers, and the Secrets of their groups."""
        return [await own_right(api, *right) for right in RIGHTS]


def _token(job: str) -> Json:
    """The environment variable with the token of a Job's group."""
    return {"name": TOKEN_VARIABLE, "valueFrom": {"secretKeyRef": {"name": job, "key": TOKEN_VARIABLE}}}


def _is_of_the_job(label: str) -> bool:
    return label in _OF_THE_JOB or label.startswith("batch.kubernetes.io/")


def _by_merit(pod: PodStatus) -> tuple[bool, str, str]:
    """Order in which pods are kept: those that run, then the oldest."""
    return not pod.running, str(pod.metadata.get("creationTimestamp")), pod.name
