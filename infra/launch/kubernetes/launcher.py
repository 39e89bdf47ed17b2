"""Stages as Kubernetes Jobs."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import json
import queue
import random
import threading
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import aiohttp

from superworkflow.infra.base.errors import StageFailed, SuperworkflowError
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.contract.resources import Resources, format_bytes
from superworkflow.infra.engines import engine
from superworkflow.infra.launch.base import Attempt, Event, Launched, Launcher, StageCall
from superworkflow.infra.launch.kubernetes.api import ApiError, Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.billing import JobBilling
from superworkflow.infra.launch.kubernetes.engines.base import engine_on_cluster
from superworkflow.infra.launch.kubernetes.job_admin import create_job, is_finished, remove_job
from superworkflow.infra.launch.kubernetes.job_follower import Ended, JobFollower
from superworkflow.infra.launch.kubernetes.job_manifest import (
    argument_of,
    job_manifest,
    label_value,
    ours,
)
from superworkflow.infra.launch.kubernetes.ownership import JobOwnership, launcher_of, own_pod, sign
from superworkflow.infra.launch.kubernetes.pod_group import MEMBER_OF, remove_members
from superworkflow.infra.launch.kubernetes.result import failure, job_attempt, launched, peak_memory, vanished
from superworkflow.infra.launch.kubernetes.single_flight import turn
from superworkflow.infra.launch.kubernetes.stage_inputs import make_visible
from superworkflow.infra.launch.memory_history import Sizing
from superworkflow.infra.process.exit_status import Reason
from superworkflow.infra.storage.dataset import Dataset

T = TypeVar("T")

REMOVE_SECONDS = 25.0
"""Seconds for the removal of one Job and its pods."""

CANCEL_SECONDS = 30.0
"""Seconds for which `cancel` waits until the Jobs are gone."""

SETTLE_SECONDS = 90.0
"""Seconds to find out the holdings of dead launchers' Jobs before their datasets are used without them."""

DISRUPTED_SECONDS = (1.0, 30.0)
"""Seconds before the first new Job after a disruption, doubled for each further one, and the most."""

GUEST_SECONDS = 3.0
"""Seconds in which a run whose Job ended must make the next one before a waiting run makes its own."""


