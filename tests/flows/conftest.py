"""A real Prefect server process for all flow tests, a small labelled graph, and the command line as users run it."""

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

import numpy as np
import pytest

from tests.flows.command_line import CommandLine


@pytest.fixture(scope="session")
def prefect_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """API URL of a Prefect server process of its own."""
    with prefect_server("127.0.0.1", tmp_path_factory.mktemp("prefect")) as url:
        yield url


@contextlib.contextmanager
def prefect_server(host: str, home: Path) -> Iterator[str]:
    """API URL of a Prefect server process that listens on a free port of `host`."""
    with socket.socket() as free:
        free.bind((host, 0))
        port = free.getsockname()[1]
    environment = os.environ | {"PREFECT_HOME": str(home), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
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
    known = np.union1d(source, target)
    labels.write_text("node,label\n" + "".join(f"v{u},team {community[u]}\n" for u in known))
    return edges, labels


@pytest.fixture
def command_line(tmp_path: Path, graph_files: tuple[Path, Path], prefect_api: str) -> CommandLine:
    """The command line on an empty store."""
    edges, labels = graph_files
    environment = {"PREFECT_API_URL": prefect_api, "MLFLOW_TRACKING_URI": ""}
    return CommandLine(tmp_path / "store", edges, labels, environment)
