"""Worker groups on Kubernetes: the launcher keeps the pods of workers, which share the group's token with the stage."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence

from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.contract.resources import Group
from superworkflow.infra.engines.scaling import requested_count
from superworkflow.infra.engines.workers import ADDRESS_VARIABLE, TOKEN_VARIABLE
from superworkflow.infra.engines.workers.setup import CHANNEL_PORT, SETUP_VARIABLE, STORE_PORT, new_token
from superworkflow.infra.launch.base import Event
from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.engines.base import OnCluster, StagePods
from superworkflow.infra.launch.kubernetes.kept_pods import (
    LOSSES,
    KeptPods,
    keep_members,
    kept_checks,
    secret_variable,
)
from superworkflow.infra.launch.kubernetes.permissions import Check
from superworkflow.infra.launch.kubernetes.pod_group import FollowedJob, PodGroup, grace
from superworkflow.infra.launch.kubernetes.pod_status import PodStatus
from superworkflow.infra.launch.kubernetes.start_timeout import StartTimeout
from superworkflow.infra.process.exit_status import Diagnosis, Reason

HOST_CHARACTERS = 63
"""Characters of a pod's name that its container takes as host name."""


class WorkerPods(KeptPods):
    """The workers of one fixed role, which begin when all of them are there."""

    command = "worker"

    def __init__(self, job: FollowedJob, role: str, group: Group, offset: int, agents: int):
        super().__init__(job, role, group)
        self._offset, self._agents = offset, agents
        self._each = StartTimeout(job.settings, job.log)

    @property
    def title(self) -> str:
        return f"worker of role {self.role}"

    async def _waiting(self) -> Diagnosis | None:
        """Problem that has kept a member from starting for too long: ranks need all of them."""
        for name in self._present():
            pod = self._seen[name]
            if not pod.started and (found := await self._problem(pod)) is not None:
                return self._each.consider(found, started=False)
        return self._each.consider(None, started=True)

    def image(self, own: Json) -> str:
        """See `KeptPods`. Workers with GPUs run in an image for these."""
        gpus = self.group.each.gpu.count
        return (self._job.settings.image_for("torch", gpus) if gpus else None) or super().image(own)

    def variables(self, own: Json) -> list[Json]:
        each = self.group.each
        setup = {
            "host": own["status"]["podIP"], "port": CHANNEL_PORT, "store_port": STORE_PORT, "role": self.role,
            "count": 1, "offset": self._offset, "agents": self._agents, "threads": each.threads,
            "gpus": each.gpu.count, "elastic": self.group.elastic,
        }  # fmt: skip
        return [
            *super().variables(own),
            {"name": SETUP_VARIABLE, "value": json.dumps(setup)},
            secret_variable(self._job.name, TOKEN_VARIABLE),
        ]


class ElasticPods(WorkerPods):
    """The members of one elastic role: as many pods as the stage asks for.

    Which ones leave is decided here: those that do not run yet, then those that were made last. They are asked by
    SIGTERM, finish their item, and are killed after the pod's grace.
    """

    _wanted: int | None = None
    _hanging: frozenset[str] = frozenset()

    def hear(self, event: Event) -> bool:
        request = requested_count(event, {self.role: self.group})
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
        if any(self._released(pod) for pod in ended.values()):
            return None  # the stage has let all of them end, or has ended
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
        keep_members(manifest, ADDRESS_VARIABLE, (TOKEN_VARIABLE,))

    def secret(self) -> Mapping[str, str]:
        return {TOKEN_VARIABLE: new_token()}

    def members(self, job: FollowedJob, groups: Mapping[str, Group]) -> Sequence[PodGroup]:
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
        return await kept_checks(api)


def _by_merit(pod: PodStatus) -> tuple[bool, str, str]:
    """Order in which pods are kept: those that run, then the oldest."""
    return not pod.running, str(pod.metadata.get("creationTimestamp")), pod.name
