"""Early shutdown: let the work save its state if it can, release locks, then exit, even inside a kernel.

Python runs signal handlers in the main thread only, between two bytecode instructions; a compiled kernel may keep it
busy for minutes. Here another thread reads the signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

SAVE_SECONDS, RELEASE_SECONDS = 10.0, 3.0
"""Time limits for saving the state of the work and for releasing locks; in all less than a pod's grace period."""
TERMINATED = 128 + signal.SIGTERM
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_held: list[Callable[[], None]] = []
_saving: list[Shutdown] = []


class Shutdown:
    """The end of this process, as seen by work that can save its state first."""

    def __init__(self) -> None:
        self._requested, self._done = threading.Event(), threading.Event()

    @property
    def requested(self) -> bool:
        """True once the process is to end: save, then call `end`."""
        return self._requested.is_set()

    def end(self) -> NoReturn:
        """Let the process end; all is saved."""
        self._done.set()
        while True:
            time.sleep(SAVE_SECONDS)

    def await_saved(self, until: float) -> None:
        """Request the end, and wait for the work until a time of the monotonic clock."""
        self._requested.set()
        self._done.wait(max(0.0, until - time.monotonic()))

    def leave(self) -> None:
        """Note that the work has ended by itself, and nothing needs to be saved."""
        self._done.set()


@contextlib.contextmanager
def saves_first() -> Iterator[Shutdown]:
    """Within the block, the end of this process by a signal or with its parent waits until the work has saved."""
    work = Shutdown()
    _saving.append(work)
    try:
        yield work
    finally:
        _saving.remove(work)
        work.leave()


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


def save_and_end(status: int) -> NoReturn:
    """Let the work save its state for at most `SAVE_SECONDS`, then end; see `end_process`."""
    until = time.monotonic() + SAVE_SECONDS
    for work in list(_saving):
        work.await_saved(until)
    end_process(status)


@contextlib.contextmanager
def on_signals() -> Iterator[None]:
    """Within the block, SIGTERM and SIGINT end this process by `save_and_end`, and a second SIGINT ends it at once.

    For the main thread; nothing happens in others.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def listen() -> None:
        ending = False
        while number := os.read(reading, 1):
            if number[0] not in _SIGNALS:
                continue
            if not ending:
                ending = True
                threading.Thread(target=save_and_end, args=(128 + number[0],), name="end", daemon=True).start()
            elif number[0] == signal.SIGINT:
                end_process(128 + number[0])

    listener = threading.Thread(target=listen, name="signals", daemon=True)
    listener.start()
    handlers = {number: signal.signal(number, lambda number, frame: None) for number in _SIGNALS}
    woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken)
        os.close(writing)
        listener.join()
        os.close(reading)
