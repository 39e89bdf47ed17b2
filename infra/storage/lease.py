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
from superworkflow.infra.process.identity import ProcessIdentity, has_ended
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
        claim: name of the holder, and holders that are dead.
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
        """Seconds until another process may take the lease over."""
        return self._until - clock() if self._tag is not None else 0.0

    def acquire(self) -> bool:
        """Take the lease if it is free, its holder is dead, or its holder has not renewed it for `LEASE_SECONDS`.

        Raises:
            UserError: the store does not honour conditional writes, so that it cannot keep out a second writer.
        """
        if not self._take():
            return False
        try:
            check_heeded(self.location, self._text())
            self.location.hurried().connect()  # a holder that has to end has no time for it
        except BaseException:
            self._until = 0.0  # renew first: the writes of the check may have changed the tag
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
                or has_ended(str(seen.text.get("process")))
                or sent - seen.since >= LEASE_SECONDS
            )
            return dead and self._hold(self.location.replace_tagged(self._text(), seen.tag), sent)

    def renew(self, *, patient: bool = False) -> bool:
        """Extend the lease by `LEASE_SECONDS`; False if another holder has, or had, it.

        Args:
            patient: wait for a store that does not answer; otherwise its errors are raised within seconds.

        Raises:
            UserError: the store refuses the write although no other process wrote.
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
        """Release the lease, unless another holder may have taken it over."""
        with contextlib.suppress(Exception):  # a lease that cannot be released expires
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
        """Read the lease. The tag is read first, so that a lease that changes during the read is not taken over."""
        tag = location.tag()
        if tag != self._seen.tag:
            self._seen = _Seen(tag, _parsed(location.read_text()), clock())
        return self._seen

    def _text(self) -> str:
        return json.dumps({"holder": self.holder, "process": str(ProcessIdentity.here()), "nonce": uuid.uuid4().hex})


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
