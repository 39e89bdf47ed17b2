"""Tables of results in other places: in PostgreSQL, where rows are replaced by their key, or as files.

| address | result |
| --- | --- |
| `postgresql://…?table=NAME` | rows are inserted or updated, in one transaction; the table is made if there is none |
| `…&key=COLUMN` | by which rows are updated; the first column by default |
| `…&mode=replace` | rows of earlier results that this one lacks are deleted |
| `folder/name.parquet`, `s3://bucket/name.parquet` | a file |
| `folder/name.lance`, `s3://bucket/name.lance` | the table `name` of the LanceDB database `folder`, in a new version |
| `folder/name.faiss` | a folder: `index.faiss` with the vectors, `rows.parquet` with the other columns |

Lists of numbers are of pgvector's type `vector` where a new table's database has that extension, else `real[]`.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from superworkflow.infra.base.errors import SuperworkflowError, UserError
from superworkflow.infra.base.extras import needs_package
from superworkflow.infra.base.masking import masked
from superworkflow.infra.storage.content_files import write_parquet
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.replacement import check_replaceable, replacing
from superworkflow.infra.storage.warehouse.address import KEY, MODE, TABLE, TableAddress, identifier, quoted
from superworkflow.infra.storage.warehouse.databases import connect_postgres, refusal

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_STAGING = "superworkflow_result"
_LIBRARIES = {".parquet": "pyarrow", ".lance": "lancedb", ".faiss": "faiss"}
"""Package that writes files, by their ending."""
_FILES: dict[str, tuple[str, ...]] = {".parquet": (), ".faiss": ("index.faiss", "rows.parquet")}
"""Names of all files that a folder may have which one of these replaces."""
_REMEDY = "Give postgresql://…?table=NAME, or a path or URI that ends in .parquet, .lance or .faiss"
_MODES = ("upsert", "replace")


def check_sink(text: str) -> None:
    """Refuse an address to which no table can be written; neither a database nor a bucket is asked.

    Raises:
        UserError: what else it is.
    """
    address = TableAddress.parse(text)
    if address is None:
        ending = _ending(text)
        library = _LIBRARIES.get(ending)
        if library is None:
            raise UserError("no place for a table", where=masked(text), remedy=_REMEDY)
        if importlib.util.find_spec(library) is None:
            raise needs_package(library, where=masked(text))
        target = Location.of(text)
        if target.local_path is not None and ending in _FILES:
            check_replaceable(target, _FILES[ending])
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
    if address is not None:
        return _to_postgres(tables, address)
    write = {".parquet": _to_parquet, ".lance": _to_lance, ".faiss": _to_faiss}[_ending(text)]
    return write(tables, Location.of(text))


def _ending(text: str) -> str:
    return PurePosixPath(text).suffix


def _to_parquet(tables: Iterable[pa.Table], target: Location) -> int:
    with replacing(target, _FILES[".parquet"]) as path:
        return write_parquet(tables, path, store_schema=True)


def _to_lance(tables: Iterable[pa.Table], target: Location) -> int:
    """Write a new version of a table; programs keep the one that they have open, and after a week it is deleted."""
    import pyarrow as pa

    pieces = _with_vectors(tables, target)
    first = next(pieces)
    rest, name, vectors = first
    schema = rest.schema.append(pa.field(name, pa.list_(pa.float32(), vectors.shape[1])))

    def batches() -> Iterator[pa.RecordBatch]:
        for rest, name, vectors in chain([first], pieces):
            lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
            yield from rest.append_column(name, lists).to_batches()

    database, _, table = target.uri.removesuffix(".lance").rpartition("/")
    os.environ.setdefault("LANCEDB_LOG", "error")  # it warns of tables that are new
    options = {"allow_http": "true"} if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://") else None
    try:
        connection = importlib.import_module(_LIBRARIES[".lance"]).connect(database or "/", storage_options=options)
        written = connection.create_table(
            table, pa.RecordBatchReader.from_batches(schema, batches()), mode="overwrite"
        )  # fmt: skip
        written.optimize()
        return int(written.count_rows())
    except SuperworkflowError:
        raise
    except Exception as error:  # of the library
        words = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(f"cannot be written: {words}", where=target.uri,
                        remedy="Check the name, the credentials and the space") from error  # fmt: skip


def _to_faiss(tables: Iterable[pa.Table], target: Location) -> int:
    """Write an exact index of inner products, of vectors of length 1: row i of it is row i of the other file."""
    faiss = importlib.import_module(_LIBRARIES[".faiss"])
    index: Any = None

    def rows() -> Iterator[pa.Table]:
        nonlocal index
        for rest, _, vectors in _with_vectors(tables, target):
            index = index or faiss.IndexFlatIP(vectors.shape[1])
            faiss.normalize_L2(vectors)
            index.add(vectors)
            yield rest

    with replacing(target, _FILES[".faiss"]) as path:
        path.mkdir()
        vectors, others = (path / name for name in _FILES[".faiss"])
        count = write_parquet(rows(), others, store_schema=True)
        faiss.write_index(index, str(vectors))
        return count


def _with_vectors(tables: Iterable[pa.Table], target: Location) -> Iterator[tuple[pa.Table, str, NDArray[np.float32]]]:
    """Columns without vectors, the name of the one with them, and these: [rows, dimensions].

    Raises:
        UserError: there is not one such column, or there is no row.
    """
    import pyarrow.compute as pc

    widths: set[int | None] = set()
    for table in tables:
        names = [field.name for field in table.schema if _is_list_of_floats(field.type)]
        if len(names) != 1:
            raise UserError("the result has not one column of vectors", where=target.uri, value=", ".join(names),
                            remedy="Write it to a path that ends in .parquet")  # fmt: skip
        column = table[names[0]]
        lengths = {*pc.list_value_length(column).unique().to_pylist(), *widths}
        if len(lengths) > 1 or None in lengths:
            raise UserError("vectors have not one length", where=target.uri, value=names[0],
                            remedy="Write them to a path that ends in .parquet")  # fmt: skip
        widths = lengths
        if len(table):
            flat = [np.asarray(chunk.flatten(), dtype=np.float32) for chunk in column.chunks]
            yield table.drop_columns(names), names[0], np.concatenate(flat).reshape(len(table), -1)
    if not widths:
        raise UserError("the result has no row", where=target.uri)


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
        literal = name.replace("'", "''")
        if not _row(cursor, f"SELECT to_regclass('{literal}') IS NOT NULL")[0]:
            columns = ", ".join(_column(cursor, field) for field in schema)
            cursor.execute(f"CREATE TABLE {name} AS SELECT {columns} FROM {_STAGING} WITH NO DATA")
            cursor.execute(f"ALTER TABLE {name} ADD PRIMARY KEY ({identifier(key)})")
        listed = ", ".join(map(identifier, schema.names))
        others = [each for each in schema.names if each != key]
        change = ", ".join(f"{identifier(each)} = excluded.{identifier(each)}" for each in others)
        cursor.execute(
            f"INSERT INTO {name} ({listed}) SELECT {listed} FROM {_STAGING} ON CONFLICT ({identifier(key)}) "
            + (f"DO UPDATE SET {change}" if others else "DO NOTHING")
        )
        if address.options.get(MODE) == "replace":
            cursor.execute(
                f"DELETE FROM {name} AS kept WHERE NOT EXISTS (SELECT FROM {_STAGING} AS new"
                f" WHERE new.{identifier(key)} = kept.{identifier(key)})"
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
    name = identifier(field.name)
    if not _is_list_of_floats(field.type):
        return name
    if not _row(cursor, "SELECT count(*) FROM pg_extension WHERE extname = 'vector'")[0]:
        return name
    low, high = _row(cursor, f"SELECT min(cardinality({name})), max(cardinality({name})) FROM {_STAGING}")
    return f"{name}::vector({high}) AS {name}" if low == high else name


def _is_list_of_floats(kind: pa.DataType) -> bool:
    import pyarrow as pa

    is_list = pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(is_list and pa.types.is_floating(kind.value_type))


def _row(cursor: Any, statement: str) -> tuple[Any, ...]:
    cursor.execute(statement)
    return tuple(cursor.fetchone())
