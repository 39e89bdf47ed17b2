"""Runs recorded in MLflow's SQLite database without MLflow, whose import takes longer than many a run.

Writes the rows that MLflow would write, into the schema that it was written for; all other databases, those whose
artifacts are elsewhere and the first one on a machine are left to `infra.tracking.mlflow_tracker`.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import posixpath
import re
import shutil
import sqlite3
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

from superworkflow.infra.base.errors import SuperworkflowError
from superworkflow.infra.process.heartbeat import sign
from superworkflow.infra.tracking.database_checks import check_experiment
from superworkflow.infra.tracking.dead_runs import DIED, close_dead_runs
from superworkflow.infra.tracking.records import RunRecord, Used
from superworkflow.infra.tracking.registry import local_folder, read_below
from superworkflow.infra.tracking.run_columns import new_view, view_tag
from superworkflow.infra.tracking.run_tracker import Attached, Figure, RunTracker, cut, dataset_columns
from superworkflow.infra.tracking.sqlite_runs import PATIENCE_S, has_dead, has_schema
from superworkflow.infra.tracking.tables import copy_database
from superworkflow.infra.tracking.tags import AUTHOR_TAG, DRAWN_TAG, ERROR_TAG, NAME_TAG, ROLE_TAG
from superworkflow.infra.tracking.uris import EXPERIMENT, sqlite_path

_KEY = re.compile(r"[/\w.\- :]{1,250}")
_EXPERIMENT = """
SELECT experiment_id, name, lifecycle_stage, artifact_location FROM experiments
WHERE name = ? AND workspace = 'default'
  AND EXISTS (SELECT * FROM experiment_tags WHERE key = 'mlflow.experimentKind'
              AND experiment_tags.experiment_id = experiments.experiment_id)
"""
_RUN = """
INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status, start_time,
                  source_version, lifecycle_stage, artifact_uri, experiment_id)
