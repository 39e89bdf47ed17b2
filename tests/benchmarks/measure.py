"""Measured processes: commands with their wall time, CPU time and peak memory, and workers that stay between rounds."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

ROOT = Path(__file__).parents[2]
_SHOWN = 400
T = TypeVar("T")


class Failed(Exception):
    """A measured process failed; the text ends with what it said last."""


class PeerFailed(Failed):
    """A peer failed: its row says why it is empty, and the other rows are measured."""


@dataclass(frozen=True)
class Measured:
    """One command: seconds from its start to its end, CPU seconds of it and its children, largest resident set."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    output: str

    def document(self) -> dict[str, Any]:
        """The JSON on the last line of its output."""
        return dict(json.loads(self.output.strip().splitlines()[-1]))


def environment(threads: int) -> dict[str, str]:
    """The environment with every kind of thread pool limited to `threads`, for both sides alike.

    And with Python's bytecode kept, as it is unless somebody asks otherwise: of this checkout it would be made anew in
    each process, and of installed peers is there.
    """
    limits = dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS"),
        str(threads),
    )
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **limits, "PYTHONUNBUFFERED": "1"}


def run_command(command: Sequence[str], threads: int, log: Path, failure: type[Failed] = Failed) -> Measured:
    """Run a command to its end; its standard error goes to the file `log`.

    Raises:
        Failed, or what `failure` is: its exit status is not 0.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as errors:
        begun = time.perf_counter()
        process = _start(command, threads, errors, subprocess.DEVNULL, failure)
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begun
        process.stdout.close()
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise failure(_last_words(command, process.returncode, log))
    return Measured(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, output)


class Worker:
    """A process that loads once and answers requests (see `peers.serving`), so that rounds can alternate.

    Args:
        command: what to start.
        threads: limit of its thread pools.
        log: file for its standard error.
        failure: what is raised when it ends.

    Attributes:
        facts: reported by the process when it was ready.
    """

    def __init__(self, command: Sequence[str], threads: int, log: Path, failure: type[Failed] = Failed):
        self.command, self.log, self._failure = command, log, failure
        log.parent.mkdir(parents=True, exist_ok=True)
        self._errors = log.open("w")
        self._process = _start(command, threads, self._errors, subprocess.PIPE, failure)
        self.facts: dict[str, Any] = {}

    def __enter__(self) -> Worker:
        try:
            self.facts = self._read()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for the answer.

        Raises:
            Failed: the process ended.
        """
        try:
            self._stdin.write(json.dumps(request) + "\n")
            self._stdin.flush()
        except BrokenPipeError:
            pass  # the read reports it
        return self._read()

    @property
    def _stdin(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure(_last_words(self.command, self._process.wait(), self.log))
        return dict(json.loads(line))


def alternate(sides: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Results of every side in turn, A B A B …, so that a change of the machine's load meets all of them."""
    results: dict[str, list[T]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            results[name].append(side())
    return results


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def _start(
    command: Sequence[str], threads: int, errors: IO[str], stdin: int, failure: type[Failed]
) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.PIPE, stderr=errors, env=environment(threads), cwd=ROOT, text=True
        )
    except OSError as error:
        raise failure(f"{command[0]} does not start: {error.strerror}") from None


def _last_words(command: Sequence[str], status: int, log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    said = lines[-1][:_SHOWN] if lines else "it said nothing"
    illegal = " (its build has instructions that this processor lacks)" if status == -signal.SIGILL else ""
    return f"{' '.join(Path(part).name for part in command[:4])} ended with status {status}{illegal}: {said}"
