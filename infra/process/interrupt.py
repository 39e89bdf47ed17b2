"""Signals that end a run: one `Interrupted` in the main thread, whichever it was and however often it came.

Ctrl-C, a scheduler's SIGTERM and a terminal that was closed all mean the same: end the stages, close the records, print
how to resume. That takes a few seconds, in which a second signal would only break it; later ones end the process at
once, and its children with it, as after a SIGKILL.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

PATIENCE_SECONDS = 10.0
"""So long after the first signal further ones do nothing."""

_AGAIN_SECONDS = 0.05
"""So long after it could not be raised, `Interrupted` is tried again."""

_POSTPONED_SECONDS = 2.0
"""For so long at most it waits for SQLAlchemy to come back."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asked this process to end.

    Args:
        number: which.
    """

    def __init__(self, number: int):
        self.exit_code = 128 + number
        super().__init__("interrupted" if number == signal.SIGINT else f"interrupted by {signal.Signals(number).name}")


class _Interruption:
    def __init__(self, last_words: str):
        self._last_words = last_words
        self._first: tuple[int, float] | None = None
        self._taken: dict[signal.Signals, object] = {}
        self._hook = sys.unraisablehook
        self._main = threading.get_ident()
        self._is_installed = self.is_owed = False

    @property
    def number(self) -> int | None:
        return None if self._first is None else self._first[0]

    def install(self) -> None:
        """Handle the signals, again where another library took one; ignored ones (`nohup`) stay ignored."""
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                previous = signal.signal(number, self._handle)
                self._taken.setdefault(number, previous)
        sys.unraisablehook, self._is_installed = self._dropped, True

    def restore(self) -> None:
        self._is_installed, sys.unraisablehook = False, self._hook
        for number, previous in self._taken.items():
            signal.signal(number, previous)  # type: ignore[arg-type]  # what `signal` itself returned

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first, self.is_owed = (number, now), True
        if self.is_owed:
            # Cut off there, a transaction may stay open, and lock the database against all who close the records.
            if now - self._first[1] < _POSTPONED_SECONDS and _is_within(frame, "sqlalchemy"):
                self._send_again()
                return
            self.is_owed = False
            raise Interrupted(self._first[0])
        if now - self._first[1] < PATIENCE_SECONDS:
            _write("ending the stages and closing the records; this takes a few seconds\n")
            return
        _write(f"ended at once\n{self._last_words}\n")
        os._exit(128 + number)

    def _dropped(self, unraisable: Any) -> None:
        """Python prints and forgets what is raised in a destructor or in a weak reference's callback."""
        if isinstance(unraisable.exc_value, Interrupted) and self._first is not None:
            self.is_owed = True
            self._send_again()
        else:
            self._hook(unraisable)

    def _send_again(self) -> None:
        # `threading.Thread` takes a lock, which the interrupted code may hold.
        _thread.start_new_thread(self._send, ())

    def _send(self) -> None:
        time.sleep(_AGAIN_SECONDS)
        if self._is_installed and self.is_owed and self._first is not None:
            signal.pthread_kill(self._main, self._first[0])


def _is_within(frame: FrameType | None, package: str) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__")).split(".")[0] == package:
            return True
        frame = frame.f_back
    return False


_current: _Interruption | None = None


@contextmanager
def interruptible(last_words: str = "") -> Iterator[None]:
    """Within it, SIGINT, SIGTERM and SIGHUP raise `Interrupted` in the main thread, once.

    Whatever the end of the run then raises leaves as that `Interrupted`: a stage that got the same signal from the
    terminal "failed", and a server that got it cannot be reached.

    Args:
        last_words: printed when further signals end the process at once.

    Raises:
        Interrupted: a signal came, and what it interrupted has ended.
    """
    global _current
    if threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
        yield
        return
    outer, _current = _current, _Interruption(last_words)
    _current.install()
    try:
        yield
        if _current.is_owed and _current.number is not None:
            raise Interrupted(_current.number)
    except BaseException:
        if _current.number is not None:
            raise Interrupted(_current.number) from None
        raise
    finally:
        _current.restore()
        _current = outer


def take_signals_back() -> None:
    """Handle again what another library has taken since `interruptible` began; nothing where it did not begin."""
    if _current is not None and threading.current_thread() is threading.main_thread():
        _current.install()


def interrupted() -> bool:
    """True if a signal has asked this process to end."""
    return _current is not None and _current.number is not None


def _write(text: str) -> None:
    """To standard error without its buffer, which the interrupted code may hold."""
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text.encode(errors="replace"))
