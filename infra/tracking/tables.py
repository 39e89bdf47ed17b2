"""MLflow's first opening of a database: it makes the tables, and fails where two processes do so at once.

It makes them by all migrations since its first version: two CPU seconds for each new store. The tables of a new SQLite
database are copied instead from one that the same version of MLflow has made before; it is kept in the user's cache.
With the experiments that MLflow and its tracker would make, such a database needs no import of MLflow at all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import time
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from superworkflow.infra.storage.checksum_cache import cache_folder, is_ours
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.lock import exclusive
from superworkflow.infra.tracking.sqlite_runs import has_schema
from superworkflow.infra.tracking.tags import EXPERIMENT_KIND
from superworkflow.infra.tracking.uris import EXPERIMENT, artifact_folder, sqlite_path

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

_EXPERIMENTS = """
INSERT INTO experiments
(experiment_id, name, artifact_location, lifecycle_stage, creation_time, last_update_time, workspace)
VALUES (?, ?, ?, 'active', ?, ?, 'default')
"""


def copy_database(uri: str) -> bool:
    """Make the SQLite database of a tracking URI from kept tables, without MLflow.

    Args:
        uri: tracking URI.

    Returns:
        False if MLflow has to make it: no tables are kept, or it is no SQLite database that is missing.
    """
    database = sqlite_path(uri)
    if database is None or database.exists():
        return False
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(Location.of(database)):
            return database.exists() or _copy_tables(database, with_experiments=True)
    except OSError:  # MLflow says what is wrong
        return False


@contextmanager
def making_tables(uri: str) -> Iterator[None]:
    """Hold the right to make the tables of a tracking database; nothing to hold for a tracking server.

    Processes of this machine exclude each other, and on PostgreSQL those of all machines.

    Args:
        uri: tracking URI.
    """
    scheme = uri.partition("://")[0]
    if scheme.startswith("postgres"):
        import sqlalchemy

        with advisory_lock(sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool), "mlflow tables"):
            yield
    elif "://" in uri and not scheme.startswith("http"):
        with _file_lock(uri):
            yield
    else:
        yield


@contextmanager
def _file_lock(uri: str) -> Iterator[None]:
    database = sqlite_path(uri)
    if database is None:
        path = Path(tempfile.gettempdir(), f"superworkflow-tables-{os.getuid()}-{zlib.crc32(uri.encode()):08x}")
        with exclusive(Location.of(path)):
            yield
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    if database.exists() and not os.access(database.parent, os.W_OK):  # to be read only: its tables are there
        yield
        return
    with exclusive(Location.of(database)):
        missing = not database.exists() and not _copy_tables(database)
        yield
        if missing:
            _keep_tables(database)


def _kept_tables() -> Path | None:
    """The file with the tables of this version of MLflow; None for a user without a cache."""
    folder = cache_folder()
    return None if folder is None else folder / "tables" / f"mlflow-{version('mlflow')}.db"


def _copy_tables(database: Path, with_experiments: bool = False) -> bool:
    """Begin a database with tables that were kept; False if there are none, or others may have written them."""
    kept, partial = _kept_tables(), database.with_name(f".{database.name}.partial")
    if kept is None:
        return False
    try:
        if not (is_ours(kept.lstat()) and is_ours(kept.parent.stat())):
            return False
        shutil.copyfile(kept, partial, follow_symlinks=False)
        with contextlib.closing(sqlite3.connect(partial)) as copy:
            whole = copy.execute("PRAGMA quick_check").fetchall() == [("ok",)]
            if whole and with_experiments and (whole := has_schema(copy)):
                _add_experiments(copy, database)
        if whole:
            partial.replace(database)
    except (OSError, sqlite3.Error):
        whole = False
    partial.unlink(missing_ok=True)
    return whole


def _add_experiments(copy: sqlite3.Connection, database: Path) -> None:
    """Add MLflow's own first experiment, whose files it keeps in the working folder, and that of all runs."""
    now = int(time.time() * 1000)
    rows = [(0, "Default", str(Path("mlruns", "0").absolute())), (1, EXPERIMENT, artifact_folder(database))]
    with copy:
        copy.executemany(_EXPERIMENTS, [(*row, now, now) for row in rows])
        tags = [(key, value, 1) for key, value in EXPERIMENT_KIND.items()]
        copy.executemany("INSERT INTO experiment_tags (key, value, experiment_id) VALUES (?, ?, ?)", tags)


def _keep_tables(database: Path) -> None:
    """Keep the tables of a database that MLflow has just made, without its first experiment, which names a folder."""
    if (kept := _kept_tables()) is None:
        return
    partial = kept.with_name(f".{uuid.uuid4().hex}.partial")
    with contextlib.suppress(OSError, sqlite3.Error):
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            partial.touch(mode=0o600, exist_ok=False)
            with (
                contextlib.closing(sqlite3.connect(database)) as made,
                contextlib.closing(sqlite3.connect(partial)) as copy,
            ):
                made.backup(copy)
                copy.execute("DELETE FROM experiments")
                copy.commit()
            partial.replace(kept)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def advisory_lock(engine: Engine, name: str) -> Iterator[None]:
    """Hold the lock of this name on a PostgreSQL server; it is released when its holder ends."""
    import sqlalchemy

    with engine.connect() as connection:
        key = zlib.crc32(f"superworkflow/{name}".encode())
        connection.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
        yield  # the end of the transaction releases it
