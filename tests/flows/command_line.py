"""The command line as users run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    """How a command ended."""

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


def hear_interrupts() -> None:
    """What a shell starts in the background ignores SIGINT, and SIGHUP with nohup; so would what the tests start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


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
        arguments = [sys.executable, "-m", "superworkflow", command]
        if command in ("run", "plan", "explain"):
            arguments += ["node2vec", "--edges", str(self.edges)]
            arguments += ["--labels", str(self.labels)] if labels else []
            arguments += ["--set", *self.settings]
        arguments += ["--store", str(self.store), *more]
        return subprocess.Popen(
            arguments, env=os.environ | self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=hear_interrupts, start_new_session=alone,
        )  # fmt: skip

    def __call__(self, command: str, *more: str, labels: bool = True, expect: int | None = 0) -> Answer:
        process = self.start(command, *more, labels=labels)
        out, err = process.communicate(timeout=300)
        assert expect is None or process.returncode == expect, f"exit {process.returncode}\n{err[-4000:]}"
        return Answer(process.returncode, out, err)
