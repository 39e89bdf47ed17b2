"""S3 through a bad network: what is waited for, what is not, and that nothing is written twice or half."""

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import botocore.exceptions
import pytest

from superworkflow.infra.storage import retry, s3
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.retry import Unreachable
from superworkflow.infra.storage.s3 import PatientS3, transient
from superworkflow.infra.storage.store import Store
from tests.s3_proxy import Mode, S3Proxy

OUTAGE_SECONDS = 2.5
"""Longer than an outage that is not logged."""


@pytest.fixture
def root(s3_proxy: S3Proxy, s3_store: Store, monkeypatch: pytest.MonkeyPatch) -> Location:
    """A place on S3 that this process has reached."""
    monkeypatch.setattr(s3, "QUIET_SECONDS", 1.0)
    monkeypatch.setattr(s3, "HURRIED_SECONDS", 1.0)
    s3_store.root.join("there.txt").write_atomic("there")
    return s3_store.root


@pytest.fixture
def reported() -> Iterator[list[str]]:
    lines: list[str] = []
    with retry.log_to(lines.append):
        yield lines


def _read(root: Location, path: Path) -> None:
    assert root.join("there.txt").read_text() == "there"


def _list(root: Location, path: Path) -> None:
    assert root.walk_files() == ["there.txt"]


def _size(root: Location, path: Path) -> None:
    assert root.join("there.txt").size() == 5
    assert root.join("none").size() is None


def _download(root: Location, path: Path) -> None:
    root.join("there.txt").download(path)
    assert path.read_text() == "there"


def _upload(root: Location, path: Path) -> None:
    path.write_bytes(os.urandom(1 << 20))
    assert root.join("new").upload(path, create=True)
    assert root.join("new").size() == 1 << 20


def _stream(root: Location, path: Path) -> None:
    with root.join("new").open("xb") as stream:
        stream.write(b"one")
        stream.write(b"two")
    with root.join("new").open() as stream:
        assert stream.read() == b"onetwo"


def _delete(root: Location, path: Path) -> None:
    root.join("there.txt").delete()
    assert root.walk_files() == []


def _conditional(root: Location, path: Path) -> None:
    tag = root.join("new").create_exclusive("one")
    assert tag is not None
    assert root.join("new").replace_tagged("two", tag) == root.join("new").tag()


@pytest.mark.parametrize("work", [_read, _list, _size, _download, _upload, _stream, _delete, _conditional])
@pytest.mark.parametrize("mode", ["refuse", "hang", "busy", "broken"])
def test_outage_is_waited_for(
    mode: Mode, work: Callable[[Location, Path], None], root: Location, s3_proxy: S3Proxy, tmp_path: Path
) -> None:
    s3_proxy.outage(mode, 1.0)
    work(root, tmp_path / "file")


