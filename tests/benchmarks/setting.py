"""Settings of a benchmark: folders, interpreters, sizes and progress output."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.benchmarks.measure import ROOT, Measured, PeerFailed, Worker, run_command

REQUIREMENTS = Path(__file__).with_name("requirements-peers.txt")


@dataclass(frozen=True)
class Setting:
    """Settings that all rows share.

    Args:
        folder: graphs, logs and the peers' environment.
        quick: small graphs and few rounds, to try the benchmark itself.
        threads: of both sides.
        stream: where progress is shown.
    """

    folder: Path = ROOT / ".bench"
    quick: bool = False
    threads: int = 2
    stream: IO[str] = field(default_factory=lambda: sys.stderr)
    begun: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """Show one line of progress."""
        seconds = time.monotonic() - self.begun
        print(f"[{seconds // 60:3.0f}:{seconds % 60:02.0f}] {text}", file=self.stream, flush=True)

    @property
    def data(self) -> Path:
        folder = self.folder / ("data-quick" if self.quick else "data")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def rounds(self) -> int:
        return 2 if self.quick else 3

    def target(self, ratio: float, real: bool = True) -> float | None:
        """The target of a row; a small graph or a stand-in for a real one has none."""
        return ratio if real and not self.quick else None

    @property
    def peers_python(self) -> str:
        return str(self.folder / "venv" / "bin" / "python")

    def peer(self, script: str, *arguments: object, python: str = "") -> Worker:
        """A script of `peers/` as a worker in the peers' environment, or in that of another interpreter."""
        path = Path(__file__).parent / "peers" / f"{script}.py"
        command = [python or self.peers_python, str(path), *map(str, arguments)]
        return Worker(command, self.threads, self.folder / "logs" / f"{script}.log", PeerFailed)

    def peer_command(self, script: str, *arguments: object) -> Measured:
        """A script of `peers/` run to its end."""
        path = Path(__file__).parent / "peers" / f"{script}.py"
        command = [self.peers_python, str(path), *map(str, arguments)]
        return run_command(command, self.threads, self.folder / "logs" / f"{script}.log", PeerFailed)

    def own(self, module: str, *arguments: object) -> Worker:
        """A module of `own/` as a worker in this environment."""
        command = [sys.executable, "-m", f"tests.benchmarks.own.{module}", *map(str, arguments)]
        return Worker(command, self.threads, self.folder / "logs" / f"own-{module}.log")

    def set_up_peers(self) -> None:
        """Make the peers' environment, if it is not there as `requirements-peers.txt` says."""
        self._set_up("venv", REQUIREMENTS)

    def set_up_apart(self, name: str) -> str:
        """The interpreter of an environment of its own, as `requirements-<name>.txt` says."""
        return self._set_up(f"venv-{name}", REQUIREMENTS.with_name(f"requirements-{name}.txt"))

    def _set_up(self, name: str, requirements: Path) -> str:
        """Make an environment, if it is not there, and name its interpreter.

        A package that does not install is passed over: the rows that need it fail.
        """
        environment, mark = self.folder / name, self.folder / name / "installed.txt"
        python = str(environment / "bin" / "python")
        if mark.exists() and mark.read_text() == requirements.read_text():
            return python
        self.say(
            f"installing the peers into {environment.relative_to(ROOT) if ROOT in environment.parents else environment}"
        )
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
        log = self.folder / "logs" / "install.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as output:
            if subprocess.run([*pip, "-r", str(requirements)], stdout=output, stderr=output).returncode:
                lines = [line for line in requirements.read_text().splitlines() if line and not line.startswith("#")]
                missing = [
                    line for line in lines if subprocess.run([*pip, line], stdout=output, stderr=output).returncode
                ]
                for line in missing:
                    self.say(f"{line} does not install, see {log}")
                if missing:
                    return python  # tried again next time
        mark.write_text(requirements.read_text())
        return python


def blogcatalog_file() -> Path | None:
    """The BlogCatalog graph under the folder that SUPERWORKFLOW_TEST_DATA names, if there is one."""
    folder = os.environ.get("SUPERWORKFLOW_TEST_DATA")
    path = Path(folder) / "blogcatalog" / "blogcatalog.mat" if folder else None
    return path if path is not None and path.is_file() else None
