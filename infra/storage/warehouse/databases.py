"""Databases: sessions that read all they are given in one transaction, as streams of Arrow.

PostgreSQL and SQLite are read by ADBC (Arrow Database Connectivity), DuckDB by itself, others by SQLAlchemy. Nothing is
written. A session of PostgreSQL sees one state of the database from its first statement on, whatever is written
in between, and so do the connections that read ranges of a large table for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.extras import needs_package
from superworkflow.infra.base.masking import masked
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.source import FRESH_S
from superworkflow.infra.storage.warehouse import ranges
from superworkflow.infra.storage.warehouse.address import TABLE, WATERMARK, TableAddress, identifier, quoted

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = 1 << 17
_SERVER = """SELECT system_identifier::text || '-' || current_database() || '-' || current_user
    FROM pg_control_system()"""
_COLUMNS = """SELECT relfilenode || '-' || string_agg(attname || ':' || atttypid, ',' ORDER BY attnum)
    FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
    WHERE pg_class.oid = '{}'::regclass AND attnum > 0 AND NOT attisdropped AND relkind IN ('r', 'm')
    GROUP BY relfilenode"""
_BLOCKS = """SELECT pg_relation_size(oid) / current_setting('block_size')::int FROM pg_class
    WHERE oid = '{}'::regclass AND relkind IN ('r', 'm') AND relam = 2 AND NOT relhassubclass
    AND current_setting('server_version_num')::int >= 140000
    AND has_function_privilege('pg_export_snapshot()', 'EXECUTE')"""
_SQLITE_TYPES = ("TEXT", "INTEGER", "REAL", "BLOB", "TEXT")
_SQLITE_KIND = """CASE typeof({}) WHEN 'integer' THEN 1 WHEN 'real' THEN 2 WHEN 'blob' THEN 3 WHEN 'text' THEN 4 END"""
_ROWS = "count(*), max(xmin::text::bigint), sum(hashint8(xmin::text::bigint))"


class Session(Protocol):
    """A transaction that only reads."""

    def read(self, address: TableAddress) -> Iterator[pa.Table]:
        """The rows of a table or query, in tables of one schema, at least one."""

    def fingerprint(self, address: TableAddress) -> str:
        """Other than before if the rows may be; empty if that takes reading them."""

    def close(self) -> None:
        """End the transaction."""


def open_session(address: TableAddress) -> Session:
    """Connect to the database of an address.

    Raises:
        UserError: a driver is missing, or there is no such file.
        Exception: the driver's own, if the server does not answer or refuses; see `refusal`.
    """
    if address.scheme in ("postgresql", "postgres"):
        return _Postgres(address)
    if address.scheme == "sqlite":
        return _Sqlite(address)
    return _DuckDb(address) if address.scheme == "duckdb" else _Sqlalchemy(address)


def connect_postgres(address: TableAddress) -> Any:
    """A connection of ADBC to PostgreSQL.

    Raises:
        UserError: the driver is missing.
    """
    return _connect("adbc_driver_postgresql", address.url)


def _connect(driver: str, database: str) -> Any:
    try:
        return importlib.import_module(f"{driver}.dbapi").connect(database)
    except ModuleNotFoundError:
        raise needs_package(driver) from None


def refusal(address: TableAddress, error: Exception, verb: str = "read") -> UserError:
    """The error of a driver in one sentence."""
    text = masked(str(error)).replace("SQLSTATE: 00000", "")
    found = re.search(r"(?:FATAL|ERROR): +(.*)", text)
    words = found[1] if found else next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    words = re.sub(r"^(?:[A-Z_]+: )?(?:\[\w+\] )?", "", words).strip().rstrip(".")
    remedy = "Check the address, the table and its permissions"
    if "FATAL" in text or "no password" in text:
        remedy = "Check user and password: ${VARIABLE} in the address, PGUSER, PGPASSWORD or ~/.pgpass"
    elif type(error).__module__.startswith("pyarrow"):  # values of a column that are of several types
        remedy = "Give each column one type, by a query: ?query=SELECT CAST(a AS TEXT) AS a, …"
    elif is_away(error):
        remedy = "Check host and port, and that the server runs"
    return UserError(f"cannot be {verb}: {words}", where=address.shown, remedy=remedy)


def is_away(error: Exception) -> bool:
    """True if the server did not answer, is starting, or has gone, so that another try may succeed."""
    text = str(error)
    gone = "the database system is|terminating connection|57P0[123]|server closed the connection|server was lost"
    if re.search(gone, text):
        return True
    lost = ("Connection refused", "could not connect", "Failed to connect", "timed out", "No such file or directory",
            "Connection reset")  # fmt: skip
    return "FATAL" not in text and "libpq" in text and any(each in text for each in lost)


class _Adbc:
    """A connection of ADBC, which sends rows as Arrow."""

    def __init__(self, driver: str, database: str):
        self._connection: Any = _connect(driver, database)

    def read(self, address: TableAddress) -> Iterator[pa.Table]:
        return self.rows(address.select())

    def rows(self, statement: str) -> Iterator[pa.Table]:
        """The rows of a statement, in tables of one schema, at least one."""
        import pyarrow as pa

        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            stream = cursor.fetch_record_batch()
            yield pa.Table.from_batches([], stream.schema)
            for batch in stream:
                yield pa.Table.from_batches([batch], stream.schema)

    def row(self, statement: str) -> tuple[Any, ...]:
        """The one row of a statement; empty if there is none."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return tuple(cursor.fetchone() or ())

    def fingerprint(self, address: TableAddress) -> str:
        return ""

    def close(self) -> None:
        self._connection.close()


