"""Early shutdown: release locks, then exit at once, even inside a kernel.

Python runs signal handlers in the main thread only, between two bytecode instructions; a compiled kernel may keep it
busy for minutes. Here another thread reads the signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

RELEASE_SECONDS = 3.0
"""Time limit for releasing locks; less than a pod's grace period."""
TERMINATED = 128 + signal.SIGTERM

_held: list[Callable[[], None]] = []


@contextlib.contextmanager
def at_end(release: Callable[[], None]) -> Iterator[None]:
    """Within the block, `release` is called when the process is to end; it may be called from any thread."""
    _held.append(release)
    try:
        yield
    finally:
        _held.remove(release)


def end_process(status: int) -> NoReturn:
    """Release what is held, and end."""
    releasing = [threading.Thread(target=release, daemon=True) for release in list(_held)]
    for thread in releasing:
        thread.start()
    for thread in releasing:
        thread.join(RELEASE_SECONDS)
    os._exit(status)


@contextlib.contextmanager
def when_asked() -> Iterator[None]:
    """Within the block, SIGTERM ends this process by `end_process`. For the main thread; nothing happens in others."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def listen() -> None:
        while number := os.read(reading, 1):
            if number == bytes([signal.SIGTERM]):
                end_process(TERMINATED)

    listener = threading.Thread(target=listen, name="signals", daemon=True)
    listener.start()
    handler = signal.signal(signal.SIGTERM, lambda number, frame: None)
    woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        signal.set_wakeup_fd(woken)
        os.close(writing)
        listener.join()
        os.close(reading)
