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

from superworkflow.infra.base.errors import rendered

PATIENCE_SECONDS = 10.0
"""Seconds after the first signal in which further ones only print a message."""
_POSTPONED_SECONDS = 2.0
"""Longest wait for SQLAlchemy to return."""
_AGAIN_SECONDS = 0.05
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asked this process to end."""

    def __init__(self, number: int):
        self.exit_code = 128 + number
        super().__init__("interrupted" if number == signal.SIGINT else f"interrupted by {signal.Signals(number).name}")

    def _render_traceback_(self) -> list[str]:
        return rendered(self)


class _Interruption:
    def __init__(self, last_words: str):
        self._last_words = last_words
        self._previous: dict[signal.Signals, Any] = {}
        self._hook = sys.unraisablehook
        self._main = threading.get_ident()
        self._received_s = 0.0
        self._is_installed = False
        self.number: int | None = None
        """The first signal."""
        self.is_pending = False
        """True while `Interrupted` is still to be raised for it."""

    def install(self) -> None:
        """Handle the signals, again where another library took one; ignored ones (`nohup`) stay ignored."""
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous.setdefault(number, signal.signal(number, self._handle))
        sys.unraisablehook, self._is_installed = self._dropped, True

    def restore(self) -> None:
        self._is_installed, sys.unraisablehook = False, self._hook
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is None:
            self.number, self.is_pending, self._received_s = number, True, time.monotonic()
        elapsed_s = time.monotonic() - self._received_s
        if self.is_pending and elapsed_s < _POSTPONED_SECONDS and _is_within(frame, "sqlalchemy"):
            # Cut off there, a transaction may stay open, and lock the database against all who close the records.
            self._send_again()
        elif self.is_pending:
            self.is_pending = False
            raise Interrupted(self.number)
        elif elapsed_s < PATIENCE_SECONDS:
            _write("ending the stages and closing the records; this takes a few seconds\n")
        else:
            _write(f"ended at once\n{self._last_words}\n")
            os._exit(128 + number)

    def _dropped(self, unraisable: Any) -> None:
        """Python prints and forgets an exception in a destructor or in a callback of a weak reference; not this one."""
        if isinstance(unraisable.exc_value, Interrupted):
            self.is_pending = True
            self._send_again()
        else:
            self._hook(unraisable)

    def _send_again(self) -> None:
        # `threading.Thread` takes a lock, which the interrupted code may hold.
        _thread.start_new_thread(self._send, ())

    def _send(self) -> None:
        time.sleep(_AGAIN_SECONDS)
        if self._is_installed and self.is_pending and self.number is not None:
            signal.pthread_kill(self._main, self.number)


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

    Any error that follows at the end of the run becomes that `Interrupted`: a stage that got the same signal from the
    terminal "failed", and a server that got it cannot be reached.

    Args:
        last_words: printed when further signals end the process at once.

    Raises:
        Interrupted: a signal came, and the interrupted work has ended.
    """
    global _current
    if threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
        yield
        return
    outer, _current = _current, _Interruption(last_words)
    _current.install()
    try:
        yield
        if _current.is_pending and _current.number is not None:
            raise Interrupted(_current.number)
    except BaseException:
        if _current.number is not None:
            raise Interrupted(_current.number) from None
        raise
    finally:
        _current.restore()
        _current = outer


def take_signals_back() -> None:
    """Handle again the signals that another library has taken since `interruptible` began, if it did."""
    if _current is not None and threading.current_thread() is threading.main_thread():
        _current.install()


def interrupted() -> bool:
    """True if a signal has asked this process to end."""
    return _current is not None and _current.number is not None


def ignore_signals() -> None:
    """Ignore further signals in a process that ends now.

    While it ends, Python has no handlers: a second Ctrl-C would replace the exit status by a death by SIGINT.
    """
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _write(text: str) -> None:
    """Write to standard error without its buffer, which the interrupted code may hold."""
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text.encode(errors="replace"))
