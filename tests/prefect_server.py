"""A Prefect server process, as users start it."""

import contextlib
import fcntl
import importlib.metadata
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

KEPT = Path(
    tempfile.gettempdir(), f"superworkflow-tests-{os.getuid()}", f"prefect-{importlib.metadata.version('prefect')}.db"
)
"""Database of a server that has just started: a new one costs a hundred migrations, most of a server's start."""
_RESTING = {
    "PREFECT_SERVER_SERVICES_PAUSE_EXPIRATIONS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_CLEANUP_RECONCILER_LOOP_SECONDS": "60",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_LOOP_SECONDS": "60",
}
"""Services that no test waits for, which wake every five seconds: a third of what an idle server costs with them."""


@contextlib.contextmanager
def prefect_server(host: str, home: Path) -> Iterator[str]:
    """API URL of a Prefect server process that listens on a free port of `host`."""
    environment = os.environ | _RESTING | {"PREFECT_HOME": str(home), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    log, locks = (home / "server.log").open("w"), contextlib.ExitStack()
    if new := not (home / "prefect.db").exists():
        locks.enter_context(_tables(home))
    with socket.socket() as free:
        free.bind((host, 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", host, "--port", str(port)]
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    url = f"http://{host}:{port}/api"
    try:
        _wait_for(f"{url}/health", server)
        if new and not KEPT.exists():
            _keep_tables(home / "prefect.db")
        locks.close()
        yield url
    finally:
        locks.close()
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)
        log.close()


@contextlib.contextmanager
def _tables(home: Path) -> Iterator[None]:
    """Give a new home the tables that the first server of this user's tests has made; others wait for that one."""
    KEPT.parent.mkdir(mode=0o700, exist_ok=True)
    with KEPT.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not copy_tables(home):
            yield
            return
    yield


def copy_tables(home: Path) -> bool:
    """Put a database with tables into a home of Prefect; False where no server of tests has made one yet."""
    home.mkdir(parents=True, exist_ok=True)
    if KEPT.exists() and not (database := home / "prefect.db").exists():
        shutil.copyfile(KEPT, database)
    return KEPT.exists()


def _keep_tables(database: Path) -> None:
    partial = KEPT.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(database)) as made, contextlib.closing(sqlite3.connect(partial)) as copy:
        made.backup(copy)
    partial.replace(KEPT)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(1200):
        assert server.poll() is None, "the Prefect server ended"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.25)
    raise AssertionError("the Prefect server did not start")
