"""Heartbeats of a run, by which other machines notice that its process has died."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Mapping

from superworkflow.infra.process.identity import ProcessIdentity

BEAT_SECONDS = 30.0
GRACE_SECONDS = 900.0
"""Age in seconds of the last heartbeat beyond which a run of another machine counts as dead. Clocks may differ by some
minutes; a run that was cut off for longer takes its record back with its next heartbeat."""

RETRY_SECONDS = 2.0
"""Pause before the first call of a heartbeat is tried again."""

OWNER = "superworkflow.owner"
"""Name under which a record keeps its process."""
BEAT = "superworkflow.beat"
"""Name under which a record keeps the time of its last sign, in seconds since 1970."""


def sign() -> dict[str, str]:
    """A sign of life."""
    return {BEAT: str(int(time.time()))}


def signature() -> dict[str, str]:
    """A sign of life, and whose."""
    return {OWNER: str(ProcessIdentity.here()), **sign()}


def is_dead(marks: Mapping[str, object], now: float | None = None) -> bool:
    """True if the process that left these marks on a record that is still open is dead; False when in doubt.

    Args:
        marks: what the record holds under `OWNER` and `BEAT`.
        now: seconds since 1970.
    """
    owner = ProcessIdentity.parse(str(marks.get(OWNER, "")))
    if owner is not None and owner.is_here:
        return not owner.is_running
    last = last_sign(marks)
    return last is not None and (time.time() if now is None else now) - last > GRACE_SECONDS


def is_alive(marks: Mapping[str, object]) -> bool:
    """True if the process that left these marks is one of this machine and lives; False when in doubt."""
    owner = ProcessIdentity.parse(str(marks.get(OWNER, "")))
    return owner is not None and owner.is_here and owner.is_running


def last_sign(marks: Mapping[str, object]) -> float | None:
    """When a record's process was last known to live, in seconds since 1970."""
    try:
        return float(str(marks[BEAT]))
    except (KeyError, ValueError):
        return None


class Heartbeat:
    """Gives signs of life from a thread of its own until it is stopped.

    Args:
        beat: gives one; errors are ignored, as the next heartbeat may succeed.
        first: called once before, and again if it fails; errors do not fail the run.
    """

    def __init__(self, beat: Callable[[], None], first: Callable[[], None] = lambda: None):
        self._beat, self._first = beat, first
        self._end = threading.Event()
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give no further sign."""
        self._end.set()
        self._thread.join(timeout=BEAT_SECONDS)

    def _begun(self) -> bool:
        try:
            self._first()
        except Exception:  # a server that is busy with its own start, a locked database
            return False
        return True

    def _run(self) -> None:
        while not self._begun() and not self._end.wait(RETRY_SECONDS):
            continue
        while not self._end.wait(BEAT_SECONDS):
            with contextlib.suppress(Exception):
                self._beat()