@dataclass
class _Work:
    """One call in progress.

    Args:
        api: the cluster.
        call: the call; its inputs are replaced by copies that pods can read.
        on_event: receives the stage's events.
        account: bills its Jobs.
        attempts: so far.
        dead: Jobs whose stages have ended; the next attempt does not wait for their leases.
    """

    api: KubernetesApi
    call: StageCall
    on_event: Callable[[Event], None]
    account: JobBilling
    attempts: list[Attempt] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)

    def log(self, message: str) -> None:
        _log(self.call, self.on_event, message)


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
        self._followers: set[JobFollower] = set()
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
        paid: list[Attempt] = []
        with self._guard:
            if self._cancelled:
                raise StageFailed(call.node, "the run was cancelled before the stage began.")
            future = self._submit(self._tracked(self._run(call, events.put, paid)))
        future.add_done_callback(lambda _: events.put(None))
        try:
            while (event := events.get()) is not None:
                on_event(event)
            return future.result()
        except (asyncio.CancelledError, concurrent.futures.CancelledError):
            cancelled = StageFailed(call.node, "it was cancelled.", "Run again to resume.")
            cancelled.attempts = tuple(paid)
            raise cancelled from None
        except BaseException as error:
            future.cancel()  # the listener failed: what it listened to ends with it
            concurrent.futures.wait([future], CANCEL_SECONDS)
            self._submit(self._idle()).result(CANCEL_SECONDS)
            if isinstance(error, SuperworkflowError):
                error.attempts = tuple(paid)
            raise

    def claim_orphans(self, output: str) -> tuple[Attempt, ...]:
        """Jobs of dead launchers that made or tried this dataset; see `Launcher`."""
        try:
            return self._submit(self._tracked(self._claim_orphans(output))).result()
        except (asyncio.CancelledError, concurrent.futures.CancelledError):
            return ()

    async def _claim_orphans(self, output: str) -> tuple[Attempt, ...]:
        account = JobBilling(output, self.id, lambda message: None)
        if not await account.has_debts():
            return ()
        # What is there can be used without the cluster; where that is away, the debts remain for another time.
        with contextlib.suppress(TimeoutError, SuperworkflowError):
            api = await asyncio.wait_for(self._api(), SETTLE_SECONDS)
            return tuple(await account.book(await asyncio.wait_for(account.debts(api, self._settings), SETTLE_SECONDS)))
        return ()

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

    async def _run(self, call: StageCall, on_event: Callable[[Event], None], paid: list[Attempt]) -> Launched:
        """Jobs until there is a dataset or no hope; `paid` receives the attempts, however it ends."""
        api = await self._api()
        if self._watch is None:
            self._watch = asyncio.create_task(self._watch_pods(api))
        account = JobBilling(call.output, self.id, lambda message: _log(call, on_event, message))
        work = _Work(api, call, on_event, account)
        try:
            ended, dataset, resources, reused = await self._to_success(work)
        finally:
            paid += await _to_the_end(account.book(work.attempts))
        paid[:0] = await account.book(await account.debts(api, self._settings))
        return launched(ended, dataset, resources, paid, reused)

    async def _to_success(self, work: _Work) -> tuple[Ended, Dataset, Resources, bool]:
        """Return the end of the last Job, the dataset, the Job's holdings, and whether another run made it."""
        original = work.call
        work.call = call = await asyncio.to_thread(make_visible, original, self._settings)
        sizing = Sizing(call.place.store)
        resources = call.placement.resources
        for role in ("", *engine(call.placement.engine).groups(resources)):
            remembered = await asyncio.to_thread(sizing.memory, _sizing_key(call, role), call.expected_memory)
            remembered = min(remembered, self._settings.memory_cap)
            if remembered > resources.memory_of(role):
                more = format_bytes(remembered) + (f" for each {role}" if role else "")
                work.log(f"requesting {more}: a run of this size ran out of memory with less")
                resources = resources.with_memory(remembered, role)
        raised: set[str] = set()
        killed = gone = False
        disruptions = 0
        while True:
            ended, resources, owned = await self._attempt(work, resources)
            reason = ended.diagnosis.reason if ended.diagnosis else None
            dataset = await asyncio.to_thread(_complete, call)
            if dataset is not None:
                for grown in raised if ended.made_dataset else ():  # else what was enough was another Job's
                    enough = resources.memory_of(grown)
                    if peak := peak_memory(ended, dataset, grown):
                        enough = min(enough, 2 * peak)
                    key = _sizing_key(call, grown)
                    await asyncio.to_thread(sizing.remember, key, call.expected_memory, enough)
                return ended, dataset, resources, not owned or bool((ended.final or {}).get("reused"))
            if not owned and ended.deleted and reason is not Reason.OUT_OF_MEMORY:
                work.log("the run that owned this Job has ended it; continuing with a new Job")
                await asyncio.sleep(GUEST_SECONDS * random.uniform(1, 2))  # not all that waited at once
                continue
            if not owned and ended.diagnosis is None:
                if gone:
                    raise vanished(call)
                gone = True
                work.log("the dataset made by another run has disappeared; recomputing it")
                await asyncio.sleep(GUEST_SECONDS * random.uniform(1, 2))
                continue
            if reason is Reason.KILLED and not killed:
                assert ended.diagnosis is not None
                killed = True
                work.log(f"{ended.diagnosis.summary}; retrying once, with the same memory")
                continue
            if ended.diagnosis is not None and ended.diagnosis.disrupted:
                disruptions += 1
                if disruptions > self._settings.disruption_retries:
                    again = f", in each of {disruptions} Jobs" if disruptions > 1 else ""
                    summary = f"{ended.diagnosis.summary}{again}"
                    raise failure(original, call, replace(ended, diagnosis=replace(ended.diagnosis, summary=summary)))
                work.log(
                    f"{ended.diagnosis.summary}; continuing in a new Job with the same resources "
                    f"({disruptions} of at most {self._settings.disruption_retries})"
                )
                first, most = DISRUPTED_SECONDS
                seconds = min(most, first * 2 ** (disruptions - 1))
                await asyncio.sleep(seconds if owned else GUEST_SECONDS * random.uniform(1, 2))
                continue
            had = resources.memory_of(ended.role)
            more_memory = min(int(had * self._settings.memory_factor), self._settings.memory_cap)
            if reason is not Reason.OUT_OF_MEMORY or more_memory <= had:
                raise failure(original, call, ended)
            assert ended.diagnosis is not None
            each = f" for each {ended.role}" if ended.role else ""
            work.log(f"{ended.diagnosis.summary}; retrying with {format_bytes(more_memory)}{each}")
            resources = resources.with_memory(more_memory, ended.role)
            raised.add(ended.role)
            if not owned:
                await asyncio.sleep(GUEST_SECONDS * random.uniform(1, 2))

    async def _attempt(self, work: _Work, resources: Resources) -> tuple[Ended, Resources, bool]:
        """One Job to its end: one that is there for the same dataset already, or a new one.

        Returns:
            How it ended, what it held, and whether it was this launcher's own: then it is one of `work.attempts`.
        """
        async with turn(work.call.output) as job_is_there:
            return await self._attempt_in_turn(work, resources, job_is_there)

    async def _attempt_in_turn(
        self, work: _Work, resources: Resources, job_is_there: Callable[[], None]
    ) -> tuple[Ended, Resources, bool]:
        api, call, number = work.api, work.call, len(work.attempts) + 1
        settings = call.placement.on(self._settings)
        job, owner = await self._unfinished(work), await own_pod(api)
        there = job is not None
        if job is None:
            if await asyncio.to_thread(_complete, call) is not None:  # another run's Job has just ended
                return Ended(None, None, 0.0), resources, False
            job = job_manifest(
                call, settings, resources, launcher=self.id, attempt=number, owner=owner, supersedes=work.dead
            )
            sign(job)
        else:
            resources = job_resources(job, resources)
        name = job["metadata"]["name"]
        hold = JobOwnership(api, job, self.id, owned=not there, owner=owner, log=work.log)
        if there:
            adopted = await hold.adopt_at_once(job)
            follows = "adopting the Job" if adopted else "following another run's Job"
            work.log(f"{follows} {name}, which is already making this dataset")
        ended: Ended | None = None
        computes = engine(call.placement.engine)
        groups = computes.groups(resources)
        follower = JobFollower(
            api, settings, name, call.stage, work.on_event, adopted=there,
            engine=call.placement.engine, groups=groups, endpoints=resources.endpoints or {},
        )  # fmt: skip
        keeper: asyncio.Task[None] | None = None
        try:
            if not there:
                job = await create_job(api, job, engine_on_cluster(call.placement.engine).secret() if groups else {})
            job_is_there()
            self._followers.add(follower)
            keeper = asyncio.create_task(hold.keep(), name=f"hold {name}")
            if hold.owned:
                await work.account.open(job, resources)
            ended = await follower.follow()
            if ended.exit_code is not None:
                work.dead.append(name)
            return ended, resources, hold.owned
        finally:
            self._followers.discard(follower)
            if keeper is not None:
                keeper.cancel()
            if hold.owned:
                await _to_the_end(self._end(work, job, resources, follower, ended))

    async def _end(
        self, work: _Work, job: Json, resources: Resources, follower: JobFollower, ended: Ended | None
    ) -> None:
        """Remove an own Job, and add it to the attempts. One that may still run remains to be paid for."""
        name, uid = job["metadata"]["name"], job["metadata"].get("uid")
        # A container that failed by itself is left to be looked at, until its time to live is over.
        keep = ended is not None and ended.exit_code not in (None, 0) and bool(self._settings.ttl_s)
        removed = await self._remove(work, name, keep)
        if uid is None or not (removed or ended is not None):
            return
        if ended is None:
            attempt = job_attempt(resources, follower.held_s(), Reason.CANCELLED, uid, follower.members_held())
        else:
            reason = ended.diagnosis.reason if ended.diagnosis else None
            attempt = job_attempt(resources, ended.held_s, reason, uid, ended.members)
        work.attempts.append(attempt)
        await work.account.close(name, attempt)

    async def _unfinished(self, work: _Work) -> Json | None:
        """A Job that makes the same dataset, and that nobody is deleting; finished ones are noted as dead."""
        api, output = work.api, work.call.output
        digest = label_value(work.call.place.digest)
        for job in await api.items(api.jobs, labelSelector=ours(digest=digest)):
            if argument_of(job, "--output") != output:
                continue
            name = job["metadata"]["name"]
            if is_finished(job):
                work.dead += [name] if name not in work.dead else []
            elif "deletionTimestamp" not in job["metadata"]:
                return job
        return None

    async def _remove(self, work: _Work, name: str, keep: bool) -> bool:
        """Remove a Job and its members; of one that is kept to be looked at, the members alone."""
        try:
            removal = remove_members(work.api, name) if keep else self._delete(work.api, name)
            await asyncio.wait_for(removal, REMOVE_SECONDS)
        except (TimeoutError, SuperworkflowError) as error:
            work.log(f"the Job {name} could not be removed ({error}); see `superworkflow jobs --clean`")
            return False
        return True

    async def _delete(self, api: KubernetesApi, name: str) -> None:
        """Delete a Job, unless another launcher has adopted it, and wait until its pods are gone."""
        path = f"{api.jobs}/{name}"
        while (job := await api.get(path)) is not None:
            if launcher_of(job)[0] != self.id:
                return
            if await api.delete(path, version=job["metadata"]["resourceVersion"]):
                break
        await remove_job(api, name)

    async def _watch_pods(self, api: KubernetesApi) -> None:
        """Wake the followers when their pods change. What it misses, they see a little later by themselves."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, ApiError, ValueError):
                async for line in api.lines(api.pods, watch="true", labelSelector=ours(), timeoutSeconds="25"):
                    metadata = json.loads(line)["object"].get("metadata") or {}
                    labels = metadata.get("labels") or {}
                    name = labels.get("job-name") or labels.get(MEMBER_OF) or ""
                    for follower in self._followers:
                        if follower.name == name:
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


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Finish what must not be left half done, also when the waiting task is cancelled once more."""
    task = asyncio.create_task(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    return task.result()


def _log(call: StageCall, on_event: Callable[[Event], None], message: str) -> None:
    on_event({"event": "log", "stage": call.stage, "message": message})


def _sizing_key(call: StageCall, role: str) -> str:
    return engine(call.placement.engine).sizing_key(call.stage, call.placement.resources, role)


def _complete(call: StageCall) -> Dataset | None:
    """The dataset, whatever the log and the Job say: with its manifest and all files it is complete."""
    dataset = Dataset.find(call.output)
    return dataset if dataset is not None and dataset.has_all_files() else None


def job_resources(job: Json, default: Resources) -> Resources:
    """Resources of a Job that an earlier launcher made."""
    text = argument_of(job, "--resources-json")
    return Resources.model_validate_json(text) if text else default
