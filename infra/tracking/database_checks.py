"""Checks of a tracking database before stages run, each with the command that mends what is wrong."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.tracking.uris import sqlite_path

if TYPE_CHECKING:
    from mlflow.entities import Experiment

_COLUMNS = (
    "experiments.artifact_location runs.artifact_uri model_versions.source model_versions.storage_location "
    "logged_models.artifact_location"
)
"""Columns in which MLflow keeps addresses of files."""


def check_database(uri: str) -> None:
    """Refuse a database that has Optuna's tables: both packages keep their version in `alembic_version`.

    Raises:
        UserError: the database is one of studies.
    """
    if "://" not in uri or uri.startswith(("http:", "https:", "file:", "databricks")):
        return
    path = sqlite_path(uri)
    if path is not None and not path.exists():
        return
    import sqlalchemy

    engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool)
    try:
        tables = set(sqlalchemy.inspect(engine).get_table_names())
    finally:
        engine.dispose()
    if {"studies", "trials"} <= tables:
        raise UserError(
            "the database has the studies of sweeps, and MLflow needs one of its own: both keep their version in the "
            "same table", where=uri, remedy="Name another one in MLFLOW_TRACKING_URI",
        )  # fmt: skip


def older_schema(uri: str, error: Exception) -> UserError | None:
    """The error for a database whose tables are those of an older MLflow, which says so; None for any other error."""
    if (found := re.search(r"out-of-date database schema \(found version (\w+)", str(error))) is None:
        return None
    return UserError(
        "the database has the tables of an older MLflow", where=uri, value=found[1],
        remedy=f"Back it up, then have MLflow change them: mlflow db upgrade {shlex.quote(uri)}",
    )  # fmt: skip


def check_experiment(found: Experiment | SimpleNamespace, uri: str) -> None:
    """Refuse an experiment that is deleted, or whose files are in the folder of another store.

    Raises:
        UserError: names the command that restores it, or that corrects the addresses of a moved or copied store.
    """
    if found.lifecycle_stage == "deleted":
        command = f"MLFLOW_TRACKING_URI={shlex.quote(uri)} mlflow experiments restore --experiment-id"
        raise UserError(f"the experiment {found.name} was deleted in MLflow", where=uri, value=found.experiment_id,
                        remedy=f"Restore it: {command} {found.experiment_id}")  # fmt: skip
    path = sqlite_path(uri)
    if path is None or not found.artifact_location.startswith(("file:", "/")):
        return
    kept, wanted = Path(unquote(urlsplit(found.artifact_location).path)), path.absolute().parent / "artifacts"
    # Only a folder that an earlier run made in this way: anybody may have chosen another one.
    if kept == wanted or (kept.parent.name, kept.name) != (wanted.parent.name, wanted.name):
        return
    if wanted.exists() and kept.exists() and kept.samefile(wanted):
        return
    raise UserError(
        f"the store was moved or copied, and its records name files in {kept}", where=uri, value=str(kept),
        remedy=f"Correct the addresses in the database: {_correction(path, found.artifact_location, wanted.as_uri())}",
    )  # fmt: skip


def _correction(path: Path, kept: str, wanted: str) -> str:
    """Command that replaces the address of the folder of artifacts in a database, with nothing but Python."""
    old, new, file = (json.dumps(each) for each in (kept, wanted, str(path)))
    code = (
        f"import sqlite3; db = sqlite3.connect({file}); "
        f'[db.execute("UPDATE %s SET %s = replace(%s, ?, ?)" % (*c.split("."), c.split(".")[1]), ({old}, {new})) '
        f'for c in "{_COLUMNS}".split()]; db.commit()'
    )
    return f"python -c {shlex.quote(code)}"
