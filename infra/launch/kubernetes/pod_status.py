"""State of one pod and of its container, as the API reports them."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.quantities import read_time

CONTAINER = "stage"
"""Name of the container that runs the stage."""


@dataclass(frozen=True)
class PodStatus:
    """State of a pod; everything is empty before there is one.

    Args:
        pod: the pod as the API gives it; None before it has been seen.
    """

    pod: Json | None

    @property
    def metadata(self) -> Json:
        """Name and times of the pod."""
        return (self.pod or {}).get("metadata") or {}

    @property
    def name(self) -> str:
        """Name of the pod."""
        return str(self.metadata["name"])

    @property
    def status(self) -> Json:
        """Phase, conditions and containers of the pod."""
        return (self.pod or {}).get("status") or {}

    @property
    def container(self) -> Json:
        """Status of the stage's container."""
        return next((c for c in self.status.get("containerStatuses") or () if c.get("name") == CONTAINER), {})

    @property
    def spec(self) -> Json:
        """Specification of the stage's container."""
        containers = ((self.pod or {}).get("spec") or {}).get("containers") or ()
        return next((c for c in containers if c.get("name") == CONTAINER), {})

    @property
    def memory_limit(self) -> Any:
        """Limit of the container's memory as Kubernetes writes it; None where there is none."""
        return ((self.spec.get("resources") or {}).get("limits") or {}).get("memory")

    @property
    def state(self) -> Json:
        """State of the container: empty, or one of `waiting`, `running` and `terminated`."""
        return self.container.get("state") or {}

    @property
    def running(self) -> bool:
        """True while the container runs."""
        return "running" in self.state

    @property
    def started(self) -> bool:
        """True once the container runs or has ended."""
        return bool(self.state.keys() & {"running", "terminated"})

    @property
    def terminated(self) -> Json:
        """End of the container; empty before it."""
        return self.state.get("terminated") or {}

    @property
    def exit_code(self) -> int | None:
        """Exit status of the container; None before it has ended."""
        return self.terminated.get("exitCode")

    @property
    def report(self) -> Json:
        """JSON object that the container left as its termination message; empty for other text."""
        with contextlib.suppress(ValueError):
            report = json.loads(self.terminated.get("message") or "{}")
            if isinstance(report, dict):
                return report
        return {}

    @property
    def out_of_memory(self) -> bool:
        """True if the kernel has ended the container, or a process of it, for lack of memory."""
        return self.terminated.get("reason") == "OOMKilled" or bool(self.report.get("out_of_memory_kills"))

    @property
    def scheduled_at(self) -> datetime | None:
        """Time at which the pod was given a node."""
        found = condition(self.status, "PodScheduled")
        return read_time(found.get("lastTransitionTime")) if found.get("status") == "True" else None

    @property
    def started_at(self) -> datetime | None:
        """Time at which the container started."""
        return read_time((self.state.get("running") or self.terminated).get("startedAt"))

    @property
    def finished_at(self) -> datetime | None:
        """Time at which the container ended."""
        return read_time(self.terminated.get("finishedAt"))


def condition(status: Json, kind: str) -> Json:
    """Condition of a kind in the status of a pod or Job; empty where it is not reported."""
    return next((c for c in status.get("conditions") or () if c.get("type") == kind), {})


async def events_of(api: KubernetesApi, metadata: Json) -> list[Json]:
    """Events about a pod or Job, the newest last."""
    found = await api.items(api.events, fieldSelector=f"involvedObject.uid={metadata['uid']}")
    return sorted(found, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
