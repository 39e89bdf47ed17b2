"""`superworkflow sweep` as users run it."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests import warm
from tests.flows.command_line import Answer

SMALL = ["walk.num_walks=4", "walk.walk_length=20", "embed.dimensions=16", "evaluate.shuffles=2"]
SMALL += ["evaluate.projection_sample=0", "evaluate.C=1"]  # by which trials of this graph differ


@dataclass
class SweepCommands:
    """Runs sweeps with one store, one graph and one Prefect server."""

    store: Path
    edges: Path
    labels: Path
    environment: dict[str, str] = field(default_factory=dict)

    def space(self, text: str) -> str:
        """A space file of this content."""
        self.store.mkdir(parents=True, exist_ok=True)
        path = self.store.parent / f"space-{abs(hash(text)):x}.yaml"
        path.write_text(text)
        return str(path)

    def start(
        self, *arguments: str, store: Path | None = None, settings: Sequence[str] = (), alone: bool = False
    ) -> subprocess.Popen[str]:
        """A new sweep, or an action when that is the first argument; `alone`, in a process group of its own."""
        command = ["sweep", *arguments, "--store", str(store or self.store)]
        if arguments[0] == "node2vec":
            command += ["--edges", str(self.edges), "--labels", str(self.labels), "--set", *SMALL, *settings]
        return warm.Popen(
            command, env=os.environ | self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=alone,
        )  # fmt: skip

    def __call__(self, *arguments: str, expect: int | None = 0, store: Path | None = None) -> Answer:
        process = self.start(*arguments, store=store)
        out, err = process.communicate(timeout=300)
        assert expect is None or process.returncode == expect, f"exit {process.returncode}\n{err[-4000:]}"
        return Answer(process.returncode, out, err)
