"""The prepare stage on members: the same files as in process; tasks run in turn here."""

import io
from pathlib import Path

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import prepare
from superworkflow.tasks.prepare import on_members
from tests.members import IN_TURN
from tests.tasks.embedding_inputs import community_walks, write_graph, write_walks

pytestmark = pytest.mark.usefixtures("in_turn")


def make(folder: Path, name: str, engine: str, cpu: int = 2, **params: object) -> Dataset:
    inputs = {"graph": str(folder / "graph"), "walks": str(folder / "walks")}
    resources, progress = Resources(cpu=cpu, memory=1 << 30), Progress("prepare", stream=io.StringIO())
    return execute(prepare.STAGE, params, inputs, str(folder / name), resources, progress, engine).dataset


def test_the_same_files_as_in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_members, "RANGE_VERTICES", 7)  # the driver says how vertices are cut
    walks = community_walks(4, 10, 600, 11, 0.2)
    walks[::3, 5:] = -1  # walks that met a sink
    walks[walks == 4] = 6  # a vertex that no walk meets
    write_graph(tmp_path / "graph", [str(v) for v in range(40)])
    write_walks(tmp_path / "walks", walks, 40, shards=5)
    params = {"sample": 0.01, "min_count": 3}
    made = [
        make(tmp_path, "one", "in-process", 1, **params),
        make(tmp_path, "two", "in-process", 2, **params),
        make(tmp_path, "tasks", IN_TURN, **params),
    ]
    assert made[0].manifest.files == made[1].manifest.files == made[2].manifest.files
    assert dict(made[0].stats) == dict(made[2].stats)


def test_errors_are_those_of_the_stage_in_process(tmp_path: Path) -> None:
    write_walks(tmp_path / "walks", community_walks(2, 4, 50, 9, 0), 8)
    write_graph(tmp_path / "graph", [str(v) for v in range(7)])
    messages = []
    for engine in ("in-process", IN_TURN):
        with pytest.raises(UserError, match="not in the graph of 7 vertices") as raised:
            make(tmp_path, "none", engine)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
