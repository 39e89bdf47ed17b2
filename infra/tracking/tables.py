"""MLflow's first opening of a database: it makes the tables, and fails where two processes do so at once.

It makes them by all migrations since its first version: two CPU seconds for each new store. The tables of a new SQLite
database are copied instead from one that the same version of MLflow has made before; it is kept in the user's cache.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from superworkflow.infra.storage.checksum_cache import cache_folder, is_ours
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.lock import exclusive
from superworkflow.infra.tracking.uris import sqlite_path


@contextmanager
def making_tables(uri: str) -> Iterator[None]:
    """Hold the right to make the tables of a tracking database; nothing to hold for a tracking server.

    Processes of this machine exclude each other, and on PostgreSQL those of all machines.

    Args:
        uri: tracking URI.
    """
    scheme = uri.partition("://")[0]
    if scheme.startswith("postgres"):
        with _advisory_lock(uri):
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
    from mlflow.version import VERSION

    folder = cache_folder()
    return None if folder is None else folder / "tables" / f"mlflow-{VERSION}.db"


def _copy_tables(database: Path) -> bool:
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
        if whole:
            partial.replace(database)
    except (OSError, sqlite3.Error):
        whole = False
    partial.unlink(missing_ok=True)
    return whole


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
def _advisory_lock(uri: str) -> Iterator[None]:
    import sqlalchemy

    engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _KEY})
        yield  # the transaction's end lets go, however it ends


_KEY = zlib.crc32(b"superworkflow/mlflow tables")