VALUES (?, ?, 'UNKNOWN', '', '', ?, 'RUNNING', ?, '', 'active', ?, ?)
"""
_TAG = """
INSERT INTO tags (key, value, run_uuid) VALUES (?, ?, ?)
ON CONFLICT (key, run_uuid) DO UPDATE SET value = excluded.value
"""
_METRIC = """
INSERT INTO metrics (key, value, timestamp, step, is_nan, run_uuid) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_LATEST = """
INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (key, run_uuid) DO UPDATE
SET value = excluded.value, timestamp = excluded.timestamp, step = excluded.step, is_nan = excluded.is_nan
WHERE (excluded.step, excluded.timestamp, excluded.value) > (step, timestamp, value)
"""
_DATASET = """
INSERT INTO datasets (dataset_uuid, experiment_id, name, digest, dataset_source_type, dataset_source, dataset_profile)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_INPUT = """
INSERT INTO inputs (input_uuid, source_type, source_id, destination_type, destination_id)
SELECT ?, 'DATASET', dataset_uuid, 'RUN', ? FROM datasets WHERE experiment_id = ? AND name = ? AND digest = ?
ON CONFLICT DO NOTHING
"""
_DRAWN = """
SELECT value, artifact_uri FROM tags JOIN runs ON runs.run_uuid = tags.run_uuid
WHERE key = ? AND instr(value, ?) AND lifecycle_stage = 'active' AND experiment_id = ?
ORDER BY start_time DESC LIMIT 1
"""


def open_tracker(uri: str, parent: str | None = None) -> RunTracker:
    """The tracker of a tracking URI: without MLflow where its database allows that.

    Args:
        uri: of the tracking.
        parent: see `RunTracker`.

    Raises:
        UserError: the database or server cannot be reached, or does not fit.
    """
    copy_database(uri)
    if (found := SqliteTracker.open(uri, parent)) is not None:
        return found
    from superworkflow.infra.tracking.mlflow_tracker import MlflowTracker

    made = MlflowTracker(uri, parent=parent)
    return SqliteTracker.open(uri, parent) or made  # it may have made the database just now


class SqliteTracker(RunTracker):
    """Records in a database that `open` found fit.

    Args:
        database: of MLflow.
        uri: its tracking URI.
        experiment_id: of the experiment of all runs.
        artifacts: URI of the experiment's folder of artifacts, on this machine.
        parent: see `RunTracker`.
    """

    def __init__(self, database: Path, uri: str, experiment_id: int, artifacts: str, parent: str | None = None):
        super().__init__(uri, str(experiment_id), parent)
        self._database, self._artifacts = database, artifacts
        self._connection: sqlite3.Connection | None = None

    @classmethod
    def open(cls, uri: str, parent: str | None = None) -> SqliteTracker | None:
        """The tracker of a tracking URI; None where it takes MLflow.

        Args:
            uri: of the tracking.
            parent: see `RunTracker`.

        Raises:
            UserError: the experiment is deleted, or its files are in another store.
        """
        database = sqlite_path(uri)
        if database is None or not all(os.access(path, os.W_OK) for path in (database, database.parent)):
            return None
        try:
            with contextlib.closing(sqlite3.connect(database, timeout=PATIENCE_S)) as connection:
                tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                if "studies" in tables or not has_schema(connection):
                    return None
                found = connection.execute(_EXPERIMENT, (EXPERIMENT,)).fetchone()
        except sqlite3.Error:  # MLflow says what is wrong
            return None
        if found is None:
            return None
        experiment = SimpleNamespace(**dict(zip(
            ("experiment_id", "name", "lifecycle_stage", "artifact_location"), found, strict=True
        )))  # fmt: skip
        check_experiment(experiment, uri)
        if local_folder(experiment.artifact_location or "s3:") is None:
            return None
        return cls(database, uri, experiment.experiment_id, experiment.artifact_location, parent)

    @contextlib.contextmanager
    def _at_once(self) -> Iterator[None]:
        """One transaction, also of those within it; a connection of its own, as processes are forked in between."""
        with self._turn:
            if self._connection is not None:
                yield
                return
            with contextlib.closing(sqlite3.connect(self._database, PATIENCE_S, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                self._connection = connection
                try:
                    yield
                    connection.execute("COMMIT")
                finally:
                    self._connection = None

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._at_once():
            assert self._connection is not None
            yield self._connection

    def _create(self, name: str, tags: Mapping[str, str], began_ms: int | None = None) -> str:
        run_id, author = uuid.uuid4().hex, tags.get(AUTHOR_TAG, "unknown")
        began_ms = int(time.time() * 1000) if began_ms is None else began_ms
        with self._writing() as connection:
            row = (run_id, name, author, began_ms, self._folder(run_id), int(self._experiment_id))
            connection.execute(_RUN, row)
            self._log(run_id, tags={**tags, NAME_TAG: name})
        return run_id

    def _folder(self, run_id: str) -> str:
        return f"{self._artifacts.rstrip('/')}/{run_id}/artifacts"

    def _log(
        self, run_id: str, params: Mapping[str, str] = {}, figures: Sequence[Figure] = (), tags: Mapping[str, str] = {}
    ) -> None:
        now = int(time.time() * 1000)
        for key in {*params, *(key for key, _, _ in figures), *tags}:
            _check_key(key)
        metrics = [(key, *_storable(value), now, step, math.isnan(value), run_id) for key, value, step in figures]
        with self._writing() as connection:
            rows = [(name, text, run_id) for name, text in cut(params).items()]
            connection.executemany("INSERT INTO params (key, value, run_uuid) VALUES (?, ?, ?)", rows)
            connection.executemany(_METRIC, metrics)
            connection.executemany(_LATEST, metrics)
            connection.executemany(_TAG, [(name, text, run_id) for name, text in cut(tags).items()])

    def _log_inputs(self, run_id: str, given: Sequence[tuple[Used, str]]) -> None:
        with self._writing() as connection:
            for each, role in given:
                name, digest, *rest = dataset_columns(each)
                experiment, dataset, made = int(self._experiment_id), uuid.uuid4().hex, uuid.uuid4().hex
                connection.execute(_DATASET, (dataset, experiment, name, digest, *rest))
                if connection.execute(_INPUT, (made, run_id, experiment, name, digest)).rowcount > 0:
                    row = (made, ROLE_TAG, role)
                    connection.execute("INSERT INTO input_tags (input_uuid, name, value) VALUES (?, ?, ?)", row)

    def _terminate(self, run_id: str, status: str, ended_ms: int | None = None) -> None:
        ended_ms = int(time.time() * 1000) if ended_ms is None else ended_ms
        with self._writing() as connection:
            row = (status, ended_ms, run_id)
            connection.execute("UPDATE runs SET status = ?, end_time = ? WHERE run_uuid = ?", row)

    def _attach(self, source: Path | str, path: str) -> None:
        folder = local_folder(self._folder(self._run_id))
        assert folder is not None
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, str):
            target.write_text(source, encoding="utf-8")
        else:
            shutil.copyfile(source, target)

    def _drew(self, key: str) -> Iterator[Attached]:
        with contextlib.closing(sqlite3.connect(self._database, PATIENCE_S)) as connection:
            rows = connection.execute(_DRAWN, (DRAWN_TAG, key, int(self._experiment_id))).fetchall()
        for tag, uri in rows:
            if (folder := local_folder(uri)) is not None:
                yield tag, functools.partial(read_below, folder)

    def _show_columns(self, run: RunRecord) -> None:
        tag, experiment = view_tag(run.superworkflow), int(self._experiment_id)
        with self._writing() as connection:
            row = (experiment, tag)
            found = connection.execute(
                "SELECT value FROM experiment_tags WHERE experiment_id = ? AND key = ?", row
            ).fetchone()
            text = new_view(found[0] if found else "", run)
            if text is not None:
                connection.execute("REPLACE INTO experiment_tags (experiment_id, key, value) VALUES (?, ?, ?)",
                                   (*row, text))  # fmt: skip

    def _give_sign(self) -> None:
        with self._writing() as connection:
            self._log(self._run_id, tags=sign())
            died = (self._run_id, ERROR_TAG, DIED)
            if connection.execute("DELETE FROM tags WHERE run_uuid = ? AND key = ? AND value = ?", died).rowcount:
                connection.execute("UPDATE runs SET status = 'RUNNING' WHERE run_uuid = ?", (self._run_id,))

    def _close_dead(self) -> None:
        if has_dead(self._database):
            from superworkflow.infra.tracking.mlflow_tracker import open_client

            close_dead_runs(open_client(self.uri), self._experiment_id)


def _check_key(key: str) -> None:
    """Refuse what MLflow refuses, whose pages could not show it.

    Raises:
        SuperworkflowError: it names the key.
    """
    if not _KEY.fullmatch(key) or posixpath.normpath(key) != key or key.startswith(("/", "..")):
        raise SuperworkflowError(
            f"{key!r} can be no name of a figure, parameter or tag: letters, digits, _ - . : / and spaces, at most 250"
        )


def _storable(value: float) -> tuple[float]:
    """MLflow's databases have a flag in place of NaN, and the largest numbers in place of infinity."""
    if math.isnan(value):
        return (0.0,)
    return (math.copysign(sys.float_info.max, value) if math.isinf(value) else value,)
