"""Retries for a server that does not respond (the cluster's API or the store); refusals are not retried."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator

from superworkflow.infra.base.errors import SuperworkflowError

PATIENCE_SECONDS = 600.0
"""Seconds for which a request is retried."""
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 2.0
TELL_SECONDS = 2.0
"""Shorter outages are not logged."""

trusted = False
"""True to wait also for a server that this process has not reached yet, because its parent has."""


class Unreachable(SuperworkflowError):
    """A server did not respond within the time for retries."""


class RetryState:
    """Retries of one request, from its first failure.

    Args:
        patience_s: seconds from now for which it is retried.
    """

    def __init__(self, patience_s: float):
        self._until = time.monotonic() + patience_s
        self._pause = FIRST_PAUSE_SECONDS

    def pause(self) -> float | None:
        """Seconds to wait before the next try; None when the time is over."""
        if time.monotonic() + self._pause > self._until:
            return None
        # Jitter: many clients that wait for one server must not return to it at the same moment.
        pause, self._pause = self._pause * random.uniform(0.75, 1), min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        return pause


class Reachability:
    """State of a server as all threads of this process see it; reports an outage once, and its end once.

    Args:
        what: name of the server in messages.
    """

    def __init__(self, what: str):
        self.what = what
        self.ever = False
        """True if it has ever answered this process."""
        self._guard = threading.Lock()
        self._since: float | None = None
        self._reported = False

    def answered(self) -> None:
        """It answered, if only to refuse."""
        self.ever = True
        if self._since is not None:
            with self._guard:
                since, reported, self._since, self._reported = self._since, self._reported, None, False
            if reported and since is not None:
                tell(f"{self.what} answers again after {time.monotonic() - since:.0f} s")

    def failed(self, reason: str) -> None:
        """It did not answer, for this reason; the request will be retried."""
        now = time.monotonic()
        with self._guard:
            if self._since is None:
                self._since = now
            first = not self._reported and now - self._since >= TELL_SECONDS
            self._reported = self._reported or first
        if first:
            tell(f"waiting: {self.what} does not answer ({reason}); trying again for up to {PATIENCE_SECONDS:.0f} s")


def tell(message: str) -> None:
    """Show a message to the user."""
    _listener(message)


@contextlib.contextmanager
def told_by(listener: Callable[[str], None], *, reached: bool = False) -> Iterator[None]:
    """Within the block, messages are passed to this function instead of Python's log.

    Args:
        listener: called with each message.
        reached: the parent process has reached the servers.
    """
    global _listener, trusted
    before = _listener, trusted
    _listener, trusted = listener, reached
    try:
        yield
    finally:
        _listener, trusted = before


_listener: Callable[[str], None] = logging.getLogger("superworkflow").warning
