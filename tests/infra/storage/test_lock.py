"""One writer for each dataset, on a local folder and on S3."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.process import shutdown
from superworkflow.infra.process.identity import ProcessIdentity
from superworkflow.infra.storage import lease, lock, s3
from superworkflow.infra.storage.lease import Lease, LeaseClaim
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.lock import LeaseLost, exclusive
from superworkflow.infra.storage.store import Store
from tests.s3_proxy import S3Proxy

DIGEST = "0" * 32

HOLDER = """
import ctypes, sys, threading
from superworkflow.infra.process import shutdown
from superworkflow.infra.storage import lease, lock
from superworkflow.infra.storage.location import Location
lease.RENEW_SECONDS = 0.3
def lost(error):
    print(error, flush=True)
    shutdown.end_process(1)
where, claim = Location.of(sys.argv[1]), lease.LeaseClaim(sys.argv[2])
with shutdown.on_signals(), lock.exclusive(where, on_lost=lost, claim=claim):
    print("held", flush=True)
    mutex = ctypes.create_string_buffer(128)
    for _ in range(2):  # as in a kernel: no instruction of Python any more, whatever signal comes
        ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""


def _holder(location: Location, name: str = "") -> subprocess.Popen[str]:
    """A process that holds the lock, and whose main thread hears no signal."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, location.uri, name], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def _free_at_once(location: Location) -> bool:
    """True if the lock can be had without waiting for a lease to expire."""
    waited: list[int] = []
    with exclusive(location, lambda: waited.append(1)):
        return not waited


def test_others_of_the_group_may_take_a_lock(tmp_path: Path) -> None:
    location, before = Location(str(tmp_path / "count" / DIGEST)), os.umask(0o002)
    try:
        with exclusive(location):
            (path,) = Path(location.uri).parent.glob(".*.lock")
            assert path.stat().st_mode & 0o777 == 0o664
    finally:
        os.umask(before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_ended_holder_lets_go(store: Store, number: signal.Signals) -> None:
    location = store.location("count", DIGEST)
    holder = _holder(location)
    holder.send_signal(number)
    holder.communicate()
    assert holder.returncode == (shutdown.TERMINATED if number == signal.SIGTERM else -number)
    if number == signal.SIGTERM and location.local_path is None:
        assert store.root.walk_files() == []
    assert _free_at_once(location)


def test_killed_holder_lets_go_those_who_wait(store: Store) -> None:
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
        assert not entered.wait(2.5)
    finally:
        holder.kill()
        holder.communicate()
    assert entered.wait(20)
    thread.join()


def test_leaves_nothing_in_the_store(store: Store) -> None:
    location = store.location("count", DIGEST)
    with exclusive(location) as right:
        right.check()
        right.confirm()
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


def test_sigterm_ends_a_holder_whose_store_is_away(s3_store: Store, s3_proxy: S3Proxy) -> None:
    holder = _holder(s3_store.location("count", DIGEST))
    s3_proxy.set("hang")
    holder.terminate()
    holder.communicate(timeout=60)
    assert holder.returncode == shutdown.TERMINATED


def test_holder_that_lost_the_lease_ends_itself(s3_store: Store) -> None:
    location = s3_store.location("count", DIGEST)
    holder = _holder(location, "attempt-1")
    with exclusive(location, claim=LeaseClaim("attempt-2", {"attempt-1"})) as right:
        said, _ = holder.communicate(timeout=60)
        assert "another took over the dataset" in said
        assert holder.returncode == 1
        right.confirm()


class TestLease:
    """The lease object on S3."""

    @pytest.fixture
    def location(self, s3_store: Store) -> Location:
        return s3_store.root.join(".lease")

    @pytest.fixture
    def short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Leases last for a second, and nobody renews them."""
        monkeypatch.setattr(lease, "LEASE_SECONDS", 1.0)
        monkeypatch.setattr(lease, "RENEW_SECONDS", 3600.0)

    @staticmethod
    def _wait_for(waiting: Lease) -> None:
        while not waiting.acquire():
            time.sleep(0.05)

    def test_second_must_wait(self, location: Location) -> None:
        first, second = Lease(location), Lease(location)
        assert first.acquire()
        assert not second.acquire()
        assert first.renew()
        first.release()
        assert second.acquire()
        second.release()
        assert location.size() is None

    def test_clocks_are_not_compared(self, location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
        """A machine whose clock is days ahead, or behind, takes over no live lease."""
        first, ahead, behind = Lease(location), Lease(location), Lease(location)
        assert first.acquire()
        real, boot = time.time, lease.clock
        for other, shift in ((ahead, 1e6), (behind, -1e6)):
            monkeypatch.setattr(time, "time", lambda shift=shift: real() + shift)
            monkeypatch.setattr(lease, "clock", lambda shift=shift: boot() + shift)
            assert not other.acquire()
            assert not other.acquire()
        monkeypatch.undo()
        assert first.renew()

    def test_lease_that_is_renewed_is_not_taken_over(self, location: Location, short: None) -> None:
        first, second = Lease(location), Lease(location)
        assert first.acquire()
        began = lease.clock()
        while lease.clock() - began < 3:
            looked = lease.clock()
            taken = second.acquire()
            if first.remaining <= 0 or lease.clock() - looked > 0.5:
                pytest.skip("this machine is too busy to renew in time")
            assert not taken
            assert first.renew()

    def test_lease_that_stays_the_same_is_taken_over(self, location: Location, short: None) -> None:
        first, second = Lease(location), Lease(location)
        assert first.acquire()
        assert not second.acquire()
        self._wait_for(second)
        assert first.remaining <= 0  # the holder knew before
        assert not first.renew()
        first.release()
        assert second.renew()  # it is still there

    def test_late_holder_keeps_what_nobody_took(self, location: Location, short: None) -> None:
        first, second = Lease(location), Lease(location)
        assert first.acquire()
        time.sleep(1.2)
        assert first.remaining <= 0
        assert first.renew()
        assert not second.acquire()

    def test_one_of_many_takes_over(self, location: Location) -> None:
        assert Lease(location, LeaseClaim("dead")).acquire()
        waiting = [Lease(location, LeaseClaim(supersedes=["dead"])) for _ in range(8)]
        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(Lease.acquire, waiting)) == 1

    def test_only_the_named_holder_is_superseded(self, location: Location) -> None:
        assert Lease(location, LeaseClaim("attempt-1")).acquire()
        assert not Lease(location, LeaseClaim("attempt-3", {"attempt-2", "other"})).acquire()
        assert Lease(location, LeaseClaim("attempt-2", {"attempt-1"})).acquire()

    @pytest.mark.parametrize(
        ("changed", "taken"),
        [
            ({}, False),
            ({"pid": 1 << 30}, True),
            ({"started": "1"}, True),  # its number has another process by now
            ({"pid": 1 << 30, "host": "elsewhere"}, False),
            ({"pid": "x"}, False),
            ({"pid": 1 << 30, "started": ""}, False),
        ],
    )
    def test_holder_is_known_to_be_gone(self, location: Location, changed: dict[str, Any], taken: bool) -> None:
        process = replace(ProcessIdentity.here(), **changed)
        location.write_atomic(json.dumps({"holder": "one", "process": str(process)}))
        assert Lease(location).acquire() is taken

    @pytest.mark.parametrize("text", ["no JSON", "[1]", "{}", '{"process": 3}', '{"holder": [], "expires": 1.5}'])
    def test_lease_that_cannot_be_read_is_waited_for(self, location: Location, short: None, text: str) -> None:
        location.write_atomic(text)
        waiting = Lease(location)
        assert not waiting.acquire()
        self._wait_for(waiting)

    def test_renewal_whose_answer_was_lost(self, s3_proxy: S3Proxy, location: Location) -> None:
        first = Lease(location)
        assert first.acquire()
        s3_proxy.trip = (b"PUT /", "deaf", 0.5)
        while True:
            try:
                assert first.renew()
                break
            except Exception:
                continue
        assert s3_proxy.tripped.is_set()
        assert first.renew()

    def test_outage_longer_than_the_lease(
        self, s3_store: Store, s3_proxy: S3Proxy, short: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No process could take over while the store was away for all; the holder continues."""
        monkeypatch.setattr(lease, "RENEW_SECONDS", 0.2)
        monkeypatch.setattr(lock, "RETRY_SECONDS", 0.2)
        monkeypatch.setattr(s3, "HURRIED_SECONDS", 0.3)
        lost: list[LeaseLost] = []
        with exclusive(s3_store.location("count", DIGEST), on_lost=lost.append) as right:
            s3_proxy.outage("refuse", 2.5)
            right.confirm()
        assert not lost

    def test_holder_that_lost_it_does_not_complete(self, s3_store: Store, short: None) -> None:
        location = s3_store.location("count", DIGEST)
        with exclusive(location) as right:
            other = Lease(s3_store.root.join("count", f".{DIGEST}.lease"))
            self._wait_for(other)
            with pytest.raises(LeaseLost, match="another took over the dataset"):
                right.check()
            with pytest.raises(LeaseLost, match="another took over the dataset"):
                right.confirm()
        assert other.renew()
