"""Runs in MLflow's SQLite database, read without MLflow: its import takes four CPU seconds and more.

Reads only the schema that it was written for; MLflow itself reads all others.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from superworkflow.infra.process.heartbeat import BEAT, is_dead
from superworkflow.infra.tracking.run_filter import RunFilter
from superworkflow.infra.tracking.tags import OUTCOME_TAG, SUPERWORKFLOW_TAG
from superworkflow.infra.tracking.uris import EXPERIMENT

SCHEMAS = frozenset({"dc11669786a5"})
"""Revisions of MLflow's schema (table `alembic_version`) that can be read: of MLflow 3.17."""
_PAGE = 200
PATIENCE_S = 30.0
"""Seconds for which a database that is being written is waited for."""
_RUNS = """
SELECT runs.run_uuid, name, status, start_time, end_time, experiment_id
FROM tags JOIN runs ON runs.run_uuid = tags.run_uuid
WHERE key = ? AND value != '' AND lifecycle_stage = 'active'
  AND experiment_id IN (SELECT experiment_id FROM experiments WHERE name = ? AND workspace = 'default')
ORDER BY start_time DESC, runs.run_uuid LIMIT ?
"""
_OPEN = """
SELECT tags.run_uuid, key, value FROM tags JOIN runs ON runs.run_uuid = tags.run_uuid
WHERE status = 'RUNNING' AND lifecycle_stage = 'active'
"""
_TAGS = "SELECT run_uuid, key, value FROM tags WHERE run_uuid IN ({})"
_PARAMS = "SELECT run_uuid, key, value FROM params WHERE run_uuid IN ({})"
_METRICS = "SELECT run_uuid, key, iif(is_nan, NULL, value) FROM latest_metrics WHERE run_uuid IN ({})"
_DATASETS = """
SELECT destination_id, datasets.name, digest FROM inputs JOIN datasets ON datasets.dataset_uuid = inputs.source_id
WHERE destination_type = 'RUN' AND destination_id IN ({})
"""


@dataclass(frozen=True)
class _Row:
    """A run as far as filters read it."""

    run_id: str
    name: str
    status: str
    started: int
    ended: int | None
    experiment: str
    tags: dict[str, str]

    @property
    def superworkflow(self) -> str:
        return self.tags.get(SUPERWORKFLOW_TAG, "")

    @property
    def outcome(self) -> str:
        return self.tags.get(OUTCOME_TAG, "")


def can_read(database: Path) -> bool:
    """True if the database has a schema that is read here."""
    try:
        with _open(database) as connection:
            return has_schema(connection)
    except sqlite3.Error:
        return False


def has_schema(connection: sqlite3.Connection) -> bool:
    """True if an open database has a schema that is read here."""
    return {row[0] for row in connection.execute("SELECT version_num FROM alembic_version")} <= SCHEMAS


def has_dead(database: Path) -> bool:
    """True if a database that `can_read` has a run of a dead process that has to be closed."""
    tags: dict[str, dict[str, str]] = {}
    with _open(database) as connection:
        for run, key, value in connection.execute(_OPEN):
            tags.setdefault(run, {})[key] = value
    return any(BEAT in each and is_dead(each) for each in tags.values())


def read_runs(database: Path, first: int, which: RunFilter, most: int | None = None) -> Iterator[Any]:
    """Runs that pass the filter, newest first, with the attributes of MLflow's `Run` that `recorded_run` reads.

    Args:
        database: of a schema that `can_read`.
        first: how many will be taken at first.
        which: only these.
        most: how many will be taken in all; None for all that there are.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    size = _PAGE if which else min(first, _PAGE)
    with _open(database) as connection:
        # At once: while a query has further rows, nobody can write.
        newest = -1 if which or most is None else most
        rows = connection.execute(_RUNS, (SUPERWORKFLOW_TAG, EXPERIMENT, newest)).fetchall()
        for begin in range(0, len(rows), size):
            page = rows[begin : begin + size]
            tags = _by_run(connection, _TAGS, [row[0] for row in page])
            found = (
                _Row(run, name, status, started, ended, str(experiment), tags[run])
                for run, name, status, started, ended, experiment in page
            )
            yield from _whole(connection, list(filter(which.matches, found)))


def _whole(connection: sqlite3.Connection, rows: Sequence[_Row]) -> Iterator[Any]:
    ids = [row.run_id for row in rows]
    params, metrics, datasets = (_by_run(connection, query, ids) for query in (_PARAMS, _METRICS, _DATASETS))
    for row in rows:
        figures = {key: math.nan if value is None else value for key, value in metrics[row.run_id].items()}
        listed = [SimpleNamespace(name=name, digest=digest) for name, digest in datasets[row.run_id].items()]
        yield SimpleNamespace(
            info=SimpleNamespace(
                run_id=row.run_id,
                run_name=row.name,
                status=row.status,
                start_time=row.started,
                end_time=row.ended,
                experiment_id=row.experiment,
            ),
            data=SimpleNamespace(tags=row.tags, params=params[row.run_id], metrics=figures),
            inputs=SimpleNamespace(dataset_inputs=[SimpleNamespace(dataset=each) for each in listed]),
        )


def _by_run(connection: sqlite3.Connection, query: str, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Values by key of each run."""
    found: dict[str, dict[str, Any]] = {run: {} for run in ids}
    for run, key, value in connection.execute(query.format(",".join("?" * len(ids))), ids):
        found[run][key] = value
    return found


@contextlib.contextmanager
def _open(database: Path) -> Iterator[sqlite3.Connection]:
    """A connection that reads only, whatever its caller does."""
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=PATIENCE_S)
    try:
        yield connection
    finally:
        connection.close()
