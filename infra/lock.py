"""One writer for each dataset: the second run waits, then finds the dataset complete.

On a local file system the lock is the kernel's (`flock`): a killed holder lets go at once. On an object store
it is a lease object, made by a conditional put and renewed while the holder lives; a lease that was not renewed
for `LEASE_SECONDS` belongs to a dead holder and is taken over. Every change of it is a conditional put, so that of
several that want it one gets it, and a holder that was cut off for too long learns that it has lost it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.errors import SuperworkflowError
from infra.filesystem import Location

LEASE_SECONDS = 60.0
RENEW_SECONDS = 15.0
POLL_SECONDS = 0.5


@contextmanager
def exclusive(location: Location, on_wait: Callable[[], None] = lambda: None) -> Iterator[Callable[[], None]]:
    """Hold the right to write the dataset at `location`.

    Args:
        location: the dataset's folder.
        on_wait: called once when another holder has it.

    Yields:
        A function to call before the dataset is completed; it raises `SuperworkflowError` when the right was lost.
    """
    manager = _flock if location.local_path is not None else _lease
    with manager(location, on_wait) as confirm:
        yield confirm


@contextmanager
def _flock(location: Location, on_wait: Callable[[], None]) -> Iterator[Callable[[], None]]:
    folder = location.local_path
    assert folder is not None
    # Beside the dataset, not in it: the folder may be deleted by hand while a holder is in it.
    path = folder.with_name(f".{folder.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                on_wait = _nothing
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # The last holder removed the file: a lock on the removed one keeps nobody out.
            if not _is_open_as(path, descriptor):
                continue
            yield _nothing
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
def _lease(location: Location, on_wait: Callable[[], None]) -> Iterator[Callable[[], None]]:
    # Beside the dataset, not in it: a new writer removes all that an interrupted one left in there.
    folder, _, name = location.uri.rpartition("/")
    lease = Lease(Location(f"{folder}/.{name}.lease"))
    while not lease.acquire():
        on_wait()
        on_wait = _nothing
        time.sleep(POLL_SECONDS)
    stop = threading.Event()

    def keep() -> None:
        while not stop.wait(RENEW_SECONDS):
            with contextlib.suppress(Exception):  # the network may be back before the lease expires
                if not lease.renew():
                    return

    def confirm() -> None:
        if not lease.renew():
            raise SuperworkflowError(
                f"{lease.location.uri}: this run was cut off from the store for so long that another took over the "
                "dataset. Run again to use what that one makes."
            )

    keeper = threading.Thread(target=keep, name="lease", daemon=True)
    keeper.start()
    try:
        yield confirm
    finally:
        stop.set()
        keeper.join()
        lease.release()


class Lease:
    """A lease object on an object store.

    Args:
        location: the object.
    """

    def __init__(self, location: Location):
        self.location = location
        self._holder = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._tag: str | None = None
        self._guard = threading.Lock()

    def acquire(self) -> bool:
        """Take it when nobody has it, or when its holder did not renew it in time."""
        if self.location.create_exclusive(self._text()):
            self._tag = self.location.tag()
            return True
        try:
            tag = self.location.tag()  # read first: if the text changes meanwhile, taking over is refused
            expires = float(json.loads(self.location.read_text())["expires"])
        except FileNotFoundError:
            return False
        except (ValueError, KeyError, TypeError):
            expires = 0.0
        if expires < time.time():
            self._tag = self.location.replace_tagged(self._text(), tag)
        return self._tag is not None

    def renew(self) -> bool:
        """Hold it for another `LEASE_SECONDS`; False when another holder has it."""
        with self._guard:
            if self._tag is not None:
                self._tag = self.location.replace_tagged(self._text(), self._tag)
            return self._tag is not None

    def release(self) -> None:
        """Let the next one have it; one that another holder has taken over is left alone."""
        with self._guard, contextlib.suppress(Exception):  # what cannot be let go expires
            if self._tag is not None and self._tag == self.location.tag():
                self.location.delete()
            self._tag = None

    def _text(self) -> str:
        return json.dumps({"holder": self._holder, "expires": time.time() + LEASE_SECONDS})
