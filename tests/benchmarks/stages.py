"""Stage commands as a user runs them, each a process of its own."""

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.measure import Measured, run_command
from tests.benchmarks.setting import Setting

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class StageResult:
    """A stage command that ended well: what it took from outside, and its dataset."""

    measured: Measured
    output: Path

    @property
    def stats(self) -> dict[str, Any]:
        """The stats in the dataset's manifest."""
        return dict(json.loads((self.output / MANIFEST).read_text())["stats"])


INDEX: Mapping[str, Any] = {"weighted": False, "engine": "compiled"}
"""Parameters of index here: kernels also where the file is so small that SQL would do."""


def run_stage(
    setting: Setting, name: str, inputs: Mapping[str, Path], output: Path, params: Mapping[str, Any] | None = None,
    engine: str = "in-process",
) -> StageResult:  # fmt: skip
    """Run `superworkflow stage` on an engine; what is at `output` is made anew.

    Raises:
        Failed: with the stage's last line.
    """
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "superworkflow", "stage", name, "--output", str(output)]
    command += ["--params-json", json.dumps(dict(params or {})), "--threads", str(setting.threads)]
    command += ["--engine", engine]
    for key, path in inputs.items():
        command += ["--input", f"{key}={path}"]
    return StageResult(run_command(command, setting.threads, setting.folder / "logs" / f"stage-{name}.log"), output)


def embed_graph(
    setting: Setting, edges: Path, folder: Path, walk: Mapping[str, Any], embed: Mapping[str, Any]
) -> dict[str, StageResult]:
    """The stages from an edge list to vectors, by name; index computes with kernels, also where SQL would do."""
    graph, walks, vocabulary = folder / "index", folder / "walk", folder / "prepare"
    return {
        "index": run_stage(setting, "index", {"edges": edges}, graph, INDEX),
        "walk": run_stage(setting, "walk", {"graph": graph}, walks, walk),
        "prepare": run_stage(setting, "prepare", {"graph": graph, "walks": walks}, vocabulary),
        "embed": run_stage(
            setting, "embed", {"graph": graph, "walks": walks, "vocabulary": vocabulary}, folder / "embed", embed
        ),
    }


def warm_up(setting: Setting) -> None:
    """Fill the caches of compiled kernels by one small run, so that no row pays for compiling."""
    edges = setting.data / "warm-up.csv"
    edges.write_text("source,target\n" + "".join(f"{i},{(i * 7 + k) % 100}\n" for i in range(100) for k in (1, 2)))
    embed_graph(setting, edges, setting.data / "warm-up", {"num_walks": 1, "q": 0.5}, {"dimensions": 128})
