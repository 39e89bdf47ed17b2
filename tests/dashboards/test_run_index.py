"""The index of runs, in a real database: a refresh sees all that changes, and reads little of what does not."""

import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

from superworkflow.dashboards.web import run_index
from superworkflow.dashboards.web.run_index import RunIndex
from superworkflow.infra.tracking import run_reader
from superworkflow.infra.tracking.mlflow_tracker import open_client
from superworkflow.infra.tracking.run_reader import RunReader
from superworkflow.infra.tracking.tags import SUPERWORKFLOW_TAG
from superworkflow.infra.tracking.uris import EXPERIMENT
from tests.flows.deployments import eventually

RUNS = 8
"""All begin and end in one second."""


class _Runs:
    """Runs in a database, and an index that reads them anew with each call."""

    def __init__(self, uri: str, client: MlflowClient, counted: list[int]):
        self.client, self.counted = client, counted
        self.experiment = client.create_experiment(EXPERIMENT)
        for _ in range(RUNS):
            self.end(self.begin())
        self.index = RunIndex(RunReader(uri))

    def begin(self, start: float | None = None) -> str:
        start = time.time() if start is None else start
        made = self.client.create_run(self.experiment, int(start * 1000), tags={SUPERWORKFLOW_TAG: "toy"})
        return str(made.info.run_id)

    def end(self, run_id: str, when: float | None = None) -> None:
        self.client.set_terminated(run_id, end_time=None if when is None else int(when * 1000))

    def statuses(self) -> dict[str, str]:
        return {run.run_id: run.status for run in self.index()}


@pytest.fixture(params=["by MLflow", "without MLflow"])
def runs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Runs:
    """With pages of three and two runs, whose sizes are counted; all have been read."""
    monkeypatch.setattr(run_index, "FRESH_SECONDS", -1.0)
    for name, size in (("FIRST", 3), ("PAGE", 3), ("LATEST", 2), ("PAUSE", 0.0)):
        monkeypatch.setattr(run_index, name, size)
    counted: list[int] = []
    page = RunReader.page

    def counting(self, *given, **named):
        found = page(self, *given, **named)
        counted.append(len(found[0]))
        return found

    monkeypatch.setattr(RunReader, "page", counting)
    if request.param == "by MLflow":
        monkeypatch.setattr(run_reader, "can_read", lambda database: False)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    made = _Runs(uri, open_client(uri), counted)
    eventually(lambda: len(made.index()) == RUNS and made.index.complete)
    return made


def test_runs_that_have_ended_are_not_read_again(runs: _Runs) -> None:
    runs.counted.clear()
    assert len(runs.index()) == RUNS
    assert sum(runs.counted) <= 2


def test_what_changes_is_seen(runs: _Runs) -> None:
    """Runs that begin, end, or both between two looks; one by a clock that is behind; one that is removed."""
    begun, gone = runs.begin(), runs.begin()
    both = [runs.begin() for _ in range(5)]
    behind = runs.begin(time.time() - 300)
    for run_id in both:
        runs.end(run_id)
    seen = runs.statuses()
    assert {seen[each] for each in (begun, gone, behind)} == {"RUNNING"}
    assert {seen[each] for each in both} == {"FINISHED"}
    runs.end(begun)
    runs.end(behind, time.time() - 200)
    runs.client.delete_run(gone)
    seen = runs.statuses()
    assert (seen[begun], seen[behind]) == ("FINISHED", "FINISHED")
    assert gone not in seen
