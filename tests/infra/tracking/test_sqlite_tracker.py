"""Runs recorded in MLflow's SQLite database without MLflow, against the same runs recorded by MLflow."""

import contextlib
import dataclasses
import json
import math
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlflow.utils.mlflow_tags as names
import pytest
from mlflow import MlflowClient

from superworkflow.infra.base.errors import SuperworkflowError, UserError
from superworkflow.infra.config.prices import load_prices
from superworkflow.infra.process.heartbeat import BEAT
from superworkflow.infra.tracking import sqlite_tracker, tags
from superworkflow.infra.tracking.dead_runs import close_dead_runs
from superworkflow.infra.tracking.decision import Decision
from superworkflow.infra.tracking.history import find_run
from superworkflow.infra.tracking.mlflow_tracker import MlflowTracker
from superworkflow.infra.tracking.records import RunRecord, Used
from superworkflow.infra.tracking.run_tracker import RunTracker
from superworkflow.infra.tracking.sqlite_tracker import SqliteTracker
from tests.infra.tracking.test_tracking_ends import DIES
from tests.infra.tracking.tracked import METRICS, staged

_TABLES = (
    "experiments", "experiment_tags", "runs", "tags", "params", "metrics", "latest_metrics", "datasets", "inputs",
    "input_tags",
)  # fmt: skip
_NOW = 1_700_000_000.0
_OWN = ("start_time", "end_time", "timestamp", "creation_time", "last_update_time")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A database that MLflow has made."""
    uri = f"sqlite:///{tmp_path}/a b#c/mlflow.db"
    MlflowTracker(uri)
    return uri


def _opened(uri: str) -> SqliteTracker:
    tracker = SqliteTracker.open(uri)
    assert tracker is not None
    return tracker


def _record(tracker: RunTracker, folder: Path) -> str:
    """All that can be recorded of a run; the same at each time."""
    edges = Used("edges", "a" * 64, "s3://key:secret@bucket/edges.csv", facts={"bytes": 2048})
    run_id = tracker.begin("whole", "toy", {"walk.p": 0.5, "long": "x" * 9000, "none": None}, {"owner": "ä'\"%"})
    tracker.sources([edges, edges, Used("labels", "b" * 64, "/labels.csv")])
    points = tuple((step, 1 / (step + 1)) for step in range(1200))
    attempts = ({"memory_bytes": 1 << 30, "seconds": 5.0, "cost_usd": 0.05, "reason": "cancelled", "uid": ""},)
    stages = [
        staged("index", 3, cached=True),
        dataclasses.replace(staged("walk-1", 4), course={"loss": points, "f@1": ((0, math.nan), (1, -math.inf))},
                            log=("one", "zwei ü"), compile_s=2.0, image="i@sha256:1",
                            stats={"input_warning.1": "a line was left out", "vertices": 7}),
        dataclasses.replace(staged("prepare", 1), inputs=(edges, edges), stats={"kind": "text"}),
        dataclasses.replace(staged("train", 5), state="failed", rows=0, attempts=attempts, error="e" * 9000),
    ]  # fmt: skip
    stages = [dataclasses.replace(each, ended=_NOW) for each in stages]
    tracker.stage(stages[0])
    tracker.stages(stages[1:])
    run = RunRecord(run_id, "flow", "/store", "whole", "toy", declared=METRICS, sources=(edges,))
    run.stages += stages
    picture = folder / "stages.png"
    picture.write_bytes(b"picture")
    tracker.picture(picture)
    tracker.panels([{"name": "degrees", "title": "Degrees ä", "parts": []}])
    tracker.drew({"pictures/stages.png": "c" * 32, "panels/degrees.json": "d" * 32})
    (folder / "report.html").write_text("<p>")
    tracker.report(folder / "report.html")
    tracker.decided(Decision("toy", 1, "promoted", "the first", "micro_f1", quality=0.5, tolerance=math.nan))
    run.close(load_prices(), 12.0)
    tracker.finish(run)
    tracker.finish(run)  # figures a second time, the view unchanged
    return run_id


def _rows(database: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows that concern runs, without ids and times."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row

        def read(query: str) -> list[dict[str, Any]]:
            return [dict(row) for row in connection.execute(query)]

        runs = {row["run_uuid"]: row["name"] for row in read("SELECT * FROM runs")}
        datasets = {row["dataset_uuid"]: row["name"] for row in read("SELECT * FROM datasets")}
        inputs = {
            row["input_uuid"]: f"{runs[row['destination_id']]} {datasets[row['source_id']]}"
            for row in read("SELECT * FROM inputs")
        }
        ids = {**runs, **datasets, **inputs}
        found = {}
        for table in _TABLES:
            rows = read(f"SELECT * FROM {table}")
            for row in rows:
                for name, value in row.items():
                    if name in _OWN and value is not None and value != int(_NOW * 1000):
                        row[name] = "a time"
                    elif isinstance(value, str):
                        for each, shown in {**ids, str(database.parent): "here"}.items():
                            row[name] = row[name].replace(each, shown)
                if row.get("key") in (BEAT, "superworkflow.owner") or "sharedViewState" in str(row.get("key")):
                    row["value"] = "a time"
            found[table] = sorted({tuple(row.values()) for row in rows}, key=repr)
    return found


def test_rows_and_files_are_those_that_mlflow_writes(tmp_path: Path) -> None:
    written, files = [], []
    for kind in ("mlflow", "sqlite"):
        uri = f"sqlite:///{tmp_path}/{kind}/mlflow.db"
        by_mlflow = MlflowTracker(uri)
        tracker: RunTracker = by_mlflow if kind == "mlflow" else _opened(uri)
        run_id = _record(tracker, tmp_path)
        assert (tracker.url() or "").endswith(f"/#/experiments/1/runs/{run_id}?workflowType=machine_learning")
        written.append(_rows(tmp_path / kind / "mlflow.db"))
        root = tmp_path / kind / "artifacts" / run_id / "artifacts"
        files.append({str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()})
    assert files[0] == files[1]
    assert {"logs/walk-1.txt", "panels/degrees.json", "pictures/stages.png", "report.html"} == files[0].keys()
    for table, rows in written[0].items():
        assert written[1][table] == rows, table
    assert len(written[0]["metrics"]) > 2400
    assert len(written[0]["runs"]) == 5


def test_tags_of_mlflow_are_called_so() -> None:
    assert (tags.PARENT_TAG, tags.NAME_TAG, tags.DESCRIPTION_TAG, tags.AUTHOR_TAG, tags.SOURCE_TAG, tags.ROLE_TAG) == (
        names.MLFLOW_PARENT_RUN_ID, names.MLFLOW_RUN_NAME, names.MLFLOW_RUN_NOTE, names.MLFLOW_USER,
        names.MLFLOW_SOURCE_NAME, names.MLFLOW_DATASET_CONTEXT,
    )  # fmt: skip


def _changed(uri: str, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as connection:
        for each in statements:
            connection.execute(each)
        connection.commit()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE alembic_version SET version_num = 'another'",
        "CREATE TABLE studies (study_id INTEGER)",
        "DELETE FROM experiment_tags",
        "UPDATE experiments SET name = 'another' WHERE name = 'superworkflow'",
        "UPDATE experiments SET artifact_location = 's3://bucket/artifacts'",
        "DROP TABLE alembic_version",
    ],
)
def test_other_databases_are_left_to_mlflow(uri: str, statement: str) -> None:
    _changed(uri, statement)
    assert SqliteTracker.open(uri) is None


def test_what_is_no_database_is_left_to_mlflow(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("no database")
    for each in (f"sqlite:///{tmp_path}/mlflow.db", f"sqlite:///{tmp_path}/none.db", "http://127.0.0.1:9", "file:///x"):
        assert SqliteTracker.open(each) is None
    assert not (tmp_path / "none.db").exists()


def test_a_deleted_experiment_is_refused_as_by_mlflow(uri: str) -> None:
    _changed(uri, "UPDATE experiments SET lifecycle_stage = 'deleted' WHERE name = 'superworkflow'")
    for opened in (SqliteTracker.open, MlflowTracker):
        with pytest.raises(UserError, match="was deleted in MLflow"):
            opened(uri)


@pytest.mark.parametrize("key", ["a@b", "a//b", "../a", "/a", "x" * 251, "a=b"])
def test_names_that_mlflow_refuses_are_refused(uri: str, key: str) -> None:
    tracker = _opened(uri)
    tracker.begin("name", "toy", {}, {})
    named = dataclasses.replace(staged("index", 1), figures={key.replace("@", "\n"): 1.0})
    for each in (tracker, _begun_by_mlflow(uri)):
        with pytest.raises(SuperworkflowError):
            each.stage(named)
    assert "index" not in {run.info.run_name for run in MlflowClient(uri).search_runs(["1"]) if run.data.metrics}


def _begun_by_mlflow(uri: str) -> RunTracker:
    tracker = MlflowTracker(uri)
    tracker.begin("name", "toy", {}, {})
    return tracker


def test_a_failed_write_leaves_nothing_and_is_one_sentence(uri: str) -> None:
    tracker = _opened(uri)
    tracker.begin("name", "toy", {}, {})
    _changed(uri, "ALTER TABLE latest_metrics RENAME TO gone")
    with pytest.raises(SuperworkflowError, match="MLflow cannot record this run: no such table") as raised:
        tracker.stage(staged("index", 1))
    assert "\n" not in str(raised.value)
    _changed(uri, "ALTER TABLE gone RENAME TO latest_metrics")
    assert [run.info.run_name for run in MlflowClient(uri).search_runs(["1"])] == ["name"]


def test_a_database_that_stays_locked(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_tracker, "PATIENCE_S", 0.1)
    tracker = _opened(uri)
    with contextlib.closing(sqlite3.connect(uri.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SuperworkflowError, match="MLflow cannot record this run: database is locked"):
            tracker.begin("name", "toy", {}, {})


def test_stages_and_runs_at_once(uri: str) -> None:
    """Stages of one run in threads, and runs of both kinds in the same database."""
    count, together = 6, threading.Barrier(6)

    def record(number: int) -> str:
        tracker: RunTracker = MlflowTracker(uri) if number == 0 else _opened(uri)
        run_id = tracker.begin(f"run-{number}", "toy", {}, {})
        stages = [staged(f"stage-{each}", 1, cached=each % 2 == 0) for each in range(4)]
        together.wait()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(tracker.stage, stages))
        run = RunRecord(run_id, "flow", "/store", f"run-{number}", "toy")
        run.stages += stages
        run.close(load_prices(), 1.0)
        tracker.finish(run)
        return run_id

    with ThreadPoolExecutor(count) as pool:
        made = list(pool.map(record, range(count)))
    for run_id in made:
        found = find_run(uri, run_id)
        assert found.status == "FINISHED"
        assert {name: took["cached"] for name, took in found.stages.items()} == {
            f"stage-{each}": float(each % 2 == 0) for each in range(4)
        }


def test_a_run_that_was_closed_as_dead_takes_its_record_back(uri: str) -> None:
    tracker, client = _opened(uri), MlflowClient(uri)
    run_id = tracker.begin("lives", "toy", {}, {})
    assert tracker._heart is not None
    tracker._heart.stop()  # so that it does not close the run first
    client.set_tag(run_id, BEAT, "1000")
    client.set_tag(run_id, "superworkflow.owner", "elsewhere/1/2/3")
    assert close_dead_runs(client, "1") == [run_id]
    tracker._give_sign()
    run = client.get_run(run_id)
    assert (run.info.status, "superworkflow.error" in run.data.tags) == ("RUNNING", False)
    assert float(run.data.tags[BEAT]) > _NOW
    tracker.fail("a stage failed")
    tracker._give_sign()
    run = client.get_run(run_id)
    assert (run.info.status, run.data.tags["superworkflow.error"]) == ("FAILED", "a stage failed")


def test_runs_of_dead_processes_are_closed(uri: str) -> None:
    assert subprocess.run([sys.executable, "-c", DIES, uri], timeout=200).returncode == 9
    tracker = _opened(uri)
    tracker._close_dead()
    (dead,) = MlflowClient(uri).search_runs(["1"], "attributes.run_name = 'dies'")
    assert dead.info.status == "FAILED"


@pytest.fixture
def drawn(uri: str, tmp_path: Path) -> tuple[SqliteTracker, str]:
    tracker = _opened(uri)
    return tracker, _record(tracker, tmp_path)


def test_pictures_and_panels_of_earlier_runs(uri: str, drawn: tuple[SqliteTracker, str]) -> None:
    wanted = {"pictures/new.png": "c" * 32, "panels/degrees.json": "d" * 32, "pictures/other.png": "e" * 32}
    by_mlflow = MlflowTracker(uri).drawn(wanted)
    assert drawn[0].drawn(wanted) == by_mlflow
    assert by_mlflow["pictures/new.png"] == b"picture"
    assert by_mlflow.keys() == wanted.keys() - {"pictures/other.png"}


@pytest.mark.parametrize("place", ["../../../mlflow.db", "/etc/passwd", "pictures", "gone.png", "a\0b"])
def test_a_tag_leads_to_no_other_file(uri: str, drawn: tuple[SqliteTracker, str], place: str) -> None:
    tracker, run_id = drawn
    MlflowClient(uri).set_tag(run_id, tags.DRAWN_TAG, json.dumps({place: "c" * 32}))
    assert tracker.drawn({"pictures/new.png": "c" * 32}) == {}
