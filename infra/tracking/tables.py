"""Lock for MLflow's first opening of a database: it makes the tables, and fails where two processes do so at once."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.lock import exclusive


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
    path = sqlite_path(uri)
    if path is None:
        path = Path(tempfile.gettempdir(), f"superworkflow-tables-{os.getuid()}-{zlib.crc32(uri.encode()):08x}")
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not os.access(path.parent, os.W_OK):  # to be read only: its tables are there
        yield
        return
    with exclusive(Location.of(path)):
        yield


@contextmanager
def _advisory_lock(uri: str) -> Iterator[None]:
    import sqlalchemy

    engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _KEY})
        yield  # the transaction's end lets go, however it ends


_KEY = zlib.crc32(b"superworkflow/mlflow tables")


def sqlite_path(uri: str) -> Path | None:
    """The file of an SQLite tracking URI; None for any other."""
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None
