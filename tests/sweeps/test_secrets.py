"""Addresses with a password, of a real Prefect server and real PostgreSQL databases: nothing that is left holds it."""

import os
import shlex
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests import warm
from tests.flows.command_line import Answer
from tests.sweeps.commands import SMALL
from tests.sweeps.conftest import Postgres

SECRET = "hidden-4711-word"
SPACE = "walk: {p: [0.5, 2]}\n"


class Commands:
    """The command line in a folder and environment of its own, as somebody who has the passwords uses it."""

    def __init__(self, folder: Path, edges: Path, environment: Mapping[str, str]):
        self.folder, self.environment = folder, dict(environment)
        self.common = ["--edges", str(edges), "--store", str(folder / "store")]
        self.said = ""

    def __call__(self, *arguments: str, expect: int = 0, **more: str) -> Answer:
        done = warm.run(arguments, env=os.environ | self.environment | more, cwd=self.folder, timeout=500)
        assert done.returncode == expect, f"exit {done.returncode}\n{done.stderr[-4000:]}"
        self.said += done.stdout + done.stderr
        return Answer(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def commands(tmp_path: Path, graph_files: tuple[Path, Path], prefect_api: str) -> Iterator[Commands]:
    """With a password in the address of the Prefect server; whatever was said and written is searched for it."""
    api = prefect_api.replace("http://", f"http://me:{SECRET}@")
    found = Commands(tmp_path, graph_files[0], {"PREFECT_API_URL": api, "MLFLOW_TRACKING_URI": ""})
    yield found
    assert SECRET not in found.said
    holding = [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert holding == []


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_servers_that_are_down(commands: Commands) -> None:
    down = f"http://me:{SECRET}@127.0.0.1:{_free_port()}"
    answer = commands("run", "node2vec", *commands.common, expect=2, MLFLOW_TRACKING_URI=down)
    assert "me:***@127.0.0.1" in answer.err
    answer = commands("run", "node2vec", *commands.common, expect=2, PREFECT_API_URL=f"{down}/api")
    assert "me:***@127.0.0.1" in answer.err
    deploy = ("deploy", "node2vec", "--name", "nightly", *commands.common)
    assert "***" in commands(*deploy, expect=2, PREFECT_API_URL=f"{down}/api").err


@pytest.mark.slow
def test_run_and_sweep(commands: Commands, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> None:
    commands.environment["MLFLOW_TRACKING_URI"] = postgres.guarded("records", SECRET)
    studies = postgres.guarded("studies", SECRET)
    settings = ("--set", *SMALL, "node2vec.link_prediction=false")
    run = commands("run", "node2vec", *commands.common, *settings)
    assert '--backend-store-uri "$MLFLOW_TRACKING_URI"' in run.err

    (commands.folder / "space.yaml").write_text(SPACE)
    search = ("--space", "space.yaml", "--sampler", "grid", "--objective", "cost", "--study", "mine")
    stopped = commands(
        "sweep", "node2vec", *commands.common, *search, "--storage", studies, "--budget-usd", "1e-12", *settings,
        expect=1,
    )  # fmt: skip
    line, hint = stopped.err.split("To resume:\n")[1].strip().splitlines()
    assert "PGPASSWORD" in hint
    resumed = commands(*shlex.split(line)[1:], "--json", PGPASSWORD=SECRET)
    assert resumed.document["counts"] == {"complete": 2}
    again = commands("sweep", "resume", "mine", "--storage", studies, "--budget-usd", "1e-12", "--trials", "2")
    assert "***" in again.err

    assert SECRET not in postgres.dump("records")
    assert SECRET not in postgres.dump("studies")
    assert "node2vec" in postgres.dump("records")
    servers = list(tmp_path_factory.getbasetemp().glob("prefect*/prefect.db*"))
    assert servers
    for file in servers:
        assert SECRET.encode() not in file.read_bytes()
