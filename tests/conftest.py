"""Fixtures that all rooms share: a real S3 server, stores of both kinds, and real graphs where they are at hand."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from superworkflow.infra.s3 import PatientS3
from superworkflow.infra.store import Store
from superworkflow.infra.sums import FOLDER_VARIABLE
from tests.kernels.checked import set_up_checked_kernels
from tests.s3_proxy import S3Proxy

set_up_checked_kernels()

BUCKET = "superworkflow-tests"
SECRET = "a-secret-that-nobody-writes-down"


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sums of sources are kept there, also by the processes that tests start."""
    os.environ[FOLDER_VARIABLE] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real graphs too large to ship with the project."""
    folder = os.environ.get("SUPERWORKFLOW_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("SUPERWORKFLOW_TEST_DATA names no folder of graphs")
    return Path(folder)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3 server process on the loopback, reached over HTTP; endpoint and credentials are in the environment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (tmp_path_factory.mktemp("s3") / "server.log").open("w")
    command = [sys.executable, "-m", "tests.s3_server", str(port)]
    server = subprocess.Popen(command, stdout=log, stderr=log, cwd=Path(__file__).parent.parent)
    given = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        _wait_for_port(port, server)
        fsspec.filesystem("s3").mkdir(BUCKET)
        yield given["AWS_ENDPOINT_URL"]
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        server.kill()
        server.wait()
        log.close()


def _wait_for_port(port: int, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert server.poll() is None, "the S3 server ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the S3 server did not start")


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory, s3_server: str) -> Iterator[None]:
    """The Java process of all Spark sessions of a module: starting one takes longer than most of what it does.

    Its Python workers have the environment that it began with, and so reach the S3 server.
    """
    from pyspark import SparkConf, SparkContext

    from superworkflow.infra.resources import Resources
    from superworkflow.infra.spark.session import end_java, session_settings

    settings = session_settings("tests", Resources(cpu=2, memory=1 << 30), tmp_path_factory.mktemp("spark"), {})
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))
    # It keeps the folders that it is first told of: those of a test's stage would be gone, and remade without a lock.
    first = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    SparkContext._jvm.org.apache.spark.util.Utils.getLocalDir(first._jconf)
    yield
    end_java()


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders of the platform are made in this test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(params=["local", "s3"])
def store_uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URI of a new store of each kind."""
    if request.param == "local":
        return str(tmp_path / "store")
    request.getfixturevalue("s3_server")
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def store(store_uri: str) -> Store:
    """A new, empty store of each kind."""
    return Store(store_uri)


@pytest.fixture
def s3_store(s3_server: str) -> Store:
    """A new, empty store on the S3 server."""
    return Store(f"s3://{BUCKET}/{uuid.uuid4().hex}")


@pytest.fixture
def s3_proxy(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    """A proxy through which all of the test, and what it starts, reaches the S3 server."""
    proxy = S3Proxy(int(s3_server.rpartition(":")[2]))
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    PatientS3.clear_instance_cache()
    yield proxy
    PatientS3.clear_instance_cache()
    proxy.close()
