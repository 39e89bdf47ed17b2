"""Ledger of Jobs that have been billed, kept in the store so that exactly one run records each.

`<store>/.jobs/<stage>/<digest>/<uid>.json` says what a Job holds, and once it has ended for how long it did;
`<uid>.booked` that a run has it in its record. An entry without the second is a debt: its run died.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from superworkflow.infra.config.usage import LONGEST_S, MOST, Holding
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.process.exit_status import Reason
from superworkflow.infra.storage.store import Place

FOLDER = ".jobs"

_UID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


class LedgerEntry(BaseModel, frozen=True, extra="ignore"):
    """One Job.

    Args:
        uid: of the Job.
        job: its name.
        launcher, process: who made or adopted it.
        resources: that it holds.
        seconds: for which its own pod held them; None while it runs.
        holdings: what it and its members held; empty in entries of versions that did not record them separately.
        reason: why it failed, if it did.
    """

    uid: Annotated[str, Field(pattern=f"^{_UID}$")]
    job: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
    launcher: Annotated[str, Field(pattern=r"^[0-9A-Za-z]{0,63}$")]
    process: str = ""
    resources: Resources
    seconds: float | None = Field(default=None, ge=0, le=LONGEST_S, allow_inf_nan=False)
    reason: Reason | None = None
    holdings: Annotated[tuple[Holding, ...], Field(max_length=MOST)] = ()


class BillingLedger:
    """The entries of one dataset.

    Args:
        output: URI of the dataset, `<store>/<stage>/<digest>`.
    """

    def __init__(self, output: str):
        place = Place.of(output)
        self._folder = place.store.join(FOLDER, place.stage, place.digest)

    def write(self, entry: LedgerEntry) -> None:
        """Keep an entry, instead of what was known of its Job before."""
        self._folder.make()
        self._folder.join(f"{entry.uid}.json").write_atomic(entry.model_dump_json())

    def book(self, uid: str) -> bool:
        """Take a Job into one's record; True for one caller only."""
        self._folder.make()
        marker = self._folder.join(f"{uid}.booked")
        if marker.local_path is None:
            return bool(marker.create_exclusive(uid))
        try:
            with marker.local_path.open("x", encoding="utf-8") as stream:
                stream.write(uid)
        except FileExistsError:
            return False
        return True

    def booked(self, uid: str) -> bool:
        """True if a run has this Job in its record."""
        return self._folder.join(f"{uid}.booked").size() is not None

    def debts(self) -> list[LedgerEntry]:
        """Jobs that no run has in its record, those that still run among them."""
        names = set(self._folder.walk_files())
        entries: list[LedgerEntry] = []
        for name in sorted(names):
            if re.fullmatch(_UID + r"\.json", name) and name.removesuffix("json") + "booked" not in names:
                entry = self.read(name.removesuffix(".json"))
                entries += [entry] if entry is not None else []
        return entries

    def read(self, uid: str) -> LedgerEntry | None:
        """Entry of one Job; an edited file counts as none."""
        try:
            entry = LedgerEntry.model_validate_json(self._folder.join(f"{uid}.json").read_text())
        except (ValidationError, FileNotFoundError, UnicodeDecodeError):
            return None
        return entry if entry.uid == uid else None
