"""Who runs a trial, and whether that process is still alive."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BEAT_SECONDS = 5.0
"""A sweep process tells so often that its trials are alive."""
GRACE_SECONDS = 60.0
"""A process of another machine that has told nothing for so long is taken for dead."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def _host() -> str:
    """This machine since its last start, and this container: where a process id means the same process."""
    try:
        return f"{_BOOT.read_text().strip()[:13]}.{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str:
    """Start time of a process; empty when there is none, or when it is dead and only not yet waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]


@dataclass(frozen=True)
class Owner:
    """One sweep process.

    Args:
        host: machine and container.
        pid: process id there.
        started: its start time, since process ids are used again.
        token: of this sweep in it.
    """

    host: str
    pid: int
    started: str
    token: str

    @classmethod
    def here(cls) -> Owner:
        """A sweep of this process."""
        return cls(_host(), os.getpid(), _started(os.getpid()), uuid.uuid4().hex[:12])

    def __str__(self) -> str:
        return f"{self.host}/{self.pid}/{self.started}/{self.token}"

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """The inverse of `str`; None when the text is not one."""
        parts = text.split("/")
        return cls(parts[0], int(parts[1]), parts[2], parts[3]) if len(parts) == 4 and parts[1].isdigit() else None


class Watch:
    """Judges whether owners are alive: by the process table here, by their beats where that cannot be seen.

    Clocks of other machines are not compared: a beat is old when this process has seen it unchanged for long.

    Args:
        own: this process.
        grace_s: see `GRACE_SECONDS`.
        clock: monotonic seconds.
    """

    def __init__(self, own: Owner, grace_s: float = GRACE_SECONDS, clock: Callable[[], float] = time.monotonic):
        self.own, self._grace, self._clock = own, grace_s, clock
        self._seen: dict[int, tuple[object, float]] = {}

    def alive(self, trial: int, owner: str, beat: object) -> bool:
        """Whether the owner of a running trial is alive.

        Args:
            trial: number of the trial.
            owner: its owner's text.
            beat: its last beat.
        """
        known = Owner.parse(owner)
        if known is not None and known.host == self.own.host:
            return _started(known.pid) == known.started != ""
        now = self._clock()
        last, since = self._seen.get(trial, (None, now))
        if trial not in self._seen or last != (owner, beat):
            self._seen[trial] = ((owner, beat), now)
            return True
        return now - since < self._grace
