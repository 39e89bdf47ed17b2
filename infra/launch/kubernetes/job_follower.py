"""Follow one Job from its creation to its end."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.usage import Holding
from superworkflow.infra.contract.progress import output_events
from superworkflow.infra.contract.resources import Endpoint, Group
from superworkflow.infra.contract.stage import IN_PROCESS
from superworkflow.infra.launch.base import Event
from superworkflow.infra.launch.endpoint_calls import EndpointCalls
from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.diagnosis import diagnose, past_deadline, pod_deleted, waiting_problem
from superworkflow.infra.launch.kubernetes.engines.base import engine_on_cluster
from superworkflow.infra.launch.kubernetes.job_admin import is_finished
from superworkflow.infra.launch.kubernetes.pod_group import FollowedJob, PodGroup
from superworkflow.infra.launch.kubernetes.pod_log import read_log
from superworkflow.infra.launch.kubernetes.pod_status import PodStatus, condition, events_of
from superworkflow.infra.launch.kubernetes.start_timeout import StartTimeout
from superworkflow.infra.process.exit_status import Diagnosis, Reason

RESYNC_SECONDS = 3.0
"""Seconds between reads of a Job whose watch reports no change."""

LOG_SECONDS = 20.0
"""Seconds for the end of the log to arrive after the container ended."""

SETTLE_SECONDS = 15.0
"""Seconds for the Job's condition to arrive after its container ended."""

LATE_SECONDS = 15.0
"""Seconds for which a Job is awaited after its deadline and its pod's grace period."""


@dataclass
class Ended:
    """End of one Job.

    Args:
        diagnosis: why it failed; None when its container ended well.
        final: the stage's own last event, None when it sent none or the log was lost.
        held_s: seconds for which a node held the resources of the Job's own pod.
        figures: what was measured from outside, by name with its unit.
        image: image that ran, with its digest.
        exit_code: of the container; None when it never ended.
        role: whose the diagnosis is: a member's of this role, or the stage's own where it is empty.
        deleted: the Job was deleted, before its end or after.
        members: what its members held, and the calls of endpoints.
    """

    diagnosis: Diagnosis | None
    final: Event | None
    held_s: float
    figures: dict[str, float] = field(default_factory=dict)
    image: str = ""
    exit_code: int | None = None
    role: str = ""
    deleted: bool = False
    members: tuple[Holding, ...] = ()

    @property
    def made_dataset(self) -> bool:
        """True if the Job made the dataset that is there: it ended well, and did not find that another one had."""
        return self.exit_code == 0 and not (self.final or {}).get("reused")

    @property
    def was_deleted(self) -> bool:
        """True if the Job was deleted before its outcome was known."""
        return self.diagnosis is not None and self.diagnosis.reason is Reason.DELETED