class _Postgres(_Adbc):
    """A transaction of PostgreSQL.

    Args:
        address: of its database.
        snapshot: exported by the transaction whose state of the database this one sees.
    """

    def __init__(self, address: TableAddress, snapshot: str = ""):
        super().__init__("adbc_driver_postgresql", address.url)
        self._set("TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if snapshot:
            self._set(f"TRANSACTION SNAPSHOT '{snapshot}'")
            self._set("lock_timeout = '500ms'")
        self._set("idle_in_transaction_session_timeout = 0")  # it waits while others read ranges
        self._set("synchronize_seqscans = off")  # equal rows come in one order
        self._set("max_parallel_workers_per_gather = 0")

    def _set(self, what: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(f"SET {what}")

    def read(self, address: TableAddress) -> Iterator[pa.Table]:
        if TABLE not in address.options:
            return self.rows(address.select())
        self._set("enable_indexonlyscan = off")  # the order of blocks
        (blocks,) = self.row(_BLOCKS.format(_literal(address))) or (0,)
        statements = ranges.split_blocks(address.select(), blocks)
        readers = self._readers(address, ranges.connections(len(statements)))
        return ranges.read_ahead(readers, statements) if readers else self.rows(address.select())

    def _readers(self, address: TableAddress, number: int) -> list[_Postgres]:
        """Connections that see this transaction's state and hold the table's lock; none if one cannot be had.

        Without their locks, a lock that somebody waits for would stop them at a later range, and be stopped by this
        transaction, for ever.
        """
        readers: list[_Postgres] = []
        if number < 2:
            return readers
        (snapshot,) = self.row("SELECT pg_export_snapshot()")
        try:
            with contextlib.ExitStack() as opened:
                for _ in range(number):
                    readers.append(_Postgres(address, snapshot))
                    opened.callback(readers[-1].close)
                    readers[-1].row(f"{address.select('1')} LIMIT 0")
                opened.pop_all()
        except Exception:  # no connection is free, or a pooler leads elsewhere
            return []
        return readers

    def fingerprint(self, address: TableAddress) -> str:
        """Columns, file and writing transactions of a table, or what its watermark says."""
        parts: list[Any] = []
        if WATERMARK in address.options:
            parts += self.row(_watermark(address))
        elif TABLE in address.options:
            columns = self.row(_COLUMNS.format(_literal(address)))
            if not columns:  # a view: its rows may come from anywhere
                return ""
            parts += [*columns, *self.row(address.select(_ROWS))]
        return _joined([*self.row(_SERVER), *parts]) if parts else ""


class _Sqlite(_Adbc):
    def __init__(self, address: TableAddress):
        self._path = _file(address)
        super().__init__("adbc_driver_sqlite", f"file:{self._path}?mode=ro")

    def read(self, address: TableAddress) -> Iterator[pa.Table]:
        """The rows, each column of one type, which one pass over its values finds.

        SQLite has types of values, not of columns, and the driver takes those of the first rows for all.
        """
        first = next(self.rows(address.select()))
        if len(set(first.column_names)) < first.num_columns:
            yield first  # is refused
            return
        names = [identifier(name) for name in first.column_names]
        kinds = self.row(address.select(", ".join(f"max({_SQLITE_KIND.format(name)})" for name in names)))
        types = [_SQLITE_TYPES[kind or 0] for kind in kinds]
        head = ", ".join(f"CAST('' AS {kind}) AS {name}" for name, kind in zip(names, types, strict=True))
        casts = ", ".join(f"CAST({name} AS {kind})" for name, kind in zip(names, types, strict=True))
        skipped = 1  # the row that shows the driver the types
        for table in self.rows(f"SELECT {head} UNION ALL {address.select(casts)}"):
            yield table.slice(skipped)
            skipped -= min(skipped, table.num_rows)

    def fingerprint(self, address: TableAddress) -> str:
        return _file_state(self._path)


class _DuckDb:
    def __init__(self, address: TableAddress):
        self._path = _file(address)
        try:
            import duckdb
        except ModuleNotFoundError:
            raise needs_package("duckdb") from None
        self._connection = duckdb.connect(str(self._path), read_only=True)
        self._connection.begin()

    def read(self, address: TableAddress) -> Iterator[pa.Table]:
        import pyarrow as pa

        stream = self._connection.sql(address.select()).to_arrow_reader(_BATCH)
        yield pa.Table.from_batches([], stream.schema)
        for batch in stream:
            yield pa.Table.from_batches([batch])

    def fingerprint(self, address: TableAddress) -> str:
        return _file_state(self._path)

    def close(self) -> None:
        self._connection.close()


class _Sqlalchemy:
    def __init__(self, address: TableAddress):
        try:
            import sqlalchemy
        except ModuleNotFoundError:
            raise needs_package("sqlalchemy") from None
        self._text = sqlalchemy.text
        self._engine = sqlalchemy.create_engine(address.url)
        self._connection = self._engine.connect().execution_options(stream_results=True)

    def read(self, address: TableAddress) -> Iterator[pa.Table]:
        import pyarrow as pa

        result = self._connection.execute(self._text(address.select().replace(":", "\\:")))
        names = list(result.keys())
        yield pa.Table.from_arrays([pa.nulls(0)] * len(names), names=names)
        for rows in result.partitions(_BATCH):
            yield pa.Table.from_arrays([pa.array(column) for column in zip(*rows, strict=True)], names=names)

    def fingerprint(self, address: TableAddress) -> str:
        if WATERMARK not in address.options:
            return ""
        row = self._connection.execute(self._text(_watermark(address))).one()
        return _joined([self._engine.url.render_as_string(hide_password=True), *row])

    def close(self) -> None:
        self._connection.close()
        self._engine.dispose()


def _literal(address: TableAddress) -> str:
    """The table's name as the content of a string of SQL."""
    return quoted(address.options[TABLE]).replace("'", "''")


def _watermark(address: TableAddress) -> str:
    return address.select(f"count(*), max({quoted(address.options[WATERMARK])})")


def _joined(parts: list[Any]) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def _file(address: TableAddress) -> Path:
    path = Path(address.path).expanduser().absolute()
    if not path.is_file():
        remedy = f"Write four slashes before an absolute path: {address.scheme}:////data/graph.db"
        raise UserError("no such file", where=address.shown, value=str(path), remedy=remedy)
    return path


def _file_state(path: Path) -> str:
    """State of the file and of the log of writes that are not in it yet; empty if one was written just now."""
    states = [Location.of(f"{path}{suffix}").state() for suffix in ("", "-wal", ".wal")]
    if any(state is not None and state.changed_ns > time.time_ns() - FRESH_S * 1e9 for state in states):
        return ""
    return _joined([path, *(state.exact if state else "" for state in states)])
