"""Runs in MLflow's SQLite database, read without MLflow: its import takes four CPU seconds and more.

Reads only the schema that it was written for; MLflow itself reads all others.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from superworkflow.infra.process.heartbeat import BEAT, is_dead
from superworkflow.infra.tracking.tags import SUPERWORKFLOW_TAG
from superworkflow.infra.tracking.uris import EXPERIMENT

SCHEMAS = frozenset({"dc11669786a5"})
"""Revisions of MLflow's schema (table `alembic_version`) that can be read: of MLflow 3.17."""
_PAGE = 200
_RUNS = """
SELECT run_uuid, name, status, start_time FROM runs
WHERE lifecycle_stage = 'active'
  AND experiment_id IN (SELECT experiment_id FROM experiments WHERE name = ? AND workspace = 'default')
  AND EXISTS (SELECT 1 FROM tags WHERE tags.run_uuid = runs.run_uuid AND key = ? AND value != '')
ORDER BY start_time DESC, run_uuid
"""
_OPEN = """
SELECT tags.run_uuid, key, value FROM tags JOIN runs ON runs.run_uuid = tags.run_uuid
WHERE status = 'RUNNING' AND lifecycle_stage = 'active'
"""
_PARTS = {
    "tags": "SELECT run_uuid, key, value FROM tags WHERE run_uuid IN ({})",
    "params": "SELECT run_uuid, key, value FROM params WHERE run_uuid IN ({})",
    "metrics": "SELECT run_uuid, key, CASE WHEN is_nan THEN NULL ELSE value END FROM latest_metrics "
    "WHERE run_uuid IN ({})",
    "datasets": "SELECT destination_id, datasets.name, digest FROM inputs "
    "JOIN datasets ON datasets.dataset_uuid = inputs.source_id "
    "WHERE destination_type = 'RUN' AND destination_id IN ({})",
}


def can_read(database: Path) -> bool:
    """True if the database has a schema that is read here, and no run of a dead process that has to be closed."""
    try:
        with _open(database) as connection:
            if {row[0] for row in connection.execute("SELECT version_num FROM alembic_version")} - SCHEMAS:
                return False
            tags: dict[str, dict[str, str]] = {}
            for run, key, value in connection.execute(_OPEN):
                tags.setdefault(run, {})[key] = value
    except sqlite3.Error:
        return False
    return not any(BEAT in each and is_dead(each) for each in tags.values())


def read_runs(database: Path) -> Iterator[Any]:
    """Runs of superworkflows, newest first, with the attributes of MLflow's `Run` that `recorded_run` reads.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    with _open(database) as connection:
        rows = connection.execute(_RUNS, (EXPERIMENT, SUPERWORKFLOW_TAG))
        while page := rows.fetchmany(_PAGE):
            yield from _whole(connection, page)


def _whole(connection: sqlite3.Connection, page: Sequence[tuple[str, str, str, int]]) -> Iterator[Any]:
    ids = [row[0] for row in page]
    parts: dict[str, dict[str, dict[str, Any]]] = {}
    for part, query in _PARTS.items():
        found: dict[str, dict[str, Any]] = {run: {} for run in ids}
        for run, key, value in connection.execute(query.format(",".join("?" * len(ids))), ids):
            found[run][key] = math.nan if value is None and part == "metrics" else value
        parts[part] = found
    for run, name, status, started in page:
        datasets = [
            SimpleNamespace(dataset=SimpleNamespace(name=each, digest=digest))
            for each, digest in parts["datasets"][run].items()
        ]
        yield SimpleNamespace(
            info=SimpleNamespace(run_id=run, run_name=name, status=status, start_time=started),
            data=SimpleNamespace(**{part: parts[part][run] for part in ("tags", "params", "metrics")}),
            inputs=SimpleNamespace(dataset_inputs=datasets),
        )


@contextlib.contextmanager
def _open(database: Path) -> Iterator[sqlite3.Connection]:
    """A connection that reads only, whatever its caller does."""
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
    try:
        yield connection
    finally:
        connection.close()
