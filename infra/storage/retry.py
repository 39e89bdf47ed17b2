"""Patience with a server that does not answer: the cluster's API or the store. One that refuses is not waited for."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator

from superworkflow.infra.base.errors import SuperworkflowError

PATIENCE_SECONDS = 600.0
"""For so long a request is repeated."""
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 2.0
TELL_SECONDS = 2.0
"""An outage as short is not worth a word."""

trusted = False
"""True to wait also for a server that this process has not reached yet, since the one that started it has."""


class Unreachable(SuperworkflowError):
    """A server did not answer for longer than patience lasts."""


class RetryState:
    """The tries at one request, from the first that failed.

    Args:
        patience_s: seconds from now for which it is tried again.
    """

    def __init__(self, patience_s: float):
        self._until = time.monotonic() + patience_s
        self._pause = FIRST_PAUSE_SECONDS

    def pause(self) -> float | None:
        """Seconds to wait before the next try; None when patience is at its end."""
        if time.monotonic() + self._pause > self._until:
            return None
        # Many that wait for one server do not come back to it in the same moment.
        pause, self._pause = self._pause * random.uniform(0.75, 1), min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        return pause


class Reachability:
    """True if a server answers, as all threads of this process see it; tells once of an outage and once of its end.

    Args:
        what: the server, for people.
    """

    def __init__(self, what: str):
        self.what = what
        self.ever = False
        """True if it has answered this process at all."""
        self._guard = threading.Lock()
        self._since: float | None = None
        self._told = False

    def answered(self) -> None:
        """It answered, if only to refuse."""
        self.ever = True
        if self._since is not None:
            with self._guard:
                since, told, self._since, self._told = self._since, self._told, None, False
            if told and since is not None:
                tell(f"{self.what} answers again after {time.monotonic() - since:.0f} s")

    def failed(self, reason: str) -> None:
        """It did not answer, for this reason, and will be asked again."""
        now = time.monotonic()
        with self._guard:
            if self._since is None:
                self._since = now
            first = not self._told and now - self._since >= TELL_SECONDS
            self._told = self._told or first
        if first:
            tell(f"waiting: {self.what} does not answer ({reason}); trying again for up to {PATIENCE_SECONDS:.0f} s")


def tell(message: str) -> None:
    """Tell people."""
    _listener(message)


@contextlib.contextmanager
def told_by(listener: Callable[[str], None], *, reached: bool = False) -> Iterator[None]:
    """Within the block, tell people by this function instead of by Python's log.

    Args:
        listener: receives what is told.
        reached: the one that started this process has reached the servers.
    """
    global _listener, trusted
    before = _listener, trusted
    _listener, trusted = listener, reached
    try:
        yield
    finally:
        _listener, trusted = before


_listener: Callable[[str], None] = logging.getLogger("superworkflow").warning