class JobFollower:
    """Decides from the state of the Job and its pod alone; a watch only makes it look sooner.

    Nothing is lost when watches or logs break, because nothing but the log's lines is taken from a stream, and those
    are read again from where they broke off.

    Args:
        api: the cluster.
        settings: how patient to be.
        name: name of the Job.
        stage: name of the stage, for its log.
        on_event: receives each event of the stage but the final one.
        adopted: the Job was there before this follower; its own times are used then.
        engine: name of the stage's engine.
        groups: members that the Job has in addition to its own pod, by role.
        endpoints: to which it sends calls, by role.
    """

    def __init__(
        self,
        api: KubernetesApi,
        settings: KubernetesSettings,
        name: str,
        stage: str,
        on_event: Callable[[Event], None],
        *,
        adopted: bool = False,
        engine: str = IN_PROCESS,
        groups: Mapping[str, Group] = {},
        endpoints: Mapping[str, Endpoint] = {},
    ):
        self._api, self._settings, self.name, self._stage = api, settings, name, stage
        self._on_event, self._adopted = on_event, adopted
        self.wake = asyncio.Event()
        self._job: Json | None = None
        self._pod = PodStatus(None)
        self._replaced = False
        self._final: Event | None = None
        self._seen: dict[str, float] = {"created": time.monotonic()}
        self._patience = StartTimeout(settings, self._say)
        self._members: Sequence[PodGroup] = ()
        self._calls = EndpointCalls(endpoints)
        if groups:
            self._members = engine_on_cluster(engine).members(FollowedJob(api, settings, name, self._say), groups)
        self._log: asyncio.Task[None] | None = None
        self._log_ended = asyncio.Event()

    async def follow(self) -> Ended:
        """Wait for the end.

        Raises:
            Unreachable: the API did not answer for longer than the settings' patience.
        """
        try:
            problem, role = None, ""
            while not await self._look():
                problem = await self._waiting()
                for members in self._members if problem is None and "started" in self._seen else ():
                    if problem is None and (problem := await members.look(self._pod.pod)) is not None:
                        role = members.role
                problem = problem or self._overdue()
                if problem is not None:
                    break
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.wake.wait(), RESYNC_SECONDS)
                self.wake.clear()
            self._seen.setdefault("ended", time.monotonic())
            await self._finish_log()
            if problem is None and self._replaced:
                problem = pod_deleted("its pod was deleted while it ran")
            elif problem is None and self._pod.exit_code != 0:
                await self._await_condition()
                problem = diagnose(self._job, self._pod.pod) or Diagnosis(
                    Reason.DELETED, "its pod is gone for an unknown reason", "Run again to resume."
                )
            for members in self._members:
                if self._pod.terminated:
                    await members.finish()
                if problem is not None and not role and (lost := members.failure(problem)) is not None:
                    problem, role = lost, members.role
            return Ended(
                diagnosis=problem, final=self._final or self._kept_event(), held_s=self.held_s(),
                members=self.members_held(),
                figures=await self._figures(), image=self._image(), exit_code=self._pod.exit_code,
                role=role, deleted=self._job is None,
            )  # fmt: skip
        finally:
            if self._log is not None:
                self._log.cancel()

    async def _look(self) -> bool:
        """Take in the present state; True when the Job or its container has ended."""
        job = await self._api.get(f"{self._api.jobs}/{self.name}")
        pods = await self._api.items(self._api.pods, labelSelector=f"job-name={self.name}")
        self._job = job
        if pods:
            # A Job makes another pod in place of a deleted one. That would be an attempt that nobody counts.
            by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
            first = min(by_uid, key=lambda uid: str(by_uid[uid]["metadata"]["creationTimestamp"]))
            followed = self._pod.metadata.get("uid", first)
            self._replaced = by_uid.keys() != {followed}
            self._pod = PodStatus(by_uid.get(followed, self._pod.pod))
        gone = job is None or "deletionTimestamp" in job["metadata"]
        if gone:
            self._job = None
        self._note_times()
        self._start_log()
        ended = self._replaced or bool(self._pod.terminated) or self._pod.status.get("phase") == "Failed"
        return gone or ended or self._job_finished()

    def _note_times(self) -> None:
        if ((self._job or {}).get("status") or {}).get("startTime"):
            self._seen.setdefault("counted", time.monotonic())
        if condition(self._pod.status, "PodScheduled").get("status") == "True":
            self._seen.setdefault("scheduled", time.monotonic())
        if self._pod.started:
            self._seen.setdefault("started", time.monotonic())

    async def _waiting(self) -> Diagnosis | None:
        """The problem that kept the Job from starting for longer than the settings' patience."""
        events: list[Json] = []
        if "started" not in self._seen and time.monotonic() - self._seen["created"] > 2:
            events = await self._events()
        return self._patience.consider(waiting_problem(self._pod.pod, events), "started" in self._seen)

    def _overdue(self) -> Diagnosis | None:
        """The Job's deadline, for clusters that miss it: a controller may be down, or a pod's end be lost."""
        job = self._job or {}
        most = (job.get("spec") or {}).get("activeDeadlineSeconds")
        if most is None or "counted" not in self._seen:
            return None
        late = time.monotonic() - self._seen["counted"] - most - self._settings.grace_s
        return past_deadline(job) if late > LATE_SECONDS else None

    async def _events(self) -> list[Json]:
        about = self._pod.metadata or (self._job or {}).get("metadata")
        return await events_of(self._api, about) if about else []

    def _start_log(self) -> None:
        pod = self._pod
        if not pod.started or self._log is not None:
            return
        self._log = asyncio.create_task(
            read_log(self._api, pod.name, self._line, self._log_ended), name=f"log {self.name}"
        )

    def _say(self, message: str) -> None:
        self._on_event({"event": "log", "stage": self._stage, "message": message})

    def _line(self, line: str) -> None:
        for event in output_events(line, self._stage):
            if event["event"] in ("done", "error"):
                self._final = event
                continue
            for members in self._members:
                if members.hear(event):
                    self.wake.set()
            self._calls.take(event)
            self._on_event(event)

    async def _finish_log(self) -> None:
        if self._log is None:
            return
        self._log_ended.set()
        await asyncio.wait({self._log}, timeout=LOG_SECONDS)
        if self._log.done() and not self._log.cancelled() and (error := self._log.exception()) is not None:
            raise error

    async def _await_condition(self) -> None:
        """Wait for the Job's own condition: its deadline and its deletion both show as a signal at first."""
        until = time.monotonic() + SETTLE_SECONDS
        while self._job is not None and not self._job_finished() and time.monotonic() < until:
            await asyncio.sleep(0.2)
            await self._look()

    async def _figures(self) -> dict[str, float]:
        seen, figures = self._seen, {}
        if not self._adopted and "scheduled" in seen:
            figures["schedule_s"] = seen["scheduled"] - seen["created"]
            if "started" in seen:
                figures["start_s"] = seen["started"] - seen["scheduled"]
        if (pulled := await self._pull_seconds()) is not None:
            figures["pull_s"] = pulled
        for members in self._members:
            figures |= members.figures()
        return figures

    async def _pull_seconds(self) -> float | None:
        """Seconds of pulling the image, from the pod's events; 0 where the node had it."""
        if self._pod.pod is None or "started" not in self._seen:
            return None
        for event in await self._events():
            if event.get("reason") == "Pulled":
                message = str(event.get("message") or "")
                took = re.search(r"in ((?:\d+h)?(?:\d+m(?!s))?(?:[\d.]+m?s)?)", message)
                return parse_duration(took[1]) if took and "already present" not in message else 0.0
        return None

    def held_s(self) -> float:
        """Seconds from the moment that a node was given to the container's end, or until now."""
        if self._adopted and (began := self._pod.scheduled_at) is not None:
            return max(0.0, ((self._pod.finished_at or datetime.now(UTC)) - began).total_seconds())
        if "scheduled" not in self._seen:
            return 0.0
        return self._seen.get("ended", time.monotonic()) - self._seen["scheduled"]

    def members_held(self) -> tuple[Holding, ...]:
        """Resources that the members of the Job have held so far, and the calls of endpoints."""
        held = (each for members in self._members for each in members.holdings(self._pod.pod))
        return (*held, *self._calls.holdings(self.held_s()))

    def _kept_event(self) -> Event | None:
        """The stage's last output that came with the pod's status, where the log was lost."""
        for line in reversed(str(self._pod.terminated.get("message") or "").splitlines()):
            event = output_events(line, self._stage)[-1]
            if event["event"] in ("done", "error"):
                return event
        return None

    def _job_finished(self) -> bool:
        return self._job is not None and is_finished(self._job)

    def _image(self) -> str:
        container = self._pod.container
        name, digest = str(container.get("image") or ""), str(container.get("imageID") or "")
        return f"{name.partition('@')[0]}@{digest.rpartition('@')[2]}" if digest else name


def parse_duration(text: str) -> float:
    """Seconds of a Go duration such as `1m2.5s` or `830ms`."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(ms|h|m|s)", text))
