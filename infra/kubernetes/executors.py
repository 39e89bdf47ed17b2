"""The executors of one Spark driver, as their pods show them: why they do not start, how they ended, what they used."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from superworkflow.infra.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.kubernetes.diagnosis import CONTAINER, diagnose, waiting_problem
from superworkflow.infra.kubernetes.patience import Patience
from superworkflow.infra.kubernetes.settings import KubernetesSettings
from superworkflow.infra.kubernetes.spark import EXECUTOR_LABEL
from superworkflow.infra.launch.exit_status import Diagnosis, Reason

END_SECONDS = 10.0
"""How long executors may take to end after their driver has."""

_KNOWS_LITTLE = (Reason.FAILED, Reason.CRASHED)
"""Ends of a driver that may come from its executors; others, such as a deadline, end its executors."""
_OUTSIDE = (Reason.EVICTED, Reason.NODE_LOST, Reason.NOT_STARTED, Reason.IMAGE_MISSING)
_LEFT_ALONE = "disassociated"
"""What an executor says that ends because its driver has."""


class ExecutorPods:
    """What was seen of the executors of one Job; pods that are deleted meanwhile are not forgotten.

    Args:
        api: the cluster.
        settings: how patient to be.
        job: name of the Job.
        count: how many the driver asks for.
        tell: receives what keeps executors from starting.
    """

    def __init__(
        self, api: KubernetesApi, settings: KubernetesSettings, job: str, count: int, tell: Callable[[str], None]
    ):
        self._api, self._selector, self._count = api, f"{EXECUTOR_LABEL}={job}", count
        self._patience = Patience(settings, tell)
        self._seen: dict[str, Json] = {}
        self._gone: dict[str, datetime] = {}

    async def look(self) -> Diagnosis | None:
        """Take in the present state; why the driver need not be waited for, or None.

        That is what has kept all executors from starting for too long, or that as many as were asked for ran out of
        memory: Spark would try its tasks again on others of the same size.
        """
        pods = await self._api.items(self._api.pods, labelSelector=self._selector)
        present = {pod["metadata"]["name"]: pod for pod in pods}
        for name in self._seen.keys() - present.keys():
            self._gone.setdefault(name, datetime.now(UTC))
        self._seen |= present
        if sum(_out_of_memory(pod) for pod in self._seen.values()) >= self._count:
            return self._ended_badly()
        if any("running" in _state(pod) for pod in pods):
            return self._patience.consider(None, started=True)
        for pod in pods:
            if not _terminated(pod):
                found = waiting_problem(pod, await self._events(pod))
                if found is not None:
                    found = Diagnosis(found.reason, f"Spark executor: {found.summary}", found.resolution)
                return self._patience.consider(found, started=False)
        return None

    async def finish(self) -> None:
        """Wait until all have ended, for their figures; those that have not within a time are left."""
        until = time.monotonic() + END_SECONDS
        await self.look()
        while time.monotonic() < until and any("running" in _state(self._seen[name]) for name in self._present()):
            await asyncio.sleep(0.2)
            await self.look()

    def _present(self) -> list[str]:
        return [name for name in self._seen if name not in self._gone]

    def failure(self, driver: Diagnosis) -> Diagnosis | None:
        """How executors ended, where that is why their driver failed and it cannot know.

        Args:
            driver: why the driver failed, as its own pod and log tell.
        """
        return self._ended_badly() if driver.reason in _KNOWS_LITTLE else None

    def _ended_badly(self) -> Diagnosis | None:
        crashed = ""
        for name, pod in self._seen.items():
            found = None if _terminated(pod).get("exitCode") == 0 else diagnose({}, pod)
            if _out_of_memory(pod):
                limit = _limit(pod)
                return Diagnosis(
                    Reason.OUT_OF_MEMORY,
                    f"Spark executor {name} ran out of memory" + (f" (its limit was {limit})" if limit else ""),
                    "Give its executors more memory in the profile (`resources.executors.memory`), or raise "
                    "`kubernetes.memory_cap`.",
                )
            if found is not None and found.reason in _OUTSIDE:
                return Diagnosis(found.reason, f"Spark executor {name}: {found.summary}", found.resolution)
            if (code := _terminated(pod).get("exitCode")) and code != 143 and _LEFT_ALONE not in str(_told(pod)):
                crashed = str(_told(pod).get("error") or f"exit status {code}")
        if crashed and not any(_terminated(pod).get("exitCode") == 0 for pod in self._seen.values()):
            return Diagnosis(
                Reason.NOT_STARTED,
                f"none of {len(self._seen)} Spark executors stayed up; the last one said: {crashed}",
                "Check the image and the size of the executors.",
            )
        return None

    def figures(self, memory: int) -> dict[str, float]:
        """What the executors used, by name with its unit; empty where there were none.

        Args:
            memory: bytes that each was given.
        """
        started = [pod for pod in self._seen.values() if _began(pod) is not None]
        if not started:
            return {}
        told = [_told(pod) for pod in started]
        figures = {
            "executors": float(len(started)),
            "executors_lost": float(self._lost()),
            "executor_held_s": sum(self._held(pod) for pod in started),
            "executor_start_s": max(_startup(pod) for pod in started),
        }
        cpu = [each["cpu_s"] for each in told if each.get("cpu_s") is not None]
        peaks = [each["peak_memory_bytes"] for each in told if each.get("peak_memory_bytes") is not None]
        if cpu:
            figures["executor_cpu_s"] = float(sum(cpu))
        if peaks:
            figures["executor_peak_memory_bytes"] = float(max(peaks))
            figures["executor_used_memory_share"] = max(peaks) / memory
        return figures

    def _lost(self) -> int:
        """How many ended before the driver let them. It lets all go at once, which some then do with status 0; one
        that was still starting finds no driver."""
        well = [self._end(pod) for pod in self._seen.values() if _terminated(pod).get("exitCode") == 0]
        let_go = min(well, default=datetime.max.replace(tzinfo=UTC))
        badly = [pod for name, pod in self._seen.items() if _terminated(pod).get("exitCode", name in self._gone)]
        return sum(self._end(pod) < let_go for pod in badly)

    def _end(self, pod: Json) -> datetime:
        """When it ended, so far as was seen."""
        gone = self._gone.get(pod["metadata"]["name"]) or datetime.now(UTC)
        return _time(_terminated(pod).get("finishedAt")) or gone

    def _held(self, pod: Json) -> float:
        """Seconds for which its container ran, so far as was seen."""
        began = _began(pod)
        return 0.0 if began is None else max(0.0, (self._end(pod) - began).total_seconds())

    async def _events(self, pod: Json) -> list[Json]:
        found = await self._api.items(self._api.events, fieldSelector=f"involvedObject.uid={pod['metadata']['uid']}")
        return sorted(found, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))


async def remove_executors(api: KubernetesApi, job: str) -> None:
    """Delete the executors of a Job whose driver has ended, and wait until they are gone."""
    while pods := await api.items(api.pods, labelSelector=f"{EXECUTOR_LABEL}={job}"):
        for pod in pods:
            if "deletionTimestamp" not in pod["metadata"] or "running" not in _state(pod):
                await api.delete(f"{api.pods}/{pod['metadata']['name']}", **_grace(pod))
        await asyncio.sleep(0.2)


def _grace(pod: Json) -> dict[str, str]:
    """Nothing to wait for where nothing runs."""
    return {} if "running" in _state(pod) else {"gracePeriodSeconds": "0"}


def _container(pod: Json) -> Json:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((c for c in statuses if c["name"] == CONTAINER), {})


def _state(pod: Json) -> Json:
    return _container(pod).get("state") or {}


def _terminated(pod: Json) -> Json:
    return _state(pod).get("terminated") or {}


def _told(pod: Json) -> dict[str, Any]:
    """What the executor left in its termination message."""
    with contextlib.suppress(ValueError):
        told = json.loads(_terminated(pod).get("message") or "{}")
        if isinstance(told, dict):
            return told
    return {}


def _out_of_memory(pod: Json) -> bool:
    """Whether the kernel has ended the executor, or a Python process of it, for lack of memory."""
    return _terminated(pod).get("reason") == "OOMKilled" or bool(_told(pod).get("out_of_memory_kills"))


def _limit(pod: Json) -> str:
    containers = (pod.get("spec") or {}).get("containers") or ()
    found: Json = next((c for c in containers if c.get("name") == CONTAINER), {})
    return str(((found.get("resources") or {}).get("limits") or {}).get("memory") or "").replace("Mi", " MiB")


def _time(text: Any) -> datetime | None:
    return datetime.fromisoformat(str(text).replace("Z", "+00:00")) if text else None


def _began(pod: Json) -> datetime | None:
    """When its container started."""
    return _time((_state(pod).get("running") or {}).get("startedAt") or _terminated(pod).get("startedAt"))


def _startup(pod: Json) -> float:
    """Seconds from asking for it to the start of its container; the cluster tells whole seconds."""
    asked, began = _time(pod["metadata"].get("creationTimestamp")), _began(pod)
    return max(0.0, (began - asked).total_seconds()) if asked and began else 0.0
