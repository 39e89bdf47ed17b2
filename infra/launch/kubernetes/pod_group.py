"""The pods of one group of a Job, apart from its own: why they do not start, how they ended, what they used."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.usage import Holding
from superworkflow.infra.contract.resources import Group, Resources
from superworkflow.infra.engines.lifeline import STAGE_GONE
from superworkflow.infra.launch.base import Event
from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.diagnosis import diagnose, waiting_problem
from superworkflow.infra.launch.kubernetes.pod_status import PodStatus, events_of
from superworkflow.infra.launch.kubernetes.quantities import quantity, read_time
from superworkflow.infra.launch.kubernetes.start_timeout import StartTimeout
from superworkflow.infra.process.exit_status import Diagnosis, Reason

MEMBER_OF = "superworkflow/member-of"
"""Label of members: the name of the Job that they belong to."""
ROLE = "superworkflow/role"
"""Label of members: their role."""

END_SECONDS = 10.0
"""Seconds for members to end after the stage's own pod has."""

_KNOWS_LITTLE = (Reason.FAILED, Reason.CRASHED)
"""Ends of the stage's own pod that may come from its members; others, such as a deadline, end its members."""
_OUTSIDE = (Reason.EVICTED, Reason.NODE_LOST, Reason.NOT_STARTED, Reason.IMAGE_MISSING)


@dataclass(frozen=True)
class FollowedJob:
    """Job whose members are followed.

    Args:
        api: the cluster.
        settings: how patient to be.
        name: name of the Job.
        log: receives what keeps members from starting.
    """

    api: KubernetesApi
    settings: KubernetesSettings
    name: str
    log: Callable[[str], None]


