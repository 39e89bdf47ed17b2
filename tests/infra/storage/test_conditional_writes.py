"""S3 servers that heed the conditions of writes in their own way, and those that do not."""

import threading
import uuid
from collections.abc import Iterator

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage import conditional_writes, lease, s3
from superworkflow.infra.storage.lease import Lease, LeaseClaim
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.lock import exclusive
from superworkflow.infra.storage.s3 import PatientS3
from superworkflow.infra.storage.store import Store
from tests.s3_servers import KIND, make_bucket

DIGEST = "0" * 32

moto_only = pytest.mark.skipif(KIND != "moto", reason="a real server has its own quirks")


@pytest.fixture
def quirky(request: pytest.FixtureRequest, s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store on a server that behaves so, of which this process knows nothing."""
    make_bucket(request.param)
    monkeypatch.setattr(conditional_writes, "_heeding", set())
    monkeypatch.setattr(s3, "_bare_tags", set())
    return Store(f"s3://{request.param}/{uuid.uuid4().hex}")


@moto_only
@pytest.mark.parametrize(
    ("quirky", "said"),
    [
        ("ignores-if-none-match", r"let 4 of 4 create one object \(If-None-Match\)"),
        # The one that is refused may come before the others have written, and then is not.
        ("looks-before", r"let [34] of 4 create one object \(If-None-Match\)"),
        ("ignores-if-match", r"ignores If-Match"),
        ("refuses-if-match", r"refuses a write whose condition holds \(If-Match\)"),
    ],
    indirect=["quirky"],
)
def test_store_where_two_could_write_one_dataset_is_refused(quirky: Store, said: str) -> None:
    with pytest.raises(UserError, match=rf"the S3 server {said}, so that two runs could write .*Use a server with"):
        quirky.check_writable()
    assert quirky.root.walk_files() == []


@moto_only
@pytest.mark.parametrize(
    ("quirky", "header"),
    [("ignores-if-none-match", "If-None-Match"), ("ignores-if-match", "If-Match")],
    indirect=["quirky"],
)
def test_no_lease_where_conditions_are_ignored(quirky: Store, header: str) -> None:
    """Also of a stage that is started by hand, for which nobody has looked at the store."""
    with (
        pytest.raises(UserError, match=f"the S3 server ignores {header}, so that two"),
        exclusive(quirky.location("count", DIGEST)),
    ):
        raise AssertionError("it was given")
    assert quirky.root.walk_files() == []


@moto_only
@pytest.mark.parametrize("quirky", ["refuses-if-match"], indirect=True)
def test_renewal_that_is_always_refused_is_an_error(quirky: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not repeated for ever."""
    monkeypatch.setattr(lease, "_REFUSED_SECONDS", 0.0)
    held = Lease(quirky.root.join(".lease"))
    assert held.acquire()
    with pytest.raises(UserError, match="refuses to replace an object though it has not changed"):
        held.renew()


@moto_only
@pytest.mark.parametrize("quirky", ["as-ceph"], indirect=True)
class TestAsCeph:
    """Stands in for the same tests on Ceph, where it is not installed."""

    def test_store_is_taken(self, quirky: Store) -> None:
        quirky.check_writable()
        assert quirky.root.walk_files() == []

    def test_lease(self, quirky: Store) -> None:
        first, second = (Lease(quirky.root.join(".lease")) for _ in range(2))
        assert first.acquire()
        assert not second.acquire()
        assert first.renew()
        assert first.renew()
        first.release()
        assert second.acquire()

    def test_late_deletion_leaves_the_lease_of_another(self, quirky: Store) -> None:
        file = quirky.root.join(".lease")
        first = Lease(file, LeaseClaim("attempt-1"))
        assert first.acquire()
        second = Lease(file, LeaseClaim("attempt-2", {"attempt-1"}))
        assert second.acquire()
        first.release()
        assert second.renew()

    def test_refusal_without_a_message_is_named(self, quirky: Store) -> None:
        quirky.root.join("there").write_atomic("x")
        with pytest.raises(OSError, match="PreconditionFailed"):
            PatientS3().pipe_file(quirky.root.join("there").uri, b"y", IfMatch='"another"')

    def test_late_upload_in_parts(self, quirky: Store, small_parts: None) -> None:
        _assert_late_upload_is_refused(quirky.root.join("large"))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Uploads go in parts from 5 MiB on."""
    PatientS3.clear_instance_cache()
    monkeypatch.setattr(PatientS3, "default_block_size", 5 << 20)
    yield
    PatientS3.clear_instance_cache()


def _assert_late_upload_is_refused(file: Location) -> None:
    late = file.open("xb")
    late.write(bytes(11 << 20))
    file.write_atomic("another's")
    with pytest.raises(OSError) as raised:
        late.close()
    assert s3.refused(raised.value)
    assert file.read_text() == "another's"


def test_late_upload_in_parts_is_refused(s3_store: Store, small_parts: None) -> None:
    _assert_late_upload_is_refused(s3_store.root.join("large"))


def test_conditions_are_asked_for_once(s3_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process asks no more than two requests, at its first lease."""
    created: list[str] = []
    create = Location.create_exclusive

    def count(self: Location, text: str) -> str | None:
        created.append(self.uri)
        return create(self, text)

    monkeypatch.setattr(conditional_writes, "_heeding", set())
    monkeypatch.setattr(Location, "create_exclusive", count)
    for number in range(3):
        held = Lease(s3_store.root.join(f".{number}.lease"))
        assert held.acquire()
        held.release()
    assert len(created) == 4
    assert s3_store.root.walk_files() == []


def test_one_of_many_who_take_over(s3_store: Store) -> None:
    """Those who lose are refused, also by servers that answer so with an error of their own."""
    file = s3_store.root.join("lease")
    tag = file.create_exclusive("first")
    assert tag is not None
    done: list[str | None] = []
    threads = [threading.Thread(target=lambda n=n: done.append(file.replace_tagged(f"{n}", tag))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(new is not None for new in done) == 1
