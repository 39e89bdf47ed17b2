"""A lease on an object store: the right to write a dataset for a limited time, which the holder keeps renewing.

Clocks of different machines are never compared. A waiting process looks at the object's tag, which every renewal
changes; a tag that stays the same for `LEASE_SECONDS` on the waiting process's own clock belongs to a holder that no
longer renews, and is taken over. A holder counts the same seconds on its own clock from before the renewal was sent,
so that it knows that its time is over before anybody else does. Clocks that stand still while a machine sleeps will
not do. Every change is a conditional put: of several that want the lease one gets it, and a holder that lost it
learns so by its next renewal.

A holder that is known to be dead is not waited for: its process is gone from this machine, or the launcher has named it
as dead.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.process.identity import machine, started
from superworkflow.infra.storage.conditional_writes import check_heeded
from superworkflow.infra.storage.location import Location

LEASE_SECONDS = 60.0
RENEW_SECONDS = 15.0
_REFUSALS = 5
"""Conflicts that one renewal may meet with another that is in flight."""
_REFUSED_SECONDS = 0.2


@dataclass(frozen=True)
class LeaseClaim:
    """Under which name a stage holds its lease, and which holders are dead.

    Args:
        holder: a name that nobody else uses; "" for one of its own.
        supersedes: holders that will never write again.
    """

    holder: str = ""
    supersedes: Collection[str] = ()


def clock() -> float:
    """Seconds of a clock that includes the time for which the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """A lease object.

    Args:
        location: the object.
        claim: whose lease it is to be.
    """

    def __init__(self, location: Location, claim: LeaseClaim = LeaseClaim()):
        self.location = location
        self.holder = claim.holder or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._supersedes = frozenset(claim.supersedes)
        self._tag: str | None = None
        self._until = 0.0
        self._seen = _NOTHING
        self._guard = threading.Lock()

    @property
    def remaining(self) -> float:
        """Seconds for which nobody else can have it."""
        return self._until - clock() if self._tag is not None else 0.0

    def acquire(self) -> bool:
        """Take it when nobody has it, when its holder is dead, or did not renew it while this process looked on.

        Raises:
            UserError: the store does not heed the conditions of writes, so that nobody can be kept out.
        """
        if not self._take():
            return False
        try:
            check_heeded(self.location, self._text())
            self.location.hurried().connect()  # a holder that is asked to end has no time for it
        except BaseException:
            self._until = 0.0  # to be renewed first: what was written to ask may have changed its tag
            self.release()
            raise
        return True

    def _take(self) -> bool:
        with self._guard:
            sent = clock()
            try:
                seen = self._look(self.location)
            except FileNotFoundError:
                return self._hold(self.location.create_exclusive(self._text()), sent)
            dead = (
                seen.holder in {self.holder, *self._supersedes}
                or _is_gone(seen.text.get("process"))
                or sent - seen.since >= LEASE_SECONDS
            )
            return dead and self._hold(self.location.replace_tagged(self._text(), seen.tag), sent)

    def renew(self, *, patient: bool = False) -> bool:
        """Hold it for another `LEASE_SECONDS`; False when another holder has it, or had it.

        Args:
            patient: wait for a store that does not answer; otherwise its errors come as they are, within seconds.

        Raises:
            UserError: the store refuses it, though nobody else wrote.
        """
        location = self.location if patient else self.location.hurried()
        refused = 0
        with self._guard:
            while self._tag is not None:
                sent, tag = clock(), self._tag
                if self._hold(location.replace_tagged(self._text(), self._tag), sent):
                    return True
                # Refused: by another's lease, or by an earlier renewal of this one whose answer was lost.
                try:
                    seen = self._look(location)
                except FileNotFoundError:
                    seen = _NOTHING
                self._tag = seen.tag if seen.holder == self.holder else None
                if self._tag == tag:
                    if (refused := refused + 1) == _REFUSALS:
                        raise UserError(
                            "the S3 server refuses to replace an object though it has not changed (If-Match)",
                            where=location.uri, remedy="Use a server with conditional writes, or a store on a disk",
                        )  # fmt: skip
                    time.sleep(_REFUSED_SECONDS)
            return False

    def release(self) -> None:
        """Let the next one have it; one that another holder may have taken over is left alone."""
        with contextlib.suppress(Exception):  # what cannot be let go expires
            if self.remaining < LEASE_SECONDS / 4 and not self.renew():
                return
            with self._guard:
                tag, self._tag = self._tag, None
                if tag is not None:
                    self.location.hurried().delete_tagged(tag)

    def _hold(self, tag: str | None, sent: float) -> bool:
        if tag is None:
            return False
        self._tag, self._until = tag, sent + LEASE_SECONDS
        return True

    def _look(self, location: Location) -> _Seen:
        """Read the lease; its tag is read first, so that one that changes during the read is not taken over."""
        tag = location.tag()
        if tag != self._seen.tag:
            self._seen = _Seen(tag, _parsed(location.read_text()), clock())
        return self._seen

    def _text(self) -> str:
        return json.dumps({"holder": self.holder, "process": _process(), "nonce": uuid.uuid4().hex})


@dataclass(frozen=True)
class _Seen:
    tag: str
    text: dict[str, Any]
    since: float

    @property
    def holder(self) -> str:
        return str(self.text.get("holder"))


_NOTHING = _Seen("", {}, 0.0)


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _machine() -> dict[str, str]:
    """Identifier of this kernel and its namespace of process numbers; empty where there is none."""
    here = machine()
    return {"host": socket.gethostname(), **here} if here else {}


def _process() -> dict[str, Any]:
    return {**_machine(), "pid": os.getpid(), "started": started(os.getpid()) or None}


def _is_gone(process: Any) -> bool:
    """True if a holder was a process of this machine and has ended."""
    if not isinstance(process, dict) or not _machine() or not isinstance(process.get("pid"), int):
        return False
    same = all(process.get(key) == value for key, value in _machine().items())
    return same and process.get("started") is not None and (started(process["pid"]) or None) != process["started"]
