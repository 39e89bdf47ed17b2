"""Bills every Job exactly once: a launcher's own Jobs, and those of launchers that died."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from superworkflow.infra.base.errors import SuperworkflowError
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.contract.stage import IN_PROCESS, Resources
from superworkflow.infra.engines import engine, engine_names
from superworkflow.infra.launch.base import Attempt
from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.billing_ledger import BillingLedger, LedgerEntry
from superworkflow.infra.launch.kubernetes.job_admin import is_finished, remove_job
from superworkflow.infra.launch.kubernetes.job_follower import Ended, JobFollower
from superworkflow.infra.launch.kubernetes.job_manifest import argument_of
from superworkflow.infra.launch.kubernetes.ownership import is_dead
from superworkflow.infra.launch.kubernetes.result import job_attempt
from superworkflow.infra.process.exit_status import Reason
from superworkflow.infra.process.identity import ProcessIdentity
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.location import Location

T = TypeVar("T")

NOTE_SECONDS = 20.0
"""Seconds for which writing an entry may delay a stage, or the end of a run."""


class JobBilling:
    """The Jobs of one dataset, as one launcher books them.

    If an entry cannot be written or read, the launch continues and warns that the cost may be counted twice.

    Args:
        output: URI of the dataset.
        launcher: id of the launcher.
        log: receives these warnings.
    """

    def __init__(self, output: str, launcher: str, log: Callable[[str], None]):
        self._output, self._launcher, self._log = output, launcher, log
        self._ledger = BillingLedger(output)

    async def open(self, job: Json, resources: Resources) -> None:
        """Enter a Job that has been made or adopted, in case this launcher dies before its end."""
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        await self._try(None, self._ledger.write, self._entry(uid, name, resources))

    async def close(self, name: str, attempt: Attempt) -> None:
        """Enter the holdings of an ended Job, in case this launcher dies before they are in its record."""
        entry = self._entry(attempt.uid, name, attempt.resources)
        await self._try(None, self._ledger.write, _ended(entry, attempt))

    async def book(self, attempts: Iterable[Attempt]) -> list[Attempt]:
        """Book the attempts that no other run has booked; returns these."""
        return [each for each in attempts if not each.uid or await self._try(True, self._ledger.book, each.uid)]

    async def has_debts(self) -> bool:
        """True if some Job of this dataset is in no run's record."""
        return bool(await self._try([], self._ledger.debts))

    async def debts(self, api: KubernetesApi, settings: KubernetesSettings) -> list[Attempt]:
        """Ended Jobs of other launchers that died before they booked them; one that ended well comes last.

        A launcher without a heartbeat is waited for: it may be about to book.
        """
        entries: list[LedgerEntry] = await self._try([], self._ledger.debts)
        others = [entry for entry in entries if entry.launcher != self._launcher]
        try:
            found = await asyncio.gather(*(self._debt(api, settings, entry) for entry in others))
        except SuperworkflowError as error:
            self._log(f"the cost of earlier Jobs is left to another run ({error})")
            return []
        return sorted((each for each in found if each is not None), key=lambda each: each.reason is None)

    async def _debt(self, api: KubernetesApi, settings: KubernetesSettings, entry: LedgerEntry) -> Attempt | None:
        async def booked() -> bool:
            return await self._try(False, self._ledger.booked, entry.uid)

        job = await api.get(f"{api.jobs}/{entry.job}")
        if job is not None and job["metadata"]["uid"] != entry.uid:
            job = None
        if job is not None and not is_finished(job) and "deletionTimestamp" not in job["metadata"]:
            return None  # its follower pays
        if not await is_dead(api, entry.launcher, entry.process, unless=booked):
            return None
        seen: Ended | None = None
        if entry.seconds is None and job is not None:
            name = argument_of(job, "--engine") or IN_PROCESS
            groups = engine(name).groups(entry.resources) if name in engine_names() else {}
            seen = await JobFollower(
                api, settings, entry.job, "", lambda event: None, adopted=True, engine=name, groups=groups
            ).follow()
            if not seen.was_deleted:
                # Entered before the Job is removed: another launcher may look for it at this moment.
                entry = _ended(entry, _attempt(entry, seen, seen.diagnosis.reason if seen.diagnosis else None))
                await self._try(None, self._ledger.write, entry)
                await remove_job(api, entry.job)
        if entry.seconds is None:
            noted: LedgerEntry | None = await self._try(None, self._ledger.read, entry.uid)
            entry = noted or entry
        if entry.seconds is None and seen is not None:
            entry = _ended(entry, _attempt(entry, seen, Reason.DELETED))
        if entry.seconds is None:  # the cluster has removed it; the stage's own measurement is the best estimate
            dataset = await self._try(None, Dataset.find, Location.of(self._output))
            seconds = dataset.manifest.measured.runtime_s if dataset is not None else 0.0
            entry = _ended(entry, Attempt(entry.resources, seconds))
        assert entry.seconds is not None
        return Attempt(entry.resources, entry.seconds, entry.reason, entry.uid, entry.holdings)

    def _entry(self, uid: str, name: str, resources: Resources) -> LedgerEntry:
        process = str(ProcessIdentity.here())
        return LedgerEntry(uid=uid, job=name, launcher=self._launcher, process=process, resources=resources)

    async def _try(self, otherwise: T, work: Callable[..., T], *arguments: Any) -> T:
        try:
            return await asyncio.wait_for(asyncio.to_thread(work, *arguments), NOTE_SECONDS)
        except Exception as error:  # each kind of store has its own
            self._log(f"the cost of a Job could not be noted in the store ({type(error).__name__}: {error})")
            return otherwise


def _attempt(entry: LedgerEntry, seen: Ended, reason: Reason | None) -> Attempt:
    return job_attempt(entry.resources, seen.held_s, reason, entry.uid, seen.members)


def _ended(entry: LedgerEntry, attempt: Attempt) -> LedgerEntry:
    return entry.model_copy(update={"seconds": attempt.seconds, "reason": attempt.reason, "holdings": attempt.holdings})
