"""The tracking URI of a store, and the experiment in which runs are recorded. Imports nothing of MLflow."""

from __future__ import annotations

import os
from pathlib import Path

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.sqlite import sqlite_url

EXPERIMENT = "superworkflow"
"""Name of the experiment of all runs."""


def default_tracking_uri(store: Location | str) -> str:
    """`MLFLOW_TRACKING_URI`, or an SQLite file in the store; see `sqlite_url` for when it is in the working folder."""
    place = Location.of(store)
    if configured := os.environ.get("MLFLOW_TRACKING_URI"):
        return configured
    return sqlite_url(place, "mlflow", "mlflow.db")


def sqlite_path(uri: str) -> Path | None:
    """The file of an SQLite tracking URI; None for any other."""
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


def artifact_folder(database: Path) -> str:
    """URI of the folder of artifacts of an SQLite database of MLflow that this project makes: next to it."""
    return (database.absolute().parent / "artifacts").as_uri()


def check_recorded(uri: str) -> None:
    """Refuse an SQLite tracking URI whose database does not exist.

    Raises:
        UserError: it does not.
    """
    database = sqlite_path(uri)
    if database is not None and not database.exists():
        raise UserError("nothing is recorded here", where=uri, remedy="Name the store of the runs with --store")
