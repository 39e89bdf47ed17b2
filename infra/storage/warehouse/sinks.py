"""Tables of results in other places: in PostgreSQL, where rows are replaced by their key, or as one Parquet file.

| address | result |
| --- | --- |
| `postgresql://…?table=NAME` | rows are inserted or updated, in one transaction; the table is made if there is none |
| `…&key=COLUMN` | by which rows are updated; the first column by default |
| `…&mode=replace` | rows of earlier results that this one lacks are deleted |
| `folder/name.parquet`, `s3://bucket/name.parquet` | a file |

Lists of numbers are of pgvector's type `vector` where a new table's database has that extension, else `real[]`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from superworkflow.infra.base.errors import SuperworkflowError, UserError
from superworkflow.infra.base.masking import masked
from superworkflow.infra.storage.content_files import write_parquet
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.warehouse.address import KEY, MODE, TABLE, TableAddress, quoted
from superworkflow.infra.storage.warehouse.databases import connect_postgres, refusal

if TYPE_CHECKING:
    import pyarrow as pa

_STAGING = "superworkflow_result"
_REMEDY = "Give postgresql://…?table=NAME, or a path or URI that ends in .parquet"
_MODES = ("upsert", "replace")


def check_sink(text: str) -> None:
    """Refuse an address to which no table can be written; a database is not asked.

    Raises:
        UserError: what else it is.
    """
    address = TableAddress.parse(text)
    if address is None:
        if not text.endswith(".parquet"):
            raise UserError("no place for a table", where=masked(text), remedy=_REMEDY)
        Location.of(text)
        return
    if address.scheme not in ("postgresql", "postgres") or TABLE not in address.options:
        raise UserError("results are written to tables of PostgreSQL and Parquet files", where=address.shown,
                        remedy=_REMEDY)  # fmt: skip
    if (mode := address.options.get(MODE, _MODES[0])) not in _MODES:
        raise UserError("no such mode", where=address.shown, value=mode, remedy=f"Give {' or '.join(_MODES)}")


def write_table(tables: Iterable[pa.Table], text: str) -> int:
    """Write tables of one schema to an address; the number of rows.

    Raises:
        UserError: it cannot be written; nothing has been.
    """
    check_sink(text)
    address = TableAddress.parse(text)
    return _to_file(tables, Location.of(text)) if address is None else _to_postgres(tables, address)


def _to_file(tables: Iterable[pa.Table], target: Location) -> int:
    final = target.local_path
    if final is not None:
        final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=final and final.parent) as scratch:
        path = Path(scratch) / target.name
        rows = write_parquet(tables, path, store_schema=True)
        if final is None:
            target.upload(path)
        else:
            path.replace(final)
    return rows


def _to_postgres(tables: Iterable[pa.Table], address: TableAddress) -> int:
    import pyarrow as pa

    pieces = iter(tables)
    first = next(pieces)
    schema = first.schema
    key = address.options.get(KEY, schema.names[0])
    if key not in schema.names:
        raise UserError("the result has no such column", where=address.shown, value=key,
                        remedy=f"Its columns are {', '.join(schema.names)}")  # fmt: skip

    def batches() -> Iterator[pa.RecordBatch]:
        yield from first.to_batches()
        for table in pieces:
            yield from table.to_batches()

    with _transaction(address) as cursor:
        rows = int(cursor.adbc_ingest(
            _STAGING, pa.RecordBatchReader.from_batches(schema, batches()), mode="create", temporary=True
        ))  # fmt: skip
        name = quoted(address.options[TABLE])
        if not _row(cursor, f"SELECT to_regclass('{_text(name)}') IS NOT NULL")[0]:
            columns = ", ".join(_column(cursor, field) for field in schema)
            cursor.execute(f"CREATE TABLE {name} AS SELECT {columns} FROM {_STAGING} WITH NO DATA")
            cursor.execute(f"ALTER TABLE {name} ADD PRIMARY KEY ({quoted_column(key)})")
        listed = ", ".join(map(quoted_column, schema.names))
        others = [each for each in schema.names if each != key]
        change = ", ".join(f"{quoted_column(each)} = excluded.{quoted_column(each)}" for each in others)
        cursor.execute(
            f"INSERT INTO {name} ({listed}) SELECT {listed} FROM {_STAGING} ON CONFLICT ({quoted_column(key)}) "
            + (f"DO UPDATE SET {change}" if others else "DO NOTHING")
        )
        if address.options.get(MODE) == "replace":
            cursor.execute(
                f"DELETE FROM {name} AS kept WHERE NOT EXISTS (SELECT FROM {_STAGING} AS new"
                f" WHERE new.{quoted_column(key)} = kept.{quoted_column(key)})"
            )
    return rows


@contextmanager
def _transaction(address: TableAddress) -> Iterator[Any]:
    """A cursor, all of whose statements are committed at the end, or none."""
    try:
        with connect_postgres(address) as connection:
            with connection.cursor() as cursor:
                yield cursor
            connection.commit()
    except SuperworkflowError:
        raise
    except Exception as error:  # of the driver
        raise refusal(address, error, "written") from None


def _column(cursor: Any, field: pa.Field) -> str:
    """A column of a new table; a list of numbers as a vector of as many dimensions, where there is such a type."""
    import pyarrow as pa

    name = quoted_column(field.name)
    is_list = pa.types.is_list(field.type) or pa.types.is_fixed_size_list(field.type)
    if not is_list or not pa.types.is_floating(field.type.value_type):
        return name
    if not _row(cursor, "SELECT count(*) FROM pg_extension WHERE extname = 'vector'")[0]:
        return name
    low, high = _row(cursor, f"SELECT min(cardinality({name})), max(cardinality({name})) FROM {_STAGING}")
    return f"{name}::vector({high}) AS {name}" if low == high else name


def _row(cursor: Any, statement: str) -> tuple[Any, ...]:
    cursor.execute(statement)
    return tuple(cursor.fetchone())


def _text(name: str) -> str:
    return name.replace("'", "''")


def quoted_column(name: str) -> str:
    """A column's name as an identifier of SQL."""
    return '"' + re.sub('"', '""', name) + '"'
