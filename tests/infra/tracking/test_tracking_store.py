"""Locations of records, and a database or server that cannot be reached."""

import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.base.errors import SuperworkflowError, UserError
from superworkflow.infra.orchestration import DEPLOYED_RETRIES
from superworkflow.infra.storage.location import Location
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.mlflow_tracker import MlflowTracker, open_client
from superworkflow.infra.tracking.run_tracker import error_line
from superworkflow.infra.tracking.uris import default_tracking_uri
from tests.infra.tracking.tracked import staged


def test_trouble_with_the_database_is_told_without_a_traceback(tmp_path: Path) -> None:
    tracker = MlflowTracker(f"sqlite:///{tmp_path}/mlflow.db")
    tracker.begin("name", "toy", {}, {})
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("DROP TABLE metrics")
    with pytest.raises(SuperworkflowError, match="MLflow cannot record this run: ") as raised:
        tracker.stage(staged("index", 1))
    assert "\n" not in str(raised.value)


def test_an_error_of_the_database_begins_with_its_cause() -> None:
    words = "(raised as a result of Query-invoked autoflush; consider …)\n(sqlite3.OperationalError) readonly\n[SQL: …]"
    assert error_line(Exception(words)) == "(sqlite3.OperationalError) readonly"


@pytest.mark.parametrize("uri", ["http://127.0.0.1:9", "sqlite:////proc/none/mlflow.db", "nonsense://x"])
def test_unreachable(uri: str) -> None:
    with pytest.raises(UserError, match=r"MLflow cannot be reached: .*--no-tracking") as raised:
        open_client(uri)
    assert uri in str(raised.value)
    assert "\n" not in str(raised.value)


def test_deployed_runs_wait_for_a_server_that_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A night that begins while the server is restarted is not lost."""
    for name, value in DEPLOYED_RETRIES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "1")

    class Server(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    with HTTPServer(("127.0.0.1", 0), Server, bind_and_activate=False) as server:
        server.server_bind()  # nothing listens there yet
        start = threading.Timer(1.0, lambda: (server.server_activate(), server.serve_forever()))
        start.start()
        assert open_client(f"http://127.0.0.1:{server.server_port}").search_experiments(max_results=1) == []
        server.shutdown()
        start.join()


def test_a_server_that_fails_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times, as one that starts anew does; a stand-in, since MLflow's own server takes long to start."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_JITTER", "0")
    paths: list[str] = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            paths.append(self.path)
            self.send_response(200 if len(paths) > 4 else 500)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *given: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = open_client(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert client.tracking_uri.endswith(str(server.server_port))
    assert paths == ["/api/2.0/mlflow/experiments/search"] * 5


def test_where_records_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert default_tracking_uri(Location.of("/data/store")) == "sqlite:////data/store/mlflow/mlflow.db"
    for elsewhere in ("s3://bucket/store", "/data/a?b", "/data/a%20b"):
        uri = default_tracking_uri(Location.of(elsewhere))
        assert uri == f"sqlite:///{tmp_path}/superworkflow-store/mlflow/mlflow.db"
    assert default_tracking_uri(Location.of("/data/a b#c")) == "sqlite:////data/a b#c/mlflow/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracker:5000")
    assert default_tracking_uri(Location.of("/data/store")) == "http://tracker:5000"


def test_no_database_outside_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL `sqlite:///a?b/mlflow.db` is one of the file `a`."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    open_client(default_tracking_uri(Location.of(tmp_path / "a?b")))
    assert [path.name for path in tmp_path.iterdir()] == ["work"]
    (tmp_path / "work?").mkdir()
    monkeypatch.chdir(tmp_path / "work?")
    with pytest.raises(UserError, match=r"the URL of a database cannot hold a '\?'"):
        default_tracking_uri(Location.of("s3://bucket/store"))


def test_tracker_that_keeps_nothing(tmp_path: Path) -> None:
    tracker = Tracker()
    assert tracker.begin("name", "toy", {}, {}) == ""
    tracker.stage(staged("index", 1))
    tracker.fail("anything")
    assert tracker.url() is None