def test_outage_is_reported_once(root: Location, s3_proxy: S3Proxy, reported: list[str]) -> None:
    s3_proxy.outage("refuse", retry.LOGGED_SECONDS + 2)
    threads = [threading.Thread(target=_list, args=[root, None]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reported) == 2
    assert reported[0].startswith(f"waiting: the store at {s3_proxy.url} does not answer (")
    assert reported[0].endswith("; trying again for up to 600 s")
    assert reported[1].startswith(f"the store at {s3_proxy.url} answers again after ")


def test_patience_ends(root: Location, s3_proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PATIENCE_SECONDS", 1.0)
    s3_proxy.set("refuse")
    with pytest.raises(Unreachable, match=r"has not answered for 1 s .*complete stages are kept"):
        root.join("there.txt").read_text()


def test_hurried_place_does_not_wait(root: Location, s3_proxy: S3Proxy) -> None:
    """Patience is 600 s; a test that waited for it would be ended by its runner."""
    s3_proxy.set("refuse")
    with pytest.raises(Exception) as raised:
        root.hurried().join("there.txt").read_text()
    assert transient(raised.value)


def test_server_never_reached_is_not_waited_for(s3_proxy: S3Proxy, s3_store: Store) -> None:
    s3_proxy.set("refuse")
    with pytest.raises(Exception) as raised:
        s3_store.root.join("x").read_text()
    assert not isinstance(raised.value, Unreachable)


def test_server_that_whoever_started_this_process_has_reached(
    s3_proxy: S3Proxy, s3_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "FIRST_CONTACT_SECONDS", 0.1)
    monkeypatch.setattr(retry, "trusted", True)
    s3_proxy.outage("refuse", 1.0)
    assert s3_store.root.join("x").size() is None


def test_missing_bucket_is_not_waited_for(root: Location) -> None:
    with pytest.raises(FileNotFoundError):
        Location.of("s3://no-such-bucket/x").write_atomic("x")


def test_answer_that_breaks_off(root: Location, s3_proxy: S3Proxy, tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    (tmp_path / "up").write_bytes(content)
    root.join("large").upload(tmp_path / "up")
    for read in (
        lambda file: file.download(tmp_path / "down"),
        lambda file: (tmp_path / "down").write_bytes(file.open().read()),
    ):
        (tmp_path / "down").unlink(missing_ok=True)
        s3_proxy.cut_after = 5000
        read(root.join("large"))
        assert s3_proxy.cut_after is None
        assert (tmp_path / "down").read_bytes() == content


@pytest.mark.parametrize("work", [_upload, _stream, _conditional])
def test_write_whose_answer_is_lost_was_done(
    work: Callable[[Location, Path], None], root: Location, s3_proxy: S3Proxy, tmp_path: Path
) -> None:
    """Its repetition is refused, since the object is there; that is no reason to take it for another's."""
    s3_proxy.trip = (b"PUT /", "deaf", 1.0)
    work(root, tmp_path / "file")
    assert s3_proxy.tripped.is_set()


@pytest.mark.parametrize("work", [_upload, _stream, _conditional])
def test_write_whose_answer_is_lost_with_a_kept_connection_was_done(
    work: Callable[[Location, Path], None], root: Location, s3_proxy: S3Proxy, tmp_path: Path
) -> None:
    """The HTTP client would send it again by itself, and pass on the refusal as that of the only request."""
    root.join("there.txt").read_text()
    s3_proxy.lose = b"PUT /"
    work(root, tmp_path / "file")
    assert s3_proxy.cut_after is s3_proxy.lose is None


def test_object_of_another_is_refused_also_after_an_outage(root: Location, s3_proxy: S3Proxy, tmp_path: Path) -> None:
    s3_proxy.outage("busy", 1.0)
    assert root.join("there.txt").create_exclusive("mine") is None
    (tmp_path / "up").write_text("mine")
    assert not root.join("there.txt").upload(tmp_path / "up", create=True)
    assert root.join("there.txt").read_text() == "there"


def test_large_stream_goes_on_after_an_outage(root: Location, s3_proxy: S3Proxy) -> None:
    piece = os.urandom(26 << 20)
    s3_proxy.trip = (b"partNumber=2", "refuse", 1.0)
    with root.join("large").open("xb") as stream:
        for _ in range(4):
            stream.write(piece)
    assert s3_proxy.tripped.is_set()
    with root.join("large").open() as stream:
        assert all(stream.read(26 << 20) == piece for _ in range(4))


def _refusal(status: int, code: str) -> Exception:
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return botocore.exceptions.ClientError(response, "PutObject")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (_refusal(503, "SlowDown"), True),
        (_refusal(500, "InternalError"), True),
        (_refusal(502, "502"), True),
        (_refusal(504, "504"), True),
        (_refusal(429, "TooManyRequests"), True),
        (_refusal(400, "RequestTimeout"), True),
        (_refusal(403, "AccessDenied"), False),
        (_refusal(403, "SignatureDoesNotMatch"), False),
        (_refusal(403, "RequestTimeTooSkewed"), False),
        (_refusal(404, "NoSuchBucket"), False),
        (_refusal(412, "PreconditionFailed"), False),
        (_refusal(409, "ConditionalRequestConflict"), False),
        (_refusal(501, "NotImplemented"), False),
        (botocore.exceptions.NoCredentialsError(), False),
        (botocore.exceptions.EndpointConnectionError(endpoint_url="x"), True),
        (botocore.exceptions.ReadTimeoutError(endpoint_url="x"), True),
        (botocore.exceptions.ConnectionClosedError(endpoint_url="x"), True),
        (botocore.exceptions.SSLError(endpoint_url="x", error=ssl.SSLCertVerificationError()), False),
        (aiohttp.ClientPayloadError(), True),
        (ConnectionResetError(), True),
        (OSError(28, "No space left on device"), False),
        (PermissionError(), False),
        (Unreachable(), False),
    ],
)  # fmt: skip
def test_what_is_worth_waiting_for(error: Exception, expected: bool) -> None:
    assert transient(error) is expected


def test_unknown_host_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the launcher has reached the store: the pods' settings may name another address."""

    def unknown(*arguments: Any, **given: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(retry, "trusted", True)
    monkeypatch.setattr(s3, "FIRST_CONTACT_SECONDS", 0.5)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)  # what becomes of a wrong name depends on the network
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://no-such-host.invalid:9000")
    PatientS3.clear_instance_cache()
    try:
        with pytest.raises(botocore.exceptions.EndpointConnectionError, match="no-such-host"):
            Location.of("s3://bucket/x").read_text()
    finally:
        PatientS3.clear_instance_cache()
