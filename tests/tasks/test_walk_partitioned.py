"""Walks with the graph in parts: the very files of the process, also when an executor of Spark is lost."""

import contextlib
import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.engines.spark.session import SETTINGS_VARIABLE
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.walk import STAGE, estimates
from tests.members import IN_TURN
from tests.spark import needs_spark
from tests.tasks.test_walk_stage import make, write_graph

GIB = 1 << 30


def in_parts(
    graph: Dataset, output: Path, params: dict[str, object], progress: Progress | None = None, cpu: int = 2,
    engine: str = IN_TURN,
) -> Dataset:  # fmt: skip
    """The walks in the partitioned mode."""
    return execute(
        STAGE, {**params, "spark_mode": "partitioned"}, {"graph": graph.uri}, str(output),
        Resources(cpu=cpu, memory=GIB), progress or Progress("walk"), engine=engine,
    ).dataset  # fmt: skip


def assert_same(made: Dataset, expected: Dataset) -> None:
    assert made.digest == expected.digest
    assert made.stats == expected.stats
    assert [(f.path, f.sha256) for f in made.manifest.files] == [(f.path, f.sha256) for f in expected.manifest.files]
    assert not [name for name in made.location.walk_files() if name.startswith("_")]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Several shards, batches and jobs for walks on a small graph."""
    from superworkflow.tasks.walk.partitioned import driver

    monkeypatch.setattr(estimates, "SHARD_BYTES", 4 * 6 * 2048)
    monkeypatch.setattr(driver, "MOST_WALKERS", 1400)
    monkeypatch.setattr(driver, "SUPERSTEPS", 5)
    return driver


@pytest.mark.usefixtures("in_turn")
def test_the_files_of_one_process(tmp_path: Path, small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = write_graph(tmp_path / "graph", 3000, 20_000, weighted=True)
    params = {"num_walks": 2, "walk_length": 6, "p": 0.5, "q": 2}
    monkeypatch.setattr(small, "TASKS_PER_CORE", 1.5)
    made = in_parts(graph, tmp_path / "spark", params)
    assert len(made.files()) == 3
    assert_same(made, make(graph, tmp_path / "walks", params))


@pytest.mark.slow
@pytest.mark.usefixtures("in_turn")
def test_sinks_and_start_vertices(tmp_path: Path, small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = write_graph(tmp_path / "graph", 400, 900, directed=True)
    params = {"num_walks": 50, "walk_length": 6, "p": 0.5, "q": 0.5, "start_vertices": ["v7", "v399", "v0"]}
    monkeypatch.setattr(small, "TASKS_PER_CORE", 4)
    made = in_parts(graph, tmp_path / "spark", params, cpu=1)
    assert made.stats["walks_ended_by_sink"]
    assert_same(made, make(graph, tmp_path / "walks", params))


class Killer(Progress):
    """Ends a process of a kind when the first job of a batch is done and the second is about to begin."""

    def __init__(self, kind: str):
        super().__init__("walk")
        self._kind, self.killed = kind, 0

    def log(self, message: str) -> None:
        super().log(message)
        if "underway after" in message and not self.killed:
            found = []
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):  # it has just ended
                    found += [process] if self._kind in " ".join(process.cmdline()) else []
            found[-1].kill()  # of Python's processes the first has forked the others
            self.killed = found[-1].pid


@pytest.mark.slow
@needs_spark
def test_a_lost_executor_loses_no_walks(tmp_path: Path, small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = {"spark.master": "local-cluster[2,1,512]", "spark.executor.memory": "512m"}
    monkeypatch.setenv(SETTINGS_VARIABLE, json.dumps(spark))
    graph = write_graph(tmp_path / "graph", 1000, 8000)
    params = {"num_walks": 2, "walk_length": 6, "p": 2, "q": 0.5}
    monkeypatch.setattr(small, "TASKS_PER_CORE", 1)
    progress = Killer("CoarseGrainedExecutorBackend")
    made = in_parts(graph, tmp_path / "spark", params, progress, engine="spark")
    assert progress.killed
    assert_same(made, make(graph, tmp_path / "walks", params))
