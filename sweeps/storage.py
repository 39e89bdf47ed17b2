"""Storage of studies: a database that any number of sweep processes share, and the lock among them.

An outage of the database is waited out: every access goes through `patiently`, and is written so that it can be done
twice.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import optuna
import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage, get_storage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, SQLAlchemyError

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.masking import masked
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.lock import exclusive
from superworkflow.infra.storage.sqlite import sqlite_url
from superworkflow.infra.tracking.tables import advisory_lock

optuna.logging.set_verbosity(optuna.logging.WARNING)

T = TypeVar("T")


def announce(line: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


STORAGE_VARIABLE = "SUPERWORKFLOW_STORAGE"
PATIENCE_SECONDS = 900.0
"""An outage of the database longer than this ends the sweep."""
RETRY_SECONDS = 1.0


def default_storage_url(store: Location) -> str:
    """`SUPERWORKFLOW_STORAGE`, or an SQLite file in the store; in the working folder where `sqlite_url` says so."""
    if configured := os.environ.get(STORAGE_VARIABLE):
        return configured
    return sqlite_url(store, "sweeps", "studies.db")


class StudyStorage:
    """One database of studies.

    Args:
        url: `sqlite:///PATH` or `postgresql://USER:PASSWORD@HOST/DATABASE`.

    Raises:
        UserError: another kind of URL, or the database cannot be reached or written.
    """

    def __init__(self, url: str):
        self.url = _parse(url)
        self.local = Path(self.url.database or "") if self.url.drivername == "sqlite" else None
        options: dict[str, Any] = {"pool_pre_ping": True}
        if self.local is not None:
            _make_folder(self.local)
            options = {"connect_args": {"timeout": 60}}
        self._engine = sqlalchemy.create_engine(self.url, **options)
        try:
            if {"experiments", "runs"} <= set(sqlalchemy.inspect(self._engine).get_table_names()):
                raise UserError(
                    "the database is MLflow's, and studies need one of their own: both keep their version in the same "
                    "table", where=str(self), remedy="Name another one with --storage or SUPERWORKFLOW_STORAGE",
                )  # fmt: skip
            with self.lock("tables"):  # two processes that make the tables at once would fail
                database = RDBStorage(self.url.render_as_string(hide_password=False), engine_kwargs=options)
        except (SQLAlchemyError, StorageInternalError) as error:
            detail = str(error.__cause__ or error).strip().splitlines()[0]
            raise UserError(
                f"the database of the studies cannot be used: {detail}", where=str(self), remedy="Check --storage"
            ) from None
        self.optuna: BaseStorage = get_storage(database)
        for engine in (self._engine, database.engine):
            weakref.finalize(self, engine.dispose)

    @staticmethod
    def exists(url: str) -> bool:
        """True if the database exists; a server is not contacted."""
        parsed = _parse(url)
        return parsed.drivername != "sqlite" or Path(parsed.database or "").exists()

    def __str__(self) -> str:
        return masked(self.url.render_as_string(hide_password=True))

    @property
    def url_without_password(self) -> str:
        """URL that opens it where the password is given in `PGPASSWORD` or `~/.pgpass`."""
        return self.url._replace(password=None).difference_update_query(["password"]).render_as_string()

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the lock of this name against other processes and threads; it is released when its holder ends."""
        if self.local is not None:
            with exclusive(Location.of(self.local.with_name(f"{self.local.name}-{zlib.crc32(name.encode()):08x}"))):
                yield
            return
        with advisory_lock(self._engine, name):
            yield

    def trial(self, study: str, number: int) -> FrozenTrial:
        """A trial as it is now."""
        return self.optuna.get_trial(self._id(study, number))

    # Optuna's `Study` can neither change a trial that another process began nor put one back into the queue; its
    # storage can.

    def set_attribute(self, study: str, number: int, key: str, value: Any) -> None:
        """Set a user attribute of a trial."""
        self.optuna.set_trial_user_attr(self._id(study, number), key, value)

    def set_state(self, study: str, number: int, state: TrialState) -> None:
        """Set the state of a trial."""
        self.optuna.set_trial_state_values(self._id(study, number), state)

    def _id(self, study: str, number: int) -> int:
        return self.optuna.get_trial_id_from_study_id_trial_number(self.optuna.get_study_id_from_name(study), number)

    def patiently(self, work: Callable[[], T]) -> T:
        """Do `work`, and repeat it while the database is unreachable.

        Raises:
            UserError: the outage lasted longer than `PATIENCE_SECONDS`.
        """
        begun: float | None = None
        while True:
            try:
                result = work()
            except (StorageInternalError, SQLAlchemyError) as error:
                if not _is_outage(error):
                    raise
                now = time.monotonic()
                if begun is None:
                    begun = now
                    announce(f"database   unreachable; waiting: {self}")
                if now - begun > PATIENCE_SECONDS:
                    raise UserError(
                        f"the database was unreachable for {PATIENCE_SECONDS:.0f} s", where=str(self),
                        remedy="Bring it back and run the same command again: it resumes",
                    ) from None  # fmt: skip
                time.sleep(RETRY_SECONDS)
            else:
                if begun is not None:
                    announce("database   back; continuing")
                return result


def study_names(storage: StudyStorage) -> list[str]:
    """Names of all studies, newest first."""
    found = storage.patiently(lambda: optuna.get_all_study_summaries(storage.optuna))
    return [each.study_name for each in sorted(found, reverse=True)]


def _parse(text: str) -> URL:
    remedy = "Write sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE"
    try:
        url = make_url(text)
    except ArgumentError:
        raise UserError("not a database URL", where="--storage", remedy=remedy) from None
    if url.drivername in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername not in ("sqlite", "postgresql+psycopg") or not url.database:
        raise UserError("not a database for studies", where="--storage", value=url.drivername, remedy=remedy)
    return url


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot be made: {error.strerror}", where=str(path.parent), remedy="Check --storage") from None


def _is_outage(error: BaseException) -> bool:
    """The server cannot be reached, shuts down or starts up, or another writer holds the file for too long."""
    cause = error if isinstance(error, SQLAlchemyError) else error.__cause__
    return isinstance(cause, OperationalError) or (isinstance(cause, DBAPIError) and cause.connection_invalidated)
