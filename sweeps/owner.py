"""Liveness of the processes that run trials."""

from __future__ import annotations

import time
from collections.abc import Callable

from superworkflow.infra.process.identity import ProcessIdentity

BEAT_SECONDS = 5.0
"""Interval at which a sweep process reports that its trials are alive."""
GRACE_SECONDS = 60.0
"""Silence after which a process of another machine counts as dead."""


class Watch:
    """Judges whether owners are alive: by the process table on this machine, by their heartbeats on others.

    Clocks of other machines are not compared: a heartbeat is stale once this process has seen it unchanged for long.

    Args:
        own: this process.
        grace_s: see `GRACE_SECONDS`.
        clock: monotonic seconds.
    """

    def __init__(
        self, own: ProcessIdentity, grace_s: float = GRACE_SECONDS, clock: Callable[[], float] = time.monotonic
    ):
        self.own, self._grace, self._clock = own, grace_s, clock
        self._seen: dict[int, tuple[object, float]] = {}

    def alive(self, trial: int, owner: str, beat: object) -> bool:
        """True if the owner of a running trial is alive.

        Args:
            trial: number of the trial.
            owner: its owner's identity, as text.
            beat: its last heartbeat.
        """
        identity = ProcessIdentity.parse(owner)
        if identity is not None and identity.is_here:
            return identity.is_running
        now = self._clock()
        last, since = self._seen.get(trial, (None, now))
        if trial not in self._seen or last != (owner, beat):
            self._seen[trial] = ((owner, beat), now)
            return True
        return now - since < self._grace
