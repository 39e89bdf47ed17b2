"""A Prefect server process, as users start it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

_RESTING = {
    "PREFECT_SERVER_SERVICES_PAUSE_EXPIRATIONS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_CLEANUP_RECONCILER_LOOP_SECONDS": "60",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_LOOP_SECONDS": "60",
}
"""Services that no test waits for, which wake every five seconds: a third of what an idle server costs with them."""


@contextlib.contextmanager
def prefect_server(host: str, home: Path) -> Iterator[str]:
    """API URL of a Prefect server process that listens on a free port of `host`."""
    with socket.socket() as free:
        free.bind((host, 0))
        port = free.getsockname()[1]
    environment = os.environ | _RESTING | {"PREFECT_HOME": str(home), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    log = (home / "server.log").open("w")
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", host, "--port", str(port)]
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    url = f"http://{host}:{port}/api"
    try:
        _wait_for(f"{url}/health", server)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)
        log.close()


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
