"""Walks with the whole graph in each member: the same files and errors as in process; tasks run in turn here."""

import io
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import Executors, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.manifest import PARTS_FOLDER
from superworkflow.tasks.walk import STAGE, estimates
from superworkflow.tasks.walk.on_members import mode
from superworkflow.tasks.walk.params import WalkParams
from tests.members import IN_TURN
from tests.tasks.test_walk_stage import write_graph

GIB = 1 << 30
SECOND_ORDER = {"p": 0.5, "q": 2.0, "walk_length": 20, "num_walks": 7}


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several shards of small graphs."""
    monkeypatch.setattr(estimates, "SHARD_BYTES", 4 * 20 * 2048 * 2)


def make(graph: Dataset, output: str | Path, params: dict[str, Any], engine: str, cpu: int = 2) -> Dataset:
    resources = Resources(cpu=cpu, memory=GIB)
    progress = Progress("walk", stream=io.StringIO())
    return execute(STAGE, params, {"graph": graph.uri}, str(output), resources, progress, engine).dataset


@pytest.mark.usefixtures("in_turn")
@pytest.mark.parametrize("weighted", [False, True])
def test_the_same_walks_on_one_thread_two_and_in_tasks(tmp_path: Path, weighted: bool) -> None:
    graph = write_graph(tmp_path / "graph", 3000, 9000, directed=True, weighted=weighted)  # has sinks
    made = [
        make(graph, tmp_path / "one", SECOND_ORDER, "in-process", cpu=1),
        make(graph, tmp_path / "two", SECOND_ORDER, "in-process", cpu=2),
        make(graph, tmp_path / "tasks", SECOND_ORDER, IN_TURN, cpu=2),
    ]
    assert len(made[0].files()) == 6
    assert made[0].manifest.files == made[1].manifest.files == made[2].manifest.files
    assert made[0].stats == made[2].stats
    assert made[2].stats["walks_ended_by_sink"] > 0
    assert {each.digest for each in made} == {made[0].digest}
    assert not (tmp_path / "tasks" / PARTS_FOLDER).exists()


@pytest.mark.usefixtures("in_turn")
def test_errors_are_those_of_the_stage_in_process(tmp_path: Path) -> None:
    graph = write_graph(tmp_path / "graph", 100, 900)
    for params in ({"weighted": True}, {"start_vertices": ["v1", "nobody"]}):
        messages = []
        for engine in ("in-process", IN_TURN):
            with pytest.raises(UserError) as raised:
                make(graph, tmp_path / "none", params, engine)
            messages.append(str(raised.value))
        assert messages[0] == messages[1]
    assert Dataset.find(tmp_path / "none") is None


def test_replicated_while_the_graph_fits() -> None:
    stats = {"vertices": 10_000_000, "directed_edges": 600_000_000, "weighted": False}
    params = WalkParams(p=0.5, q=2.0)

    def chosen(memory: int, **more: Any) -> str:
        return mode(
            "spark",
            params.model_copy(update=more),
            stats,
            Resources(executors=Executors(count=9, cpu=4, memory=memory)),
        )

    assert chosen(16 * GIB) == "replicated"
    assert chosen(56 * GIB // 10) == "partitioned"
    assert chosen(56 * GIB // 10, q=1.0) == "replicated"
    assert chosen(16 * GIB, spark_mode="partitioned") == "partitioned"
    assert mode("spark", params, stats, Resources(memory=16 * GIB)) == "replicated"


def test_the_mode_is_in_no_digest() -> None:
    assert WalkParams(spark_mode="partitioned").identity() == WalkParams().identity()
    assert "spark_mode" not in WalkParams().identity()
