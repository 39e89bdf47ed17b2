"""Databases that runs cannot be recorded in: refused at once, with the command that mends them."""

import contextlib
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.checksum_cache import FOLDER_VARIABLE
from superworkflow.infra.tracking import tables
from superworkflow.infra.tracking.mlflow_tracker import MlflowTracker, open_client
from superworkflow.infra.tracking.uris import EXPERIMENT
from superworkflow.sweeps.storage import StudyStorage


def _recorded(store: Path) -> str:
    """The database of a store in which one run is recorded."""
    (store / "mlflow").mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{store / 'mlflow' / 'mlflow.db'}"
    MlflowTracker(uri)._experiment()
    return uri


@pytest.mark.parametrize("moved", [True, False], ids=["moved", "copied"])
def test_stores_elsewhere(tmp_path: Path, moved: bool) -> None:
    old, new = tmp_path / "old store", tmp_path / "new's"
    client = open_client(_recorded(old))
    experiment = client.get_experiment_by_name(EXPERIMENT)
    run = client.create_run(experiment.experiment_id).info.run_id
    (shutil.move if moved else shutil.copytree)(str(old), str(new))
    with pytest.raises(UserError, match=r"the store was moved or copied, .*old store") as raised:
        _recorded(new)
    command = (raised.value.remedy or "").partition("python ")[2]
    subprocess.run(f"{sys.executable} {command}", shell=True, check=True)
    client = open_client(_recorded(new))
    artifacts = client.get_experiment_by_name(EXPERIMENT).artifact_location
    assert artifacts.replace("%20", " ").replace("%27", "'").endswith("new's/mlflow/artifacts")
    assert "old" not in client.get_run(run).info.artifact_uri


def test_a_deleted_experiment(tmp_path: Path) -> None:
    uri = _recorded(tmp_path)
    client = open_client(uri)
    number = client.get_experiment_by_name(EXPERIMENT).experiment_id
    client.delete_experiment(number)
    with pytest.raises(UserError, match="was deleted in MLflow") as raised:
        _recorded(tmp_path)
    found = re.search(rf"mlflow experiments restore --experiment-id {number}", raised.value.remedy or "")
    assert found is not None
    client.restore_experiment(number)
    assert _recorded(tmp_path) == uri


def test_one_database_for_mlflow_and_studies(tmp_path: Path) -> None:
    uri = _recorded(tmp_path)
    with pytest.raises(UserError, match="the database is MLflow's"):
        StudyStorage(uri)
    studies = f"sqlite:///{tmp_path / 'studies.db'}"
    StudyStorage(studies)
    with pytest.raises(UserError, match="the database has the studies of sweeps"):
        open_client(studies)


def test_tables_of_an_older_mlflow(tmp_path: Path) -> None:
    _recorded(tmp_path)
    path = shutil.copy(tmp_path / "mlflow" / "mlflow.db", tmp_path / "older.db")  # MLflow keeps those that it has open
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
    with pytest.raises(UserError, match="the database has the tables of an older MLflow") as raised:
        open_client(f"sqlite:///{path}")
    assert raised.value.value == "451aebb31d03"
    assert f"mlflow db upgrade sqlite:///{path}" in (raised.value.remedy or "")


def _schema(path: Path) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2").fetchall()
        return [
            *found,
            *database.execute("SELECT * FROM alembic_version"),
            *database.execute("SELECT * FROM workspaces"),
        ]


def test_tables_are_copied_from_a_database_that_this_mlflow_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy differs in nothing from what migrations make; tables that others can have written are not taken."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    made = _recorded(tmp_path / "made")
    (kept,) = (tmp_path / "cache" / "tables").iterdir()
    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    changed = kept.stat().st_mtime_ns
    copied = _recorded(tmp_path / "copied")
    assert _schema(tmp_path / "copied" / "mlflow" / "mlflow.db") == _schema(tmp_path / "made" / "mlflow" / "mlflow.db")
    for uri, name in ((made, "made"), (copied, "copied")):
        default = open_client(uri).get_experiment_by_name("Default")
        assert (default.experiment_id, default.lifecycle_stage) == ("0", "active")
        assert name in open_client(uri).get_experiment_by_name(EXPERIMENT).artifact_location
    assert kept.stat().st_mtime_ns == changed

    other = tmp_path / "other.db"
    for content, mode, taken in (
        (kept.read_bytes(), 0o666, False), (b"no database", 0o600, False), (kept.read_bytes(), 0o600, True),
    ):  # fmt: skip
        kept.write_bytes(content)
        kept.chmod(mode)
        assert (tables._copy_tables(other), other.exists()) == (taken, taken)
    assert not list(tmp_path.rglob("*.partial"))


def test_a_new_database_needs_no_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made of kept tables it is what MLflow makes."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    missing = f"sqlite:///{tmp_path}/none/mlflow.db"
    assert not tables.copy_database(missing)  # no tables are kept yet
    made = _recorded(tmp_path / "made")
    new = f"sqlite:///{tmp_path}/new/mlflow/mlflow.db"
    code = f"import sys; from superworkflow.infra.tracking.sqlite_tracker import open_tracker; open_tracker({new!r})"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'mlflow' not in sys.modules"], check=True)
    assert not tables.copy_database(new)
    assert not tables.copy_database("http://127.0.0.1:1")
    (tmp_path / "file").touch()
    assert not tables.copy_database(f"sqlite:///{tmp_path}/file/mlflow.db")

    def experiments(uri: str) -> list[tuple[object, ...]]:
        found = sorted(open_client(uri).search_experiments(), key=lambda each: each.experiment_id)
        return [(each.experiment_id, each.name, each.lifecycle_stage, each.tags) for each in found]

    def folders(uri: str, store: str) -> list[str]:
        return sorted(each.artifact_location.replace(store, "") for each in open_client(uri).search_experiments())

    assert experiments(new) == experiments(made)
    assert len(experiments(new)) == 2
    assert folders(new, "/new/") == folders(made, "/made/")
