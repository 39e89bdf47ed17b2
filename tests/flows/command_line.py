"""The command line as users run it."""

import contextlib
import io
import json
import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil

from superworkflow.__main__ import main
from tests import warm

SMALL = ["walk.num_walks=4", "walk.walk_length=20", "embed.dimensions=16", "embed.window=4"]
"""Settings with which each stage takes a second or two."""

STAGES = [
    "index",
    "label",
    "walk",
    "prepare",
    "embed",
    "holdout",
    "holdout-walk",
    "holdout-prepare",
    "holdout-embed",
    "evaluate",
    "publish",
]
"""Nodes of the diagram with labels and link prediction, in order."""


@dataclass
class Answer:
    """Result of a command."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document, which is all of standard output."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    def states(self) -> dict[str, str]:
        return {stage["name"]: stage["state"] for stage in self.document["stages"]}


@dataclass
class CommandLine:
    """Runs `superworkflow` with one store, one graph and one Prefect server."""

    store: Path
    edges: Path
    labels: Path
    environment: dict[str, str] = field(default_factory=dict)
    settings: Sequence[str] = tuple(SMALL)

    def start(self, command: str, *more: str, labels: bool = True, alone: bool = False) -> subprocess.Popen[str]:
        """Start a command; `alone`, in a process group of its own, as a shell does it in a terminal."""
        return warm.Popen(
            self._arguments(command, *more, labels=labels), env=os.environ | self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=alone,
        )  # fmt: skip

    def __call__(self, command: str, *more: str, labels: bool = True, expect: int | None = 0) -> Answer:
        process = self.start(command, *more, labels=labels)
        out, err = process.communicate(timeout=300)
        assert expect is None or process.returncode == expect, f"exit {process.returncode}\n{err[-4000:]}"
        return Answer(process.returncode, out, err)

    def here(self, command: str, *more: str) -> Answer:
        """A command that only looks, within this process: a new one would take its time to import what is there."""
        out, err = io.StringIO(), io.StringIO()
        with patch.dict(os.environ, self.environment), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(self._arguments(command, *more))
        assert status == 0, err.getvalue()
        return Answer(status, out.getvalue(), err.getvalue())

    def _arguments(self, command: str, *more: str, labels: bool = True) -> list[str]:
        arguments = [command]
        if command in ("run", "plan", "explain"):
            arguments += ["node2vec", "--edges", str(self.edges)]
            arguments += ["--labels", str(self.labels)] if labels else []
            arguments += ["--set", *self.settings]
        return [*arguments, "--store", str(self.store), *more]


def stages_at(store: Path, dataset: str = "", among: Iterable[psutil.Process] | None = None) -> list[psutil.Process]:
    """Processes of stages that write to this store, or below one folder of it."""
    found, folder = [], f"{store / dataset}/"
    for process in psutil.process_iter() if among is None else among:
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "stage" in words and any(f"{word}/".startswith(folder) for word in words):
            found.append(process)
    return found


def await_stage(command: subprocess.Popen[str], store: Path, dataset: str) -> list[psutil.Process]:
    """All that a command has started, the stage last that writes to this folder of the store, once there is one."""
    folder = store / dataset

    def datasets() -> set[Path]:
        return set(folder.glob("*"))

    before = datasets()
    for turn in range(12_000):
        assert command.poll() is None, command.communicate()
        # To look through all processes of a machine takes as long as the pause: not before the folder shows the stage.
        if turn % 50 == 0 or datasets() != before:
            started = psutil.Process(command.pid).children(recursive=True)
            if found := stages_at(store, dataset, started):
                return [*started, *found]
        time.sleep(0.01)
    raise AssertionError(f"no stage began to write to {dataset}")


def run_document(given: list[str], api: str) -> dict[str, Any]:
    """JSON document that a successful run prints."""
    done = warm.run(["run", *given, "--json"], timeout=600, env=os.environ | {"PREFECT_API_URL": api})
    assert done.returncode == 0, done.stderr[-4000:]
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document
