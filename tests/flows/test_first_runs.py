"""Runs that begin at the same time where nothing is yet: no store, no MLflow database, no home of Prefect."""

import json
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.flows.command_line import CommandLine


@pytest.fixture
def without_server(tmp_path: Path, graph_files: tuple[Path, Path]) -> CommandLine:
    """The command line on an empty store, with neither servers nor a home of Prefect."""
    environment = {"PREFECT_API_URL": "", "MLFLOW_TRACKING_URI": "", "PREFECT_HOME": str(tmp_path / "prefect")}
    return CommandLine(tmp_path / "store", *graph_files, environment)


def _ended(processes: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    answers = [process.communicate(timeout=400) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(err for _, err in answers)
    for _, err in answers:
        assert "Traceback" not in err
    return [json.loads(out) for out, _ in answers]


@pytest.mark.slow
def test_first_runs_at_once(without_server: CommandLine, tmp_path: Path) -> None:
    """Each makes the database or finds it made, and none needs Prefect."""
    settings = ("--json", "--set", "node2vec.link_prediction=false")
    first = _ended([without_server.start("run", *settings) for _ in range(2)])
    with sqlite3.connect(without_server.store / "mlflow" / "mlflow.db") as database:
        found = database.execute("SELECT run_uuid, status FROM runs WHERE name NOT IN (SELECT value FROM tags "
                                 "WHERE key = 'superworkflow.stage')").fetchall()  # fmt: skip
    assert sorted(found) == sorted((run["run_id"], "FINISHED") for run in first)
    (cached,) = _ended([without_server.start("run", *settings)])
    assert {stage["state"] for stage in cached["stages"]} == {"cached"}
    assert (cached["flow_run_id"], cached["metrics"]) == ("", first[0]["metrics"])
    with sqlite3.connect(without_server.store / "mlflow" / "mlflow.db") as database:
        kept = database.execute("SELECT status FROM runs WHERE run_uuid = ?", (cached["run_id"],)).fetchall()
    assert kept == [("FINISHED",)]
    assert not (tmp_path / "prefect" / "prefect.db").exists()
