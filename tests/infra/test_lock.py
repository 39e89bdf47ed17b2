"""One writer for each dataset, on a local folder and on S3."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra import lock
from infra.errors import SuperworkflowError
from infra.filesystem import Location
from infra.lock import Lease, exclusive
from infra.store import Store

DIGEST = "0" * 32

HOLDER = """
import sys, time
from infra import lock
from infra.filesystem import Location
lock.LEASE_SECONDS, lock.RENEW_SECONDS = 2.0, 0.5
with lock.exclusive(Location.of(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def _holder(location: Location) -> subprocess.Popen[str]:
    """A process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, location.uri], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_killed_holder_lets_go(store: Store) -> None:
    location = store.location("count", DIGEST)
    holder = _holder(location)
    entered, waited = threading.Event(), threading.Event()

    def second() -> None:
        with exclusive(location, waited.set):
            entered.set()

    thread = threading.Thread(target=second)
    thread.start()
    try:
        assert waited.wait(20)
        assert not entered.wait(2.5)  # longer than the lease, which its holder renews
    finally:
        holder.kill()
        holder.communicate()
    assert entered.wait(20)
    thread.join()


def test_leaves_nothing_in_the_store(store: Store) -> None:
    location = store.location("count", DIGEST)
    with exclusive(location) as confirm:
        confirm()
        assert store.root.walk_files()
        assert location.walk_files() == []
    assert store.root.walk_files() == []


def test_let_go_after_an_error(store: Store) -> None:
    location = store.location("count", DIGEST)
    with pytest.raises(RuntimeError), exclusive(location):
        raise RuntimeError
    waited: list[int] = []
    with exclusive(location, lambda: waited.append(1)):
        pass
    assert not waited


def test_datasets_do_not_wait_for_each_other(store: Store) -> None:
    waited: list[int] = []
    with (
        exclusive(store.location("count", "a" * 32)),
        exclusive(store.location("count", "b" * 32), lambda: waited.append(1)),
    ):
        pass
    assert not waited


def test_one_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many that come and go: nobody is inside with another, though each removes the lock behind itself."""
    monkeypatch.setattr(lock, "POLL_SECONDS", 0.02)
    location = store.location("count", DIGEST)
    inside: list[int] = []
    together: list[int] = []

    def enter(number: int) -> None:
        with exclusive(location):
            inside.append(number)
            time.sleep(0.002)
            together.append(len(inside))
            inside.remove(number)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(enter, range(24)))
    assert together == [1] * 24


def test_local_lock_is_beside_the_dataset(tmp_path: Path) -> None:
    with exclusive(Location.of(tmp_path / "count" / DIGEST)):
        assert [path.name for path in (tmp_path / "count").iterdir()] == [f".{DIGEST}.lock"]


class TestLease:
    """The lease object on S3."""

    @pytest.fixture
    def location(self, s3_store: Store) -> Location:
        return s3_store.root.join(".lease")

    def test_second_must_wait(self, location: Location) -> None:
        first, second = Lease(location), Lease(location)
        assert first.acquire()
        assert not second.acquire()
        assert first.renew()
        first.release()
        assert second.acquire()
        second.release()
        assert location.size() is None

    def test_expired_lease_is_lost(self, location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second = Lease(location), Lease(location)
        monkeypatch.setattr(lock, "LEASE_SECONDS", -1.0)
        assert first.acquire()
        monkeypatch.undo()
        assert second.acquire()
        assert not first.renew()
        first.release()
        assert second.renew()  # it is still there

    def test_late_holder_keeps_what_nobody_took(self, location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second = Lease(location), Lease(location)
        monkeypatch.setattr(lock, "LEASE_SECONDS", -1.0)
        assert first.acquire()
        monkeypatch.undo()
        assert first.renew()
        assert not second.acquire()

    def test_one_of_many_takes_over(self, location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lock, "LEASE_SECONDS", -1.0)
        assert Lease(location).acquire()
        monkeypatch.undo()
        waiting = [Lease(location) for _ in range(8)]
        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(Lease.acquire, waiting)) == 1

    def test_unreadable_lease_is_taken_over(self, location: Location) -> None:
        location.write_atomic("no JSON")
        assert Lease(location).acquire()

    def test_holder_that_lost_it_does_not_complete(self, s3_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        location = s3_store.location("count", DIGEST)
        monkeypatch.setattr(lock, "LEASE_SECONDS", -1.0)
        with exclusive(location) as confirm:
            monkeypatch.undo()
            other = Lease(s3_store.root.join("count", f".{DIGEST}.lease"))
            assert other.acquire()
            with pytest.raises(SuperworkflowError, match="another took over the dataset"):
                confirm()
        assert other.renew()