class PodGroup:
    """Pods of one group of a Job as they were seen; deleted ones are remembered.

    This base watches pods that the stage itself asks for, and replaces. A member may leave a JSON object as its
    termination message: `cpu_s`, `peak_memory_bytes`, `out_of_memory_kills`, and `error`, its last words.

    Args:
        job: the Job that they belong to.
        role: of the group.
        group: how many there are to be, and of which size.
    """

    def __init__(self, job: FollowedJob, role: str, group: Group):
        self.role, self.group, self._job = role, group, job
        self._api, self._selector = job.api, f"{MEMBER_OF}={job.name},{ROLE}={role}"
        self._patience = StartTimeout(job.settings, job.log)
        self._seen: dict[str, PodStatus] = {}
        self._gone: dict[str, datetime] = {}
        self._left: set[str] = set()  # those that were asked to end, while the stage runs
        self._cut_off: set[str] = set()  # those that took a stage for gone which still runs

    @property
    def title(self) -> str:
        """Name of one member in messages."""
        return self.role

    def blameless(self, report: Mapping[str, Any]) -> bool:
        """True if a member's report shows that it failed only because the stage's own pod had ended."""
        return False

    def hear(self, event: Event) -> bool:
        """Take in an event that the stage has sent; True where it says what members there should be."""
        return False

    async def look(self, own: Json | None = None) -> Diagnosis | None:
        """Take in the present state; why the stage need not be waited for, or None.

        That is what has kept all members from starting for too long, or that as many as were asked for ran out of
        memory: work would be tried again on others of the same size.

        Args:
            own: the stage's own pod.
        """
        pods = await self._api.items(self._api.pods, labelSelector=self._selector)
        present = {pod["metadata"]["name"]: PodStatus(pod) for pod in pods}
        for name in self._seen.keys() - present.keys():
            self._gone.setdefault(name, datetime.now(UTC))
        self._seen |= present
        if sum(pod.out_of_memory for pod in self._seen.values()) >= self.group.count:
            return self._ended_badly()
        if any(pod.running for pod in present.values()):
            return self._patience.consider(None, started=True)
        for pod in present.values():
            if not pod.terminated:
                return self._patience.consider(await self._problem(pod), started=False)
        return None

    async def _problem(self, pod: PodStatus) -> Diagnosis | None:
        """Problem that keeps a member from starting, with its title."""
        found = waiting_problem(pod.pod, await events_of(self._api, pod.metadata))
        return found and Diagnosis(found.reason, f"{self.title}: {found.summary}", found.resolution)

    async def finish(self) -> None:
        """Wait until all have ended, for their figures; those that have not within a time are left."""
        until = time.monotonic() + END_SECONDS
        await self.look()
        while time.monotonic() < until and any(self._seen[name].running for name in self._present()):
            await asyncio.sleep(0.2)
            await self.look()

    def _present(self) -> list[str]:
        return [name for name in self._seen if name not in self._gone]

    def failure(self, own: Diagnosis) -> Diagnosis | None:
        """Failure of members that made the stage fail without its knowledge.

        Args:
            own: why the stage failed, by its own pod and log.
        """
        return self._ended_badly() if own.reason in _KNOWS_LITTLE else None

    def _ended_badly(self) -> Diagnosis | None:
        crashed = ""
        for name, pod in self._seen.items():
            found = None if pod.exit_code == 0 or name in self._left else diagnose({}, pod.pod)
            if pod.out_of_memory:
                limit = str(pod.memory_limit or "").replace("Mi", " MiB")
                return Diagnosis(
                    Reason.OUT_OF_MEMORY,
                    f"{self.title} {name} ran out of memory" + (f" (its limit was {limit})" if limit else ""),
                    f"Give {self.role}s more memory in the profile (`resources.{Resources.path(self.role)}.memory`), "
                    "or raise `kubernetes.memory_cap`.",
                )
            if found is not None and found.reason in _OUTSIDE:
                return Diagnosis(found.reason, f"{self.title} {name}: {found.summary}", found.resolution)
            code = 0 if name in self._left or self._released(pod) else pod.exit_code
            if code and code != 143 and not self.blameless(pod.report):
                crashed = str(pod.report.get("error") or f"exit status {code}")
        if crashed and not any(self._released(pod) for pod in self._seen.values()):
            return Diagnosis(
                Reason.NOT_STARTED,
                f"none of {len(self._seen)} {self.title}s stayed up; the last one said: {crashed}",
                f"Check the image and the size of the {self.role}s.",
            )
        return None

    def figures(self) -> dict[str, float]:
        """Usage of the members, by name with its unit; empty where there were none."""
        started = [pod for pod in self._seen.values() if pod.started_at is not None]
        if not started:
            return {}
        reports = [pod.report for pod in started]
        figures = {
            f"{self.role}s": float(len(started)),
            f"{self.role}s_lost": float(self._lost()),
            f"{self.role}_held_s": sum(self._held(pod) for pod in started),
            f"{self.role}_start_s": max(_startup(pod) for pod in started),
        }
        cpu = [each["cpu_s"] for each in reports if each.get("cpu_s") is not None]
        peaks = [each["peak_memory_bytes"] for each in reports if each.get("peak_memory_bytes") is not None]
        if cpu:
            figures[f"{self.role}_cpu_s"] = float(sum(cpu))
        if peaks:
            figures[f"{self.role}_peak_memory_bytes"] = float(max(peaks))
            figures[f"{self.role}_used_memory_share"] = max(peaks) / self.group.memory
        return figures

    def holdings(self, own: Json | None) -> list[Holding]:
        """Holdings of each member in the cluster's own time, as far as was seen.

        Args:
            own: the stage's own pod.
        """
        origin = PodStatus(own).scheduled_at
        found = []
        for pod in self._seen.values():
            begin = pod.scheduled_at or pod.started_at
            if begin is not None:
                begin_s = max(0.0, (begin - (origin or begin)).total_seconds())
                end_s = max(begin_s, (self._end(pod) - (origin or begin)).total_seconds())
                found.append(Holding(role=self.role, resources=self._size(pod), begin_s=begin_s, end_s=end_s))
        return found

    def _size(self, pod: PodStatus) -> Resources:
        """Resources that a node reserved for a pod; the requested ones where it does not report them."""
        containers = ((pod.pod or {}).get("spec") or {}).get("containers") or ()
        requests: Json = next(((c.get("resources") or {}).get("requests") or {} for c in containers), {})
        cpu, memory = quantity(requests.get("cpu", 0)), int(quantity(requests.get("memory", 0)))
        each = self.group.each
        return each.model_copy(update={"cpu": cpu or each.cpu, "memory": memory or each.memory})

    def _lost(self) -> int:
        """Number of members that ended before the stage released them.

        It releases all at once, and some then end with status 0; one that was still starting finds no coordinator.
        """
        kept = {name: pod for name, pod in self._seen.items() if name not in self._left}
        well = [self._end(pod) for pod in kept.values() if self._released(pod)]
        # Elastic ones are also let go while the stage runs, one by one.
        let_go = (max if self.group.elastic else min)(well, default=datetime.max.replace(tzinfo=UTC))
        ended = [pod for name, pod in kept.items() if pod.terminated or name in self._gone]
        return sum(self._end(pod) < let_go for pod in ended if not self._released(pod))

    def _released(self, pod: PodStatus) -> bool:
        """True if a member ended because the stage let it, or had ended itself."""
        return pod.exit_code == 0 or (pod.exit_code == STAGE_GONE and pod.name not in self._cut_off)

    def _end(self, pod: PodStatus) -> datetime:
        """Time of its end, as far as was seen; now while it runs."""
        return pod.finished_at or self._gone.get(pod.name) or datetime.now(UTC)

    def _held(self, pod: PodStatus) -> float:
        """Seconds for which its container ran, so far as was seen."""
        began = pod.started_at
        return 0.0 if began is None else max(0.0, (self._end(pod) - began).total_seconds())


async def remove_members(api: KubernetesApi, job: str) -> None:
    """Delete the members of a Job whose own pod has ended, and wait until they are gone."""
    while pods := await api.items(api.pods, labelSelector=f"{MEMBER_OF}={job}"):
        for pod in pods:
            running = PodStatus(pod).running
            if "deletionTimestamp" not in pod["metadata"] or not running:
                await api.delete(f"{api.pods}/{pod['metadata']['name']}", **grace(running))
        await asyncio.sleep(0.2)


def grace(running: bool) -> dict[str, str]:
    """Query of a pod's deletion: there is nothing to wait for where nothing runs."""
    return {} if running else {"gracePeriodSeconds": "0"}


def _startup(pod: PodStatus) -> float:
    """Seconds from the pod's creation to the start of its container; the cluster reports whole seconds."""
    created, started = read_time(pod.metadata.get("creationTimestamp")), pod.started_at
    return max(0.0, (started - created).total_seconds()) if created and started else 0.0
