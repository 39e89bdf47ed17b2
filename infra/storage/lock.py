"""One writer for each dataset: the second run waits, then finds the dataset complete.

On a local file system the lock is the kernel's (`flock`): a killed holder lets go at once. On an object store it is
a lease (see `infra.storage.lease`), renewed while the holder lives. A holder that was cut off from the store for longer
than its lease lasts may continue if no other took over, which it checks before each write.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from superworkflow.infra.base.errors import SuperworkflowError
from superworkflow.infra.process import shutdown
from superworkflow.infra.storage import lease
from superworkflow.infra.storage.lease import Lease, LeaseClaim
from superworkflow.infra.storage.location import Location

POLL_SECONDS = 0.5
RETRY_SECONDS = 2.0
"""Pause after a renewal that failed."""


class LeaseLost(SuperworkflowError):
    """Another run makes the dataset now."""


@dataclass(frozen=True)
class Right:
    """The right to write a dataset, as its holder has it."""

    def check(self, *, patient: bool = True) -> None:
        """To be called before anything is written; asks the store only where the lease may be over soon.

        Args:
            patient: wait for a store that does not answer; otherwise its errors come as they are, within seconds.

        Raises:
            LeaseLost: another has it.
        """

    def confirm(self, *, patient: bool = True) -> None:
        """Like `check`, but always asks the store."""


def exclusive(
    location: Location,
    on_wait: Callable[[], None] = lambda: None,
    on_lost: Callable[[LeaseLost], None] = lambda error: None,
    claim: LeaseClaim = LeaseClaim(),  # noqa: B008
) -> contextlib.AbstractContextManager[Right]:
    """Hold the right to write the dataset at `location`.

    Args:
        location: the dataset's folder.
        on_wait: called once when another holder has it.
        on_lost: called from another thread when another has taken over, so that the work ends before its end.
        claim: under which name it is held on an object store, and whose claims are void.

    Yields:
        The right, to be checked before what is written.
    """
    if location.local_path is not None:
        return _flock(location, on_wait)
    return _leased(location, on_wait, on_lost, claim)


@contextmanager
def _flock(location: Location, on_wait: Callable[[], None]) -> Iterator[Right]:
    folder = location.local_path
    assert folder is not None
    # Next to the dataset, not in it: the folder may be deleted by hand while a holder is in it.
    path = folder.with_name(f".{folder.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                on_wait = _nothing
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # The last holder has removed the file: a lock on it would exclude no other process.
            if not _is_open_as(path, descriptor):
                continue
            yield Right()
            path.unlink(missing_ok=True)
            return
        finally:
            os.close(descriptor)


def _is_open_as(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _nothing() -> None: ...


@contextmanager
def _leased(
    location: Location, on_wait: Callable[[], None], on_lost: Callable[[LeaseLost], None], claim: LeaseClaim
) -> Iterator[Right]:
    # Next to the dataset, not in it: a new writer removes all that an interrupted one left in there.
    folder, _, name = location.uri.rpartition("/")
    held = Lease(Location(f"{folder}/.{name}.lease"), claim)
    while not held.acquire():
        on_wait()
        on_wait = _nothing
        time.sleep(POLL_SECONDS)
    right, stop = _LeasedRight(held), threading.Event()

    def keep() -> None:
        pause = lease.RENEW_SECONDS
        while not stop.wait(pause):
            try:
                kept = held.renew()
            except Exception:  # the store may recover before the lease ends, and other processes may not want it
                pause = RETRY_SECONDS
                continue
            pause = lease.RENEW_SECONDS
            if not kept:
                on_lost(right.lost())
                return

    keeper = threading.Thread(target=keep, name="lease", daemon=True)
    keeper.start()
    try:
        with shutdown.at_end(held.release):
            yield right
    finally:
        stop.set()
        keeper.join()
        held.release()


@dataclass(frozen=True)
class _LeasedRight(Right):
    held: Lease

    def check(self, *, patient: bool = True) -> None:
        if self.held.remaining < lease.LEASE_SECONDS / 2:
            self.confirm(patient=patient)

    def confirm(self, *, patient: bool = True) -> None:
        if not self.held.renew(patient=patient):
            raise self.lost()

    def lost(self) -> LeaseLost:
        return LeaseLost(
            f"{self.held.location.uri}: this run was suspended or cut off from the store for so long that another took "
            "over the dataset. Run again to use its result."
        )
