"""Job ownership: a launcher owns a Job while its heartbeat is fresh; then another may adopt it.

A launcher renews a heartbeat on each of its Jobs. Another one that wants the same dataset follows the Job as a guest:
it neither ends nor changes it. Only when the heartbeat has stood still for a time, on the guest's own monotonic clock
and while the API answered, the guest adopts the Job, by a patch that is refused when anything of this has changed.
Clocks of two machines are never compared. A process of this very machine is seen to be dead at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from superworkflow.infra.base.errors import SuperworkflowError
from superworkflow.infra.launch.kubernetes.api import ApiError, Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.job_manifest import PREFIX, OwnerPod, ours, owner_references
from superworkflow.infra.process.identity import ProcessIdentity, has_ended

LAUNCHER = PREFIX + "launcher"
HEARTBEAT = PREFIX + "heartbeat"
PROCESS = PREFIX + "launcher-process"

RENEW_SECONDS = 10.0
DEAD_SECONDS = 45.0
"""Seconds after which a launcher whose heartbeat was seen not to change is dead."""
LOOK_SECONDS = 2.0

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


async def _never() -> bool:
    return False


async def own_pod(api: KubernetesApi) -> OwnerPod | None:
    """The flow's own pod, which then owns its Jobs; None outside of a cluster, or in another namespace than theirs."""
    if "KUBERNETES_SERVICE_HOST" not in os.environ or not _NAMESPACE.exists():
        return None
    if _NAMESPACE.read_text().strip() != api.namespace:
        return None  # owners of another namespace do not exist for Kubernetes, which would delete the Job
    name = os.environ.get("POD_NAME") or socket.gethostname()
    if uid := os.environ.get("POD_UID"):
        return OwnerPod(name, uid)
    try:
        pod = await api.get(f"{api.pods}/{name}")
    except ApiError:
        return None
    return OwnerPod(name, pod["metadata"]["uid"]) if pod else None


def sign(manifest: Json) -> None:
    """Mark a Job that is about to be made with the process of its launcher and a first heartbeat."""
    manifest["metadata"].setdefault("annotations", {}).update(
        {HEARTBEAT: _beat(), PROCESS: str(ProcessIdentity.here())}
    )


