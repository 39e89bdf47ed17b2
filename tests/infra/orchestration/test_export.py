"""Other formats of a result, on a local folder and on S3."""

import dataclasses
from pathlib import Path

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.contract.superworkflow import Export
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.orchestration.export import check_formats, export, output_uri
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.store import Store
from superworkflow.infra.tracking.records import RunRecord, StageRecord
from tests.toy_stages import COUNT, TOY

SUPERWORKFLOW = dataclasses.replace(
    TOY,
    exports={
        "text": Export("count", "tests.toy_stages:write_text", "txt"),
        "folder": Export("count", "tests.toy_stages:write_folder", "parts"),
        "broken": Export("count", "tests.toy_stages:write_half", "txt"),
    },
)
DIGEST = "0" * 32


@pytest.fixture
def run(store: Store, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> RunRecord:
    """Record of a run with one stage."""
    (tmp_path / "text.txt").write_text("line\n" * 5)
    output = store.location("count", DIGEST).uri
    execute(COUNT, {}, {"text": str(tmp_path / "text.txt")}, output, Resources(), Progress("count"))
    stage = StageRecord("count", "count", DIGEST, "ran", Resources(), 1, 1, 1, 0, 0, 0, 5, 136, output)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return RunRecord("r", "f", store.uri, "name", "toy", [stage])


def test_written_beside_the_stages(run: RunRecord, store: Store, tmp_path: Path, scratch: Path) -> None:
    uri = export(SUPERWORKFLOW, "text", run)
    assert uri == f"{store.uri}/exports/{DIGEST}.txt"
    assert Location.of(uri).read_text() == "5 lines"
    assert export(SUPERWORKFLOW, "text", run) == uri
    assert store.root.join("exports").walk_files() == [f"{DIGEST}.txt"]
    assert list((tmp_path / "work").iterdir()) == []
    assert list(scratch.iterdir()) == []


def test_folder(run: RunRecord, store: Store, scratch: Path) -> None:
    """The second time what an earlier version has exported is not mixed with it."""
    uri = export(SUPERWORKFLOW, "folder", run)
    expected = [f"{DIGEST}.parts/_SUCCESS", f"{DIGEST}.parts/parts/part-0"]
    assert store.root.join("exports").walk_files() == expected
    assert Location.of(uri).join("parts/part-0").read_text() == "5 lines"
    Location.of(uri).join("parts/part-1").write_atomic("of an earlier version")
    assert export(SUPERWORKFLOW, "folder", run) == uri
    assert store.root.join("exports").walk_files() == expected
    assert list(scratch.iterdir()) == []


def test_outputs_are_files_folders_or_patterns(run: RunRecord) -> None:
    made = Dataset.open(run.stages[0].output)
    assert output_uri(made, "lines.npy") == f"{made.uri}/lines.npy"
    assert output_uri(made, "li*.npy") == f"{made.uri}/li*.npy"
    assert output_uri(made, "lines") is None


def test_failure_leaves_nothing(run: RunRecord, store: Store, scratch: Path) -> None:
    with pytest.raises(RuntimeError, match="half of it"):
        export(SUPERWORKFLOW, "broken", run)
    assert store.root.join("exports").walk_files() == []
    assert list(scratch.iterdir()) == []


def test_unknown_format() -> None:
    check_formats(SUPERWORKFLOW, ["text"])
    with pytest.raises(UserError, match=r"--export: no such export format \(got 'texts'\). Did you mean text\?"):
        check_formats(SUPERWORKFLOW, ["text", "texts"])
