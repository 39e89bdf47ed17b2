"""Stages as Kubernetes Jobs."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import json
import queue
import threading
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import aiohttp

from infra.dataset import Dataset
from infra.errors import StagedUserError, StageFailed, SuperworkflowError
from infra.filesystem import Location
from infra.kubernetes.api import ApiError, Json, KubernetesApi
from infra.kubernetes.executors import remove_executors
from infra.kubernetes.follow import Ended, JobFollower
from infra.kubernetes.job import MANAGED_BY, PREFIX, job_manifest, label_value, on_spark_cluster
from infra.kubernetes.jobs import remove_job
from infra.kubernetes.owner import own_pod
from infra.kubernetes.settings import KubernetesSettings
from infra.kubernetes.sizing import Sizing
from infra.kubernetes.spark import EXECUTOR_LABEL
from infra.kubernetes.visible import input_bytes, make_visible
from infra.launch.base import Attempt, Event, Launched, Launcher, StageCall
from infra.launch.exit_status import Reason
from infra.manifest import Measurement
from infra.resources import Resources, format_bytes

T = TypeVar("T")

REMOVE_SECONDS = 25.0
"""How long the removal of one Job and its pods may take."""

CANCEL_SECONDS = 30.0
"""How long `cancel` waits for the Jobs to be gone."""

_MORE_MEMORY = (Reason.OUT_OF_MEMORY, Reason.KILLED)
"""Ends that more memory may mend: where a child of the stage ran out of it, the container only looks killed."""


class KubernetesLauncher(Launcher):
    """Makes one Job for each attempt at a call, and follows it.

    Threads call `launch`; what talks to the cluster is one event loop in a thread of its own.

    Args:
        settings: the profile's `kubernetes` part.
    """

    def __init__(self, settings: KubernetesSettings):
        self._settings = settings
        self.id = uuid.uuid4().hex[:12]
        self._loop = asyncio.new_event_loop()
        self._followers: dict[str, JobFollower] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._cancelled = False
        self._guard = threading.Lock()
        self._connected: asyncio.Task[KubernetesApi] | None = None
        self._watch: asyncio.Task[None] | None = None
        threading.Thread(target=self._loop.run_forever, name="kubernetes", daemon=True).start()
        atexit.register(self._close)

    def launch(self, call: StageCall, on_event: Callable[[Event], None]) -> Launched:
        """Run one stage; see `Launcher`."""
        events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        with self._guard:
            if self._cancelled:
                raise StageFailed(call.node, "the run was cancelled before the stage began.")
            future = self._submit(self._tracked(self._run(call, events.put)))
        future.add_done_callback(lambda _: events.put(None))
        try:
            while (event := events.get()) is not None:
                on_event(event)
            return future.result()
        except (asyncio.CancelledError, concurrent.futures.CancelledError):
            raise StageFailed(call.node, "it was cancelled.", "Run again to go on.") from None
        except BaseException:
            future.cancel()  # the listener failed: what it listened to ends with it
            concurrent.futures.wait([future], CANCEL_SECONDS)
            self._submit(self._idle()).result(CANCEL_SECONDS)
            raise

    def cancel(self) -> None:
        """Delete all Jobs of this launcher; see `Launcher`."""
        with self._guard:
            self._cancelled = True
        with contextlib.suppress(TimeoutError, concurrent.futures.TimeoutError):
            self._submit(self._cancel()).result(CANCEL_SECONDS)

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _tracked(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            return await work
        finally:
            self._running.discard(task)

    async def _cancel(self) -> None:
        for task in list(self._running):
            task.cancel()
        await self._idle()

    async def _idle(self) -> None:
        if ending := [task for task in self._running if task.cancelling()]:
            await asyncio.wait(ending)

    async def _api(self) -> KubernetesApi:
        if self._connected is None or (self._connected.done() and self._connected.exception() is not None):
            self._connected = asyncio.create_task(KubernetesApi.connect(self._settings))
        return await asyncio.shield(self._connected)

    async def _run(self, call: StageCall, tell: Callable[[Event], None]) -> Launched:
        api = await self._api()
        if self._watch is None:
            self._watch = asyncio.create_task(self._watch_pods(api))
        asked, call = call, await asyncio.to_thread(make_visible, call, self._settings)
        size = await asyncio.to_thread(input_bytes, call)
        sizing = Sizing(_store(call))
        resources = call.placement.resources
        for of_executor in (False, True) if resources.executors and on_spark_cluster(call) else (False,):
            key = _sizing_key(call, of_executor)
            remembered = min(await asyncio.to_thread(sizing.memory, key, size), self._settings.memory_cap)
            if remembered > memory_of(resources, of_executor):
                more = format_bytes(remembered) + (" for each executor" if of_executor else "")
                _log(call, tell, f"starts with {more}: less was not enough for such an input before")
                resources = with_memory(resources, remembered, of_executor)
        attempts: list[Attempt] = []
        raised: set[bool] = set()
        dead: list[str] = []
        while True:
            ended, resources = await self._attempt(api, call, resources, len(attempts) + 1, tell, dead)
            reason = ended.diagnosis.reason if ended.diagnosis else None
            attempts.append(Attempt(resources, ended.held_s, reason))
            dataset = await asyncio.to_thread(_complete, call)
            if dataset is not None:
                for grown in raised:
                    memory = memory_of(resources, grown)
                    await asyncio.to_thread(sizing.remember, _sizing_key(call, grown), size, memory)
                return _launched(ended, dataset, attempts)
            had = memory_of(resources, ended.of_executor)
            more_memory = min(int(had * self._settings.memory_factor), self._settings.memory_cap)
            if reason not in _MORE_MEMORY or more_memory <= had:
                raise _failure(asked, call, ended)
            assert ended.diagnosis is not None
            each = " for each executor" if ended.of_executor else ""
            _log(call, tell, f"{ended.diagnosis.summary}; tries again with {format_bytes(more_memory)}{each}")
            resources = with_memory(resources, more_memory, ended.of_executor)
            raised.add(ended.of_executor)

    async def _attempt(
        self,
        api: KubernetesApi,
        call: StageCall,
        resources: Resources,
        number: int,
        tell: Callable[[Event], None],
        dead: list[str],
    ) -> tuple[Ended, Resources]:
        """One Job to its end: one that another launcher left running for the same dataset, or a new one.

        `dead` are Jobs for this dataset whose stages have ended, for whose leases the next one does not wait.
        """
        adopted = await self._adopt(api, call, dead)
        if adopted is not None:
            name, resources = adopted["metadata"]["name"], job_resources(adopted, resources)
            _log(call, tell, f"adopts the Job {name}, which makes this dataset already")
        else:
            owner = await own_pod(api)
            manifest = job_manifest(
                call, self._settings, resources, launcher=self.id, attempt=number, owner=owner, supersedes=dead
            )
            name = manifest["metadata"]["name"]
        keep = False
        try:
            if adopted is None:
                await api.create(api.jobs, manifest)
            follower = JobFollower(
                api, self._settings, name, call.stage, tell, adopted=adopted is not None,
                executors=resources.executors if on_spark_cluster(call) else None,
            )  # fmt: skip
            self._followers[name] = follower
            ended = await follower.follow()
            if ended.exit_code is not None:
                dead.append(name)
            # A container that failed by itself is left to be looked at, until its time to live is over.
            keep = ended.exit_code not in (None, 0) and bool(self._settings.ttl_s)
            return ended, resources
        finally:
            self._followers.pop(name, None)
            await _to_the_end(self._remove(api, name, call, tell, keep))

    async def _adopt(self, api: KubernetesApi, call: StageCall, dead: list[str]) -> Json | None:
        digest = label_value(call.output.rsplit("/", 1)[-1])
        selector = ",".join(f"{key}={value}" for key, value in {**MANAGED_BY, PREFIX + "digest": digest}.items())
        for job in await api.items(api.jobs, labelSelector=selector):
            conditions = (job.get("status") or {}).get("conditions") or ()
            finished = any(c["status"] == "True" and c["type"] in ("Complete", "Failed") for c in conditions)
            if finished and _output(job) == call.output and job["metadata"]["name"] not in dead:
                dead.append(job["metadata"]["name"])
            if not finished and "deletionTimestamp" not in job["metadata"] and _output(job) == call.output:
                await api.label(f"{api.jobs}/{job['metadata']['name']}", {PREFIX + "launcher": self.id})
                return job
        return None

    async def _remove(
        self, api: KubernetesApi, name: str, call: StageCall, tell: Callable[[Event], None], keep: bool
    ) -> None:
        """Remove a Job and its executors; of one that is kept to be looked at, the executors alone."""
        try:
            removal = remove_executors(api, name) if keep else self._delete(api, name)
            await asyncio.wait_for(removal, REMOVE_SECONDS)
        except (TimeoutError, SuperworkflowError) as error:
            _log(call, tell, f"the Job {name} could not be removed ({error}); see `superworkflow jobs --clean`")

    async def _delete(self, api: KubernetesApi, name: str) -> None:
        """Delete a Job, unless another launcher has adopted it, and wait until its pods are gone."""
        job = await api.get(f"{api.jobs}/{name}")
        if job is None or job["metadata"]["labels"].get(PREFIX + "launcher") == self.id:
            await remove_job(api, name)

    async def _watch_pods(self, api: KubernetesApi) -> None:
        """Wake the followers when their pods change. What it misses, they see a little later by themselves."""
        selector = ",".join(f"{key}={value}" for key, value in MANAGED_BY.items())
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, ApiError, ValueError):
                async for line in api.lines(api.pods, watch="true", labelSelector=selector, timeoutSeconds="25"):
                    metadata = json.loads(line)["object"].get("metadata") or {}
                    labels = metadata.get("labels") or {}
                    follower = self._followers.get(labels.get("job-name") or labels.get(EXECUTOR_LABEL) or "")
                    if follower is not None:
                        follower.wake.set()
            await asyncio.sleep(0.5)

    def _close(self) -> None:
        """At the end of the process: close the connections, for which daemon threads get no time."""

        async def close() -> None:
            if self._watch is not None:
                self._watch.cancel()
            if self._connected is not None and self._connected.done() and not self._connected.exception():
                await self._connected.result().close()

        with contextlib.suppress(Exception):
            self._submit(close()).result(2)


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish what must not be left half done, also when the waiting task is cancelled once more."""
    task = asyncio.create_task(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


def _log(call: StageCall, tell: Callable[[Event], None], message: str) -> None:
    tell({"event": "log", "stage": call.stage, "message": message})


def _sizing_key(call: StageCall, of_executor: bool) -> str:
    """Under which what was enough is remembered: what a stage needs in process says nothing of it on Spark."""
    if not on_spark_cluster(call):
        return call.stage
    return f"{call.stage}.{'executor' if of_executor else 'driver'}"


def memory_of(resources: Resources, of_executor: bool) -> int:
    """Bytes of the stage's own pod, or of each executor."""
    return resources.executors.memory if of_executor and resources.executors else resources.memory


def with_memory(resources: Resources, memory: int, of_executor: bool) -> Resources:
    """The same with other memory for the stage's own pod, or for each executor."""
    if of_executor and resources.executors:
        executors = resources.executors.model_copy(update={"memory": memory})
        return resources.model_copy(update={"executors": executors})
    return resources.model_copy(update={"memory": memory})


def _store(call: StageCall) -> Location:
    return Location.of(call.output.rsplit("/", 2)[0])


def _complete(call: StageCall) -> Dataset | None:
    """The dataset, whatever the log and the Job say: with a manifest it is complete."""
    return Dataset.find(Location.of(call.output))


def _output(job: Json) -> str | None:
    return _argument(job, "--output")


def _argument(job: Json, flag: str) -> str | None:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    arguments = container.get("args") or []
    return arguments[arguments.index(flag) + 1] if flag in arguments[:-1] else None


def job_resources(job: Json, default: Resources) -> Resources:
    """Resources of a Job that an earlier launcher made."""
    text = _argument(job, "--resources-json")
    return Resources.model_validate_json(text) if text else default


def _launched(ended: Ended, dataset: Dataset, attempts: list[Attempt]) -> Launched:
    final = ended.final if ended.final is not None and ended.final["event"] == "done" else {}
    measured: Measurement = dataset.manifest.measured
    resources = attempts[-1].resources
    figures = {**ended.figures, "requested_memory_bytes": float(resources.memory), "requested_cpu": resources.cpu}
    if measured.container_peak_memory_bytes is not None:
        figures["container_peak_memory_bytes"] = float(measured.container_peak_memory_bytes)
        figures["used_memory_share"] = measured.container_peak_memory_bytes / resources.memory
    if measured.container_cpu_s is not None:
        figures["container_cpu_s"] = measured.container_cpu_s
        figures["used_cpu_share"] = measured.container_cpu_s / max(measured.runtime_s, 1e-3) / resources.cpu
    return Launched(
        measured, bool(final.get("reused")), sum(a.seconds for a in attempts), tuple(attempts), figures, ended.image
    )


def _failure(asked: StageCall, call: StageCall, ended: Ended) -> SuperworkflowError:
    final, diagnosis = ended.final, ended.diagnosis
    if final is not None and final["event"] == "error" and (diagnosis is None or diagnosis.reason is Reason.FAILED):
        message = str(final["message"])
        for name, uri in call.inputs.items():
            message = message.replace(uri, asked.inputs[name])  # people know their own file, not its copy in the store
        if final.get("user"):
            return StagedUserError(message)
        return StageFailed(call.node, message, "Its log is above.", ended.exit_code)
    if diagnosis is None:
        remedy = f"Check that pods and this machine see the same store: {_store(call).uri}."
        return StageFailed(call.node, "it ended well and left no dataset.", remedy, 0)
    return StageFailed(call.node, f"{diagnosis.summary}.", diagnosis.resolution, ended.exit_code)
