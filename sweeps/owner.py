"""True if the process that runs a trial is still alive."""

from __future__ import annotations

import time
from collections.abc import Callable

from superworkflow.infra.process.identity import ProcessIdentity

BEAT_SECONDS = 5.0
"""A sweep process tells so often that its trials are alive."""
GRACE_SECONDS = 60.0
"""A process of another machine that has told nothing for so long is taken for dead."""


class Watch:
    """Judges whether owners are alive: by the process table here, by their beats where that cannot be seen.

    Clocks of other machines are not compared: a beat is old when this process has seen it unchanged for long.

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
            owner: its owner's text.
            beat: its last beat.
        """
        known = ProcessIdentity.parse(owner)
        if known is not None and known.is_here:
            return known.is_running
        now = self._clock()
        last, since = self._seen.get(trial, (None, now))
        if trial not in self._seen or last != (owner, beat):
            self._seen[trial] = ((owner, beat), now)
            return True
        return now - since < self._grace
