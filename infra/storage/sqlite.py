"""SQLite databases in the folder of a store."""

from __future__ import annotations

from pathlib import Path

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import Location


def sqlite_url(store: Location, *names: str) -> str:
    """URL of an SQLite file in the store.

    It is in the working folder instead when the store is remote, or its path has a `?` or `%`: in the URL of a database
    what follows a `?` is options, so that the file would be another, outside of the store, and MLflow decodes a `%20`
    in the paths of models.

    Raises:
        UserError: the working folder's path has a `?` too.
    """
    folder = store.local_path
    if folder is None or set("?%") & set(str(folder)):
        folder = Path.cwd() / "superworkflow-store"
    path = folder.absolute().joinpath(*names)
    if "?" in str(path):
        raise UserError(
            "the URL of a database cannot hold a '?'", where=str(path),
            remedy="Work in another folder, or name a database with MLFLOW_TRACKING_URI and --storage",
        )  # fmt: skip
    return f"sqlite:///{path}"
