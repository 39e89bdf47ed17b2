"""Fixtures that all rooms share: an S3 server, stores of both kinds, a Prefect server, a small graph, and real ones."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from superworkflow.infra.engines import engine
from superworkflow.infra.process.threads import sleep_soon
from superworkflow.infra.storage.checksum_cache import FOLDER_VARIABLE
from superworkflow.infra.storage.s3 import PatientS3
from superworkflow.infra.storage.store import Store
from tests.java import QUICK_JAVA
from tests.kernels.checked import set_up_checked_kernels
from tests.prefect_server import prefect_server
from tests.s3_proxy import S3Proxy
from tests.s3_servers import make_bucket, s3_access
from tests.spark import MISSING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

set_up_checked_kernels()
sleep_soon()  # as the program does; here before anything imports torch
pytest.register_assert_rewrite("tests.launcher_cases")

BUCKET = "superworkflow-tests"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        given = getattr(item, "callspec", None)
        if "s3_server" in getattr(item, "fixturenames", []) or (given and given.params.get("store_uri") == "s3"):
            item.add_marker(pytest.mark.s3)


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sums of sources are kept there, also by the processes that tests start."""
    os.environ[FOLDER_VARIABLE] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def _java() -> None:
    """For the drivers of sessions here."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real graphs too large to ship with the project."""
    folder = os.environ.get("SUPERWORKFLOW_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("SUPERWORKFLOW_TEST_DATA names no folder of graphs")
    return Path(folder)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3 server that is reached over HTTP; endpoint and credentials are in the environment."""
    with s3_access(tmp_path_factory.mktemp("s3")) as given, pytest.MonkeyPatch.context() as environment:
        for name, value in given.items():
            environment.setenv(name, value)
        make_bucket(BUCKET)
        yield given["AWS_ENDPOINT_URL"]


@pytest.fixture(scope="session")
def prefect_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """API URL of a Prefect server process of its own: one for all rooms, since each costs a CPU second a minute."""
    with prefect_server("127.0.0.1", tmp_path_factory.mktemp("prefect")) as url:
        yield url


@pytest.fixture(scope="session")
def graph_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Four planted communities of 30 vertices: an edge list and a label for each vertex."""
    folder = tmp_path_factory.mktemp("graph")
    rng = np.random.default_rng(7)
    community = np.repeat(np.arange(4), 30)
    chance = np.where(community[:, None] == community[None, :], 0.4, 0.02)
    source, target = np.nonzero(np.triu(rng.random(chance.shape) < chance, 1))
    edges, labels = folder / "edges.csv", folder / "labels.csv"
    rows = "".join(f"v{u},v{v}\n" for u, v in zip(source, target, strict=True))
    edges.write_text("source,target\n" + rows)
    nodes = np.union1d(source, target)
    labels.write_text("node,label\n" + "".join(f"v{u},team {community[u]}\n" for u in nodes))
    return edges, labels


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory, s3_server: str) -> Iterator[None]:
    """The Java process of all Spark sessions here: its first stage takes 30 CPU seconds, later ones seven.

    Its Python workers have the environment that it began with, and so reach the S3 server.
    """
    from pyspark import SparkConf, SparkContext

    from superworkflow.infra.contract.resources import Resources
    from superworkflow.infra.engines.spark.session import end_java, session_settings

    settings = session_settings("tests", Resources(cpu=2, memory=1 << 30), tmp_path_factory.mktemp("spark"), {})
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))
    # Java keeps the first folders that it is given: those of a test's stage would be gone, and remade without a lock.
    first = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    SparkContext._jvm.org.apache.spark.util.Utils.getLocalDir(first._jconf)
    yield
    end_java()


@pytest.fixture(scope="session")
def dask_address(tmp_path_factory: pytest.TempPathFactory, s3_server: str) -> Iterator[str]:
    """Address of a Dask scheduler with two workers, which reach the S3 server."""
    from tests.members import dask_scheduler

    with dask_scheduler(tmp_path_factory.mktemp("dask")) as address:
        yield address


@pytest.fixture(scope="module")
def shared_spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One session of Spark for a module; a session that ends ends with all that use it."""
    from tests.members import spark_opened

    with spark_opened(tmp_path_factory.mktemp("session")):
        yield


@pytest.fixture(params=["spark", "dask"])
def cluster_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of each engine with members; stages on it find members that are there already."""
    name = str(request.param)
    if name == "dask":
        monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", request.getfixturevalue("dask_address"))
        return name
    if MISSING:
        pytest.skip(f"Spark needs {' and '.join(MISSING)}")
    request.getfixturevalue("shared_spark")
    monkeypatch.setattr(type(engine(name)), "tasks", "tests.members:shared_spark")
    return name


@pytest.fixture
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of the engine `tests.members.IN_TURN` run in this process, one after the other."""
    monkeypatch.setattr(type(engine("dask")), "tasks", "tests.members:in_turn")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Parent of the platform's temporary folders in this test."""
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
    server = urlsplit(s3_server)
    if server.scheme != "http":
        pytest.skip("the proxy knows plain HTTP only")
    proxy = S3Proxy(str(server.hostname), server.port or 80)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    PatientS3.clear_instance_cache()
    yield proxy
    PatientS3.clear_instance_cache()
    proxy.close()


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved, to look into."""
    from matplotlib.figure import Figure

    seen: list[Figure] = []
    save = Figure.savefig

    def savefig(figure: Figure, *given: Any, **named: Any) -> None:
        seen.append(figure)
        save(figure, *given, **named)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return seen