def launcher_of(job: Json) -> tuple[str, str]:
    """Id of the launcher that holds a Job, and its process."""
    metadata = job["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return str(labels.get(LAUNCHER, "")), str(annotations.get(PROCESS, ""))


class JobOwnership:
    """One launcher's relation to one Job: its own, or a guest's.

    Args:
        api: the cluster.
        job: the Job, as it was read or as it is about to be made.
        launcher: id of the launcher that looks.
        owned: it has made the Job.
        owner: pod that is to own the Job when it is adopted.
        log: receives changes of ownership.
    """

    def __init__(
        self,
        api: KubernetesApi,
        job: Json,
        launcher: str,
        *,
        owned: bool,
        owner: OwnerPod | None,
        log: Callable[[str], None],
    ):
        self._api, self._launcher, self._owner, self._log = api, launcher, owner, log
        self._name = str(job["metadata"]["name"])
        self._path = f"{api.jobs}/{self._name}"
        self.owned = owned

    async def keep(self) -> None:
        """Renew the heartbeat of an own Job; adopt that of another launcher once it is dead. Ends with the Job."""
        here = True
        while here:
            # The API may allow later what it refuses now; the follower reports one that is away for too long.
            with contextlib.suppress(SuperworkflowError):
                here = await self._once()
            await asyncio.sleep(RENEW_SECONDS if self.owned else 0.1)

    async def _once(self) -> bool:
        """Look at the Job and do what is to be done; False when it is gone."""
        job = await self._api.get(self._path)
        if job is None or "deletionTimestamp" in job["metadata"]:
            return False
        if self.owned:
            await self._renew()
        elif await is_dead(self._api, *launcher_of(job), unless=self._gone) and await self.adopt(job):
            self._log(f"adopting the Job {self._name}: the run that made it has died")
        return True

    async def adopt_at_once(self, job: Json) -> bool:
        """Adopt it where its launcher is known to be dead without waiting."""
        return has_ended(launcher_of(job)[1]) and await self.adopt(job)

    async def adopt(self, job: Json) -> bool:
        """Make the Job this launcher's own, unless its launcher has shown itself, or another was faster.

        Args:
            job: as it was when its launcher was found dead or before.
        """
        before, annotations = launcher_of(job)[0], job["metadata"].get("annotations")
        operations: list[Json] = [{"op": "test", "path": _label(LAUNCHER), "value": before}]
        if annotations is None:
            operations.append({"op": "add", "path": "/metadata/annotations", "value": {}})
        else:
            operations.append({"op": "test", "path": _annotation(HEARTBEAT), "value": annotations.get(HEARTBEAT)})
        operations += [
            {"op": "add", "path": _label(LAUNCHER), "value": self._launcher},
            {"op": "add", "path": _annotation(HEARTBEAT), "value": _beat()},
            {"op": "add", "path": _annotation(PROCESS), "value": str(ProcessIdentity.here())},
            # It would end with the pod of the dead flow.
            {"op": "add", "path": "/metadata/ownerReferences", "value": owner_references(self._owner)},
        ]
        adopted = await self._api.change(self._path, operations)
        if not adopted:  # or the answer to a patch that was done got lost, and its repetition was refused
            now = await self._api.get(self._path)
            adopted = now is not None and before != self._launcher and launcher_of(now)[0] == self._launcher
        self.owned = self.owned or adopted
        return adopted

    async def _renew(self) -> None:
        renewed = await self._api.change(
            self._path,
            [
                {"op": "test", "path": _label(LAUNCHER), "value": self._launcher},
                {"op": "add", "path": _annotation(HEARTBEAT), "value": _beat()},
            ],
        )
        if not renewed and (job := await self._api.get(self._path)) is not None:
            self.owned = launcher_of(job)[0] == self._launcher
            if not self.owned:
                self._log(f"another run has taken over the Job {self._name}: this one was cut off for too long")

    async def _gone(self) -> bool:
        return await self._api.get(self._path) is None


async def is_dead(
    api: KubernetesApi, launcher: str, process: str, *, unless: Callable[[], Awaitable[bool]] = _never
) -> bool:
    """Wait until a launcher shows that it lives, or has been silent for `DEAD_SECONDS`.

    Time in which the API did not answer, or this process did not run, does not count: the launcher could not be seen.

    Args:
        api: the cluster.
        launcher: its id.
        process: identity of its process, as text.
        unless: the question is no longer of interest; the answer is then False.
    """
    if has_ended(process):
        return True
    first, silent, looked = await _heartbeats(api, launcher), 0.0, time.monotonic()
    while silent < DEAD_SECONDS:
        await asyncio.sleep(min(LOOK_SECONDS, DEAD_SECONDS))
        if await unless():
            return False
        if has_ended(process):
            return True
        now = await _heartbeats(api, launcher)
        if any(first.get(name) != beat for name, beat in now.items()):
            return False
        silent += min(time.monotonic() - looked, 2 * LOOK_SECONDS)
        looked = time.monotonic()
    return True


async def _heartbeats(api: KubernetesApi, launcher: str) -> dict[str, str | None]:
    """Heartbeats of a launcher's Jobs, by the Job's name."""
    jobs = await api.items(api.jobs, labelSelector=ours(launcher=launcher))
    return {job["metadata"]["name"]: (job["metadata"].get("annotations") or {}).get(HEARTBEAT) for job in jobs}


def _beat() -> str:
    """A text that is never the same twice."""
    return f"{os.getpid()}-{time.monotonic_ns()}"


def _label(name: str) -> str:
    return f"/metadata/labels/{name.replace('/', '~1')}"


def _annotation(name: str) -> str:
    return f"/metadata/annotations/{name.replace('/', '~1')}"
