"""Pictures and panels of cached stages: those that an earlier run has drawn of the same datasets."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from superworkflow.dashboards.report import attach_pictures
from superworkflow.infra.contract.outcomes import Picture
from superworkflow.infra.contract.panel import Panel, Part, table
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.infra.tracking.mlflow_tracker import MlflowTracker
from superworkflow.infra.tracking.records import RunRecord
from superworkflow.infra.tracking.run_reader import RunReader
from tests.datasets import commit
from tests.infra.tracking.tracked import staged

DRAWN: list[str] = []
"""What the functions below were called for."""


def draw(dataset: Dataset, path: Path) -> None:
    DRAWN.append("picture")
    path.write_bytes(b"a picture")


def numbers(datasets: Mapping[str, Dataset]) -> Part:
    DRAWN.append("panel")
    return table(["node"], [[name] for name in datasets])


OUTCOMES = (
    Picture("fit", f"{__name__}:draw", "fit"),
    Panel("fit", f"{__name__}:numbers", "numbers", title="Numbers", others=("clean",)),
)


@pytest.fixture
def output(tmp_path: Path) -> str:
    """An empty dataset."""
    DRAWN.clear()
    return commit(DatasetWriter(tmp_path / "dataset"), "fit").uri


def _attached(uri: str, output: str, fit: str, clean: str = "c" * 64, *, cached: bool = True) -> tuple[str, list[str]]:
    """Id of a run of two stages with datasets of these digests, and what it drew."""
    DRAWN.clear()
    tracker = MlflowTracker(uri)
    run = RunRecord(tracker.begin("run", "toy", {}, {}), "", "", "run", "toy")
    for name, digest in (("clean", clean), ("fit", fit)):
        run.stages.append(replace(staged(name, 1.0, cached=cached), digest=digest, output=output))
    attach_pictures(run, tracker, OUTCOMES)
    tracker.finish(run)
    return run.run_id, list(DRAWN)


def test_once_for_the_same_datasets(tmp_path: Path, output: str) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert _attached(uri, output, "f" * 64, cached=False)[1] == ["picture", "panel"]
    first = RunReader(uri)
    same, drawn = _attached(uri, output, "f" * 64)
    assert drawn == []
    files = [first.file(same, path) for path in ("pictures/fit-fit.png", "panels/numbers.json", "report.html")]
    assert files[0] == b"a picture"
    assert b'"rows": [["fit"], ["clean"]]' in (files[1] or b"")
    assert b"Numbers" in (files[2] or b"")
    assert _attached(uri, output, "f" * 64, "e" * 64)[1] == ["panel"], "it shows another dataset as well"
    assert _attached(uri, output, "f" * 64, cached=False)[1] == ["picture", "panel"], "the stage has run"
