"""Signals that end a run."""

import os
import signal
import sys
import time
import weakref
from pathlib import Path

import pytest
import sqlalchemy

from superworkflow.infra.process.interrupt import Interrupted, interrupted, interruptible

NUMBER = signal.SIGTERM
"""Not SIGHUP: who runs tests under `nohup` has it ignored."""


def kill() -> None:
    os.kill(os.getpid(), NUMBER)


@interruptible()
def killed() -> None:
    kill()
    time.sleep(5)


def test_a_signal_raises_in_the_main_thread():
    before = signal.getsignal(NUMBER), sys.unraisablehook
    with pytest.raises(Interrupted, match="SIGTERM") as caught:
        killed()
    assert caught.value.exit_code == 128 + NUMBER
    assert (signal.getsignal(NUMBER), sys.unraisablehook) == before


class Thing:
    """Sends this process a signal when it is destroyed."""

    def __init__(self, place: str):
        self.place = place

    def __del__(self) -> None:
        if self.place == "destructor":
            kill()


@interruptible()
def ended(things: list[Thing], seconds: float) -> None:
    things.clear()
    assert interrupted()
    time.sleep(seconds)


@pytest.mark.parametrize("seconds", [5, 0], ids=["soon after", "at the end"])
@pytest.mark.parametrize("place", ["weak reference", "destructor"])
def test_a_signal_that_comes_where_nothing_can_be_raised_is_not_lost(place: str, seconds: float):
    """Python drops what is raised there: a sweep that got its signal so ran on to its end."""

    def gone(reference: weakref.ref[Thing]) -> None:
        if place == "weak reference":
            kill()

    things, before, began = [Thing(place)], sys.unraisablehook, time.monotonic()
    reference = weakref.ref(things[0], gone)
    with pytest.raises(Interrupted, match="SIGTERM"):
        ended(things, seconds)
    assert time.monotonic() - began < 4
    assert reference() is None
    assert sys.unraisablehook is before
    time.sleep(0.2)  # a signal that came now would end the tests


@interruptible()
def written(engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("INSERT INTO made VALUES (1)"))
    time.sleep(5)


@pytest.mark.parametrize("event", ["before_cursor_execute", "after_cursor_execute", "commit"])
def test_a_transaction_is_not_cut_off(tmp_path: Path, event: str):
    engine, began = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/made.db"), time.monotonic()
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE made (number INTEGER)"))
    sqlalchemy.event.listen(engine, event, lambda *given: kill())
    with pytest.raises(Interrupted, match="SIGTERM"):
        written(engine)
    assert time.monotonic() - began < 4
    other = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/made.db", connect_args={"timeout": 0})
    with other.begin() as connection:
        assert connection.execute(sqlalchemy.text("SELECT number FROM made")).all() == [(1,)]
        connection.execute(sqlalchemy.text("INSERT INTO made VALUES (2)"))


def test_a_database_that_does_not_answer_holds_it_up_for_no_longer_than_two_seconds(tmp_path: Path):
    engine, began = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/made.db"), time.monotonic()
    sqlalchemy.event.listen(engine, "before_cursor_execute", lambda *given: (kill(), time.sleep(8)))
    with pytest.raises(Interrupted):
        written(engine)
    assert 2 <= time.monotonic() - began < 6
