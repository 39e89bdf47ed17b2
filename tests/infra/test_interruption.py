"""Signals that end a run."""

from __future__ import annotations

import os
import signal
import sys
import time
import weakref

import pytest

from superworkflow.infra.execution.interruption import Interrupted, interrupted, interruptible


@interruptible()
def killed(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(5)


def test_a_signal_raises_in_the_main_thread():
    with pytest.raises(Interrupted, match="SIGTERM") as caught:
        killed(signal.SIGTERM)
    assert caught.value.exit_code == 128 + signal.SIGTERM


class Thing:
    """Where it ends, it gets a signal."""

    def __init__(self, place: str):
        self.place = place

    def __del__(self) -> None:
        if self.place == "destructor":
            os.kill(os.getpid(), signal.SIGHUP)


@interruptible()
def ended(things: list[Thing]) -> None:
    things.clear()
    assert interrupted()
    time.sleep(5)


@pytest.mark.parametrize("place", ["weak reference", "destructor"])
def test_a_signal_that_comes_where_nothing_can_be_raised_raises_soon_after(place):
    """Python prints and drops what is raised there: a sweep that got its signal so ran on to its end."""

    def gone(reference: weakref.ref[Thing]) -> None:
        if place == "weak reference":
            os.kill(os.getpid(), signal.SIGHUP)

    things, before, began = [Thing(place)], sys.unraisablehook, time.monotonic()
    reference = weakref.ref(things[0], gone)
    with pytest.raises(Interrupted, match="SIGHUP"):
        ended(things)
    assert time.monotonic() - began < 4
    assert reference() is None
    assert sys.unraisablehook is before
