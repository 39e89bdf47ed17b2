"""One writer for each dataset: the second run waits, then finds the dataset complete.

On a local file system the lock is the kernel's (`flock`): a killed holder lets go at once. On an object store
it is a lease object, made by a conditional put and renewed while the holder lives; a lease that was not renewed
for `LEASE_SECONDS` belongs to a dead holder and is taken over.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from infra.filesystem import Location

LEASE_SECONDS = 60.0
RENEW_SECONDS = 15.0
POLL_SECONDS = 0.5


@contextmanager
def exclusive(location: Location, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the right to write the dataset at `location`.

    Args:
        location: the dataset's folder.
        on_wait: called once when another holder has it.
    """
    manager = _flock if location.local_path is not None else _lease
    with manager(location, on_wait):
        yield


@contextmanager
def _flock(location: Location, on_wait: Callable[[], None]) -> Iterator[None]:
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
            if not (path.exists() and os.fstat(descriptor).st_ino == path.stat().st_ino):
                continue
            yield
            path.unlink(missing_ok=True)
            return
        finally:
            os.close(descriptor)


def _nothing() -> None: ...


@contextmanager
def _lease(location: Location, on_wait: Callable[[], None]) -> Iterator[None]:
    lease = location.join("_lease.json")
    holder = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    while not _acquire(lease, holder):
        on_wait()
        on_wait = _nothing
        time.sleep(POLL_SECONDS)
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(RENEW_SECONDS):
            lease.write_atomic(_text(holder))

    keeper = threading.Thread(target=renew, name="lease", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        keeper.join()
        lease.delete()


def _text(holder: str) -> str:
    return json.dumps({"holder": holder, "expires": time.time() + LEASE_SECONDS})


def _acquire(lease: Location, holder: str) -> bool:
    if lease.create_exclusive(_text(holder)):
        return True
    try:
        current = json.loads(lease.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    if current["expires"] < time.time():
        lease.delete()  # whoever creates it next, by the conditional put, has it
    return False
