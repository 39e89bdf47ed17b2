"""A run that was killed resumes from its last snapshot, and its bytes are those of an undisturbed one."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import Resources, Workers
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.colour import STAGE as COLOUR
from superworkflow.tasks.components import STAGE as COMPONENTS
from superworkflow.tasks.index import STAGE as INDEX
from superworkflow.tasks.lib.checkpoint_stores import STATE, Folder
from superworkflow.tasks.lib.vertex import snapshots as snapshots_module
from superworkflow.tasks.lib.vertex.program import DISTANCES
from superworkflow.tasks.lib.vertex.run import ChromaticEngine
from superworkflow.tasks.lib.vertex.snapshots import Snapshots
from tests.tasks.index_helpers import run_stage
from tests.tasks.lib.vertex.graphs import coloured, graph_of
from tests.tasks.lib.vertex.on_workers import described

HERE = "tests.tasks.lib.vertex.worker_programs"


class Killed(Exception):
    """The process has ended."""


class Torn(Folder):
    """A folder in which the process is killed within a snapshot, of which half is written."""

    def __init__(self, path: Path, after: int):
        super().__init__(path)
        self.path, self.left = path, after

    def write(self, name: str, arrays: Any) -> None:
        super().write(name, arrays)
        self.left -= 1
        if not self.left:
            file = self.path / f"{name}.safetensors"
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
            raise Killed


def end() -> None:
    raise Killed


@pytest.mark.parametrize("name", ["EDGE", "NOTES", "PAGERANK"])
def test_equals_an_undisturbed_run(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots_module, "MOST_SHARE", 0)
    program = imported(f"{HERE}:{name}")
    rng = np.random.default_rng(4)
    graph = coloured(graph_of(rng.integers(0, 60, (150, 2)).tolist(), 60), DISTANCES[program.consistency])
    params = program.params(scheduler="priority" if name == "EDGE" else "sweep", max_steps=12)
    expected = described(ChromaticEngine(program, params, graph).run())
    logged: list[str] = []

    def run(kept: Folder, stop_at: int = 10**9) -> dict[str, Any]:
        looks = iter(range(1, 100))
        snapshots = Snapshots(kept, 1e-9, lambda: next(looks) >= stop_at, end, logged.append)
        return described(ChromaticEngine(program, params, graph, snapshots=snapshots).run())

    with pytest.raises(Killed):
        run(Folder(tmp_path), stop_at=3)
    for writes in (1, 2):  # in the slot of the state before the last one
        with pytest.raises(Killed):
            run(Torn(tmp_path, writes))
    assert json.dumps(run(Folder(tmp_path))) == json.dumps(expected)  # 1 is not 1.0
    assert logged[1:] == ["resuming after step 3", "resuming after step 3", "resuming after step 4"]
    other = coloured(graph_of([(0, 1)], 9), 2)
    snapshots = Snapshots(Folder(tmp_path), 0, lambda: False, end, logged.append)
    ChromaticEngine(program, params, other, snapshots=snapshots).run()
    assert "begins anew" in logged[-1]
    assert "another program or graph" in logged[-1]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A ring whose numbers are shuffled, in which the smallest one takes many steps around."""
    folder = tmp_path_factory.mktemp("ring")
    order = np.random.default_rng(1).permutation(2500)
    (folder / "edges.txt").write_text("".join(f"{u} {v}\n" for u, v in zip(order, np.roll(order, 1), strict=True)))
    graph = run_stage(INDEX, {}, {"edges": str(folder / "edges.txt")}, folder / "index")
    colours = run_stage(COLOUR, {}, {"graph": graph.uri}, folder / "colour")
    return {"graph": graph.uri, "colours": colours.uri}


@pytest.fixture(scope="module")
def undisturbed(inputs: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return sums(run_stage(COMPONENTS, {"execution": "synchronous"}, inputs, tmp_path_factory.mktemp("well") / "made"))


def sums(dataset: Dataset) -> dict[str, str]:
    return {entry.path: entry.sha256 for entry in dataset.manifest.files}


@pytest.mark.slow
def test_a_stage_that_was_killed_resumes(inputs: dict[str, str], undisturbed: dict[str, str], tmp_path: Path) -> None:
    params = {"execution": "synchronous", "snapshot_every": 1e-3}
    code = (
        "import json, sys; from tests.tasks.lib.vertex.test_snapshots import *\n"
        "run_stage(COMPONENTS, json.loads(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(params), json.dumps(inputs), str(tmp_path / "made")]
    ) as stage:
        until = time.monotonic() + 120
        while not (found := list(tmp_path.rglob(STATE))) or json.loads(found[0].read_text())["step"] < 20:
            assert stage.poll() is None
            assert time.monotonic() < until
        os.kill(stage.pid, signal.SIGKILL)
    log = io.StringIO()
    assert sums(run_stage(COMPONENTS, params, inputs, tmp_path / "made", log=log)) == undisturbed
    assert "resuming after step" in log.getvalue()


class _Killing(Progress):
    """Kills a member in a step, once."""

    def __init__(self, step: int, stream: Any):
        super().__init__("components", stream=stream)
        self._step = step

    def update(self, done: float, total: float, unit: str, **facts: Any) -> None:
        from tests.infra.engines.test_workers import members_of

        if self._step and done >= self._step:
            self._step = 0
            ranks = [each for each in members_of(os.getpid()) if each.ppid() != os.getpid()]
            os.kill(ranks[-1].pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_group_resumes_after_a_member_was_killed(
    inputs: dict[str, str], undisturbed: dict[str, str], tmp_path: Path
) -> None:  # fmt: skip
    params, log = {"execution": "synchronous", "snapshot_every": 1e-3}, io.StringIO()
    resources = Resources(cpu=1, memory=4 << 30, workers={"worker": Workers(count=2, cpu=1, memory=1 << 30)})
    made = execute(COMPONENTS, params, inputs, str(tmp_path / "made"), resources, _Killing(200, log), engine="workers")
    assert sums(made.dataset) == undisturbed
    assert "resuming after step" in log.getvalue()
    assert "was lost" in log.getvalue() or "killed" in log.getvalue()
    assert made.dataset.stats["workers.count"] == 2
