"""A PostgreSQL server of the machine's own binaries, and sweeps on the command line."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.sweeps.commands import SweepCommands


@dataclass
class Postgres:
    """A server that can be stopped and started again.

    Args:
        binaries: folder of `initdb` and `pg_ctl`.
        folder: its data, below a folder that its user owns.
        port: on the loopback, and on `address` where one is named.
        address: another of this machine; who comes from there has to give a password.
    """

    binaries: Path
    folder: Path
    port: int
    address: str = ""

    @property
    def url(self) -> str:
        return f"postgresql://sweeper@127.0.0.1:{self.port}/postgres"

    def guarded(self, database: str, password: str) -> str:
        """URL of a new database whose user has to give a password."""
        user = f"user_of_{database}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            if not connection.execute("SELECT FROM pg_roles WHERE rolname = 'guarded'").fetchall():
                connection.execute("CREATE ROLE guarded")
            connection.execute(
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE guarded").format(sql.Identifier(user), password)
            )
            connection.execute(
                sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(database), sql.Identifier(user))
            )
        return f"postgresql+psycopg://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def dump(self, database: str) -> str:
        """All that a database holds."""
        url = f"postgresql://sweeper@127.0.0.1:{self.port}/{database}"
        done = subprocess.run([self.binaries / "pg_dump", url], capture_output=True, text=True, check=True)
        return done.stdout

    def start(self) -> None:
        addresses = ",".join(filter(None, ("127.0.0.1", self.address)))
        options = f"-h {addresses} -p {self.port} -k {self.folder.parent} -c fsync=off"
        self._run("pg_ctl", "start", "-w", "-D", str(self.folder), "-o", options, "-l", f"{self.folder}.log")

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", str(self.folder))

    def make(self) -> None:
        self._run("initdb", "-D", str(self.folder), "-U", "sweeper", "-A", "trust", "--no-sync")
        access = self.folder / "pg_hba.conf"
        more = "host all all samenet scram-sha-256\n" if self.address else ""
        access.write_text(f"host all +guarded 127.0.0.1/32 scram-sha-256\n{access.read_text()}{more}")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.binaries / program), *arguments]
        if os.geteuid() == 0:  # the server refuses to run as root
            command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]
        done = subprocess.run(command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A running server with an empty database."""
    with running_postgres() as server:
        yield server


@contextmanager
def running_postgres(address: str = "", binaries: Path | None = None) -> Iterator[Postgres]:
    """A running server with an empty database; skips where PostgreSQL is not installed.

    Args:
        address: where it also listens.
        binaries: folder of its programs; of the installed ones by default.
    """
    if binaries is None and shutil.which("pg_config") is None:
        pytest.skip("PostgreSQL's server is not installed")
    if binaries is None:
        binaries = Path(subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True).stdout.strip())
    if not (binaries / "initdb").exists():
        pytest.skip("PostgreSQL's server is not installed")
    with socket.socket() as free:
        free.bind((address or "127.0.0.1", 0))
        port = free.getsockname()[1]
    root = Path(tempfile.mkdtemp(prefix="postgres-"))
    if os.geteuid() == 0:
        shutil.chown(root, "postgres")
    server = Postgres(binaries, root / "data", port, address)
    server.make()
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def sweeps(tmp_path_factory: pytest.TempPathFactory, graph_files: tuple[Path, Path], prefect_api: str) -> SweepCommands:
    """The command line on one store that all tests of this folder share."""
    edges, labels = graph_files
    environment = {"PREFECT_API_URL": prefect_api, "MLFLOW_TRACKING_URI": ""}
    return SweepCommands(tmp_path_factory.mktemp("sweeps") / "store", edges, labels, environment)


@pytest.fixture(scope="session")
def alone(sweeps: SweepCommands) -> SweepCommands:
    """The same without the server."""
    return replace(sweeps, environment={**sweeps.environment, "PREFECT_API_URL": ""})
