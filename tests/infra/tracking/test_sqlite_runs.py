"""Runs read from MLflow's SQLite database, against the same runs read by MLflow."""

import contextlib
import math
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.process.heartbeat import BEAT, OWNER
from superworkflow.infra.tracking import history, sqlite_runs
from superworkflow.infra.tracking.history import RecordedRun, recorded_runs
from superworkflow.infra.tracking.mlflow_tracker import MlflowTracker, open_client
from superworkflow.infra.tracking.records import Used
from superworkflow.infra.tracking.run_filter import RunFilter
from superworkflow.infra.tracking.sqlite_runs import can_read, has_dead
from superworkflow.infra.tracking.tags import SUPERWORKFLOW_TAG
from tests.infra.tracking.tracked import recorded, staged


def _edges(digest: str) -> tuple[Used, ...]:
    return tuple(Used(name, digest * 64, f"/{name}.csv") for name in ("edges", "labels"))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five runs with stages, one that runs, one without a name, a deleted one, and others of no superworkflow."""
    path = tmp_path_factory.mktemp("records") / "a b#c.db"
    uri = f"sqlite:///{path}"
    for number in range(5):
        stages = [staged("index", 3, cached=number % 2 == 1), staged("walk-1", 4)]
        made = recorded(uri, f"run-{number}", {"walk.p": number, "text": "ä'\"%"}, stages, _edges(str(number // 2)))
    client, experiment = MlflowTracker(uri).handle()
    client.log_metric(made, "quality/walk-1.loss", math.nan)
    client.log_metric(made, "quality/walk-1.top", math.inf)
    client.set_tag(made, "owner", "ann")
    client.create_run(experiment, tags={SUPERWORKFLOW_TAG: "other"})
    client.create_run(experiment, run_name="empty", tags={SUPERWORKFLOW_TAG: ""})
    client.create_run(client.create_experiment("elsewhere"), run_name="not here", tags={SUPERWORKFLOW_TAG: "toy"})
    client.delete_run(client.create_run(experiment, run_name="deleted", tags={SUPERWORKFLOW_TAG: "toy"}).info.run_id)
    MlflowTracker(uri).begin("lives", "toy", {}, {})
    return path


def _by_mlflow(database: Path, limit: int, which: RunFilter) -> list[RecordedRun]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "can_read", lambda database: False)
        return recorded_runs(f"sqlite:///{database}", limit, which)


@pytest.mark.parametrize("page", [2, 200])
@pytest.mark.parametrize(
    "which",
    [
        RunFilter(), RunFilter(superworkflow="toy"), RunFilter(outcome="completed"), RunFilter(outcome="running"),
        RunFilter(tag="owner=ann"), RunFilter(text="RUN-1"), RunFilter(text="nothing"), RunFilter(deployment="none"),
    ],
)  # fmt: skip
def test_the_same_runs_as_mlflow_reads(
    database: Path, which: RunFilter, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_runs, "_PAGE", page)
    assert can_read(database)
    for limit in (-1, 0, 1, 3, 50):
        ours, theirs = recorded_runs(f"sqlite:///{database}", limit, which), _by_mlflow(database, limit, which)
        assert repr(ours) == repr(theirs), "NaN equals itself only as text"
    if not which:
        assert len(ours) == 7
        assert {run.name for run in ours} >= {"run-0", "run-4", "lives"}
        assert "nan" in repr(ours)


def test_the_installed_mlflow_has_a_schema_that_is_read(tmp_path: Path) -> None:
    """If an update of MLflow fails this, look what its migrations change in the tables that are read."""
    open_client(f"sqlite:///{tmp_path}/new.db")
    assert can_read(tmp_path / "new.db")
    assert recorded_runs(f"sqlite:///{tmp_path}/new.db") == []


def test_another_schema_is_left_to_mlflow(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    made = recorded(f"sqlite:///{path}", "first", {}, [])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'another'")
        connection.commit()
    assert not can_read(path)
    path.write_text("no database")
    assert not can_read(path)
    assert made


def test_a_run_of_a_dead_process_is_left_to_mlflow_which_closes_it(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client, experiment = MlflowTracker(uri).handle()
    client.create_run(experiment, 1, {OWNER: "elsewhere/1/2/3", BEAT: "1", SUPERWORKFLOW_TAG: "toy"}, "old")
    assert has_dead(tmp_path / "mlflow.db")
    assert [run.status for run in recorded_runs(uri)] == ["FAILED"]
    assert not has_dead(tmp_path / "mlflow.db")


def test_a_database_that_is_locked_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mlflow.db"
    recorded(f"sqlite:///{path}", "first", {}, [])
    monkeypatch.setattr(sqlite_runs, "PATIENCE_S", 0.1)
    monkeypatch.setattr(history, "can_read", lambda database: True)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UserError, match="database cannot be read: database is locked"):
            recorded_runs(f"sqlite:///{path}")
    assert len(recorded_runs(f"sqlite:///{path}")) == 1


def test_the_command_lists_runs_without_importing_mlflow_or_numpy(database: Path) -> None:
    code = "import sys; from superworkflow.__main__ import main; main(['runs'])"
    code += "; sys.exit(bool({'mlflow', 'numpy'} & set(sys.modules)))"
    environment = os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{database}", "COLUMNS": "200"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "run-4" in done.stdout
