"""An edge list in Parquet: its columns by the schema, and the first rows as text."""

from __future__ import annotations

import shutil
import tempfile
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.edge_list.dialect import Dialect, ReadParams, no_rows
from superworkflow.tasks.lib.edge_list.edge_columns import ROW_NAMES, edge_columns

MAGIC = b"PAR1"
SAMPLE_ROWS = 1000
_PARQUET_BUFFER = 1 << 16
"""Bytes that are read at a time of a Parquet file's columns, of which only the first rows are wanted."""


def parquet_head(
    content: BinaryIO, params: ReadParams, gzipped: bool, where: str
) -> tuple[Dialect, list[list[str]], dict[int, str]]:
    """Read the schema and the first rows.

    Args:
        content: the file, unpacked.
        params: what the user said of it.
        gzipped: it was compressed.
        where: the file's name in errors.

    Returns:
        Its dialect; the first rows that have both ids, as text; the type of each column that is no number.

    Raises:
        UserError: not a Parquet file, no rows, no such column, or a column of ids that holds none.
    """
    with tempfile.TemporaryFile() as plain:
        if gzipped:
            shutil.copyfileobj(content, plain)
        try:
            file = pq.ParquetFile(plain if gzipped else content, buffer_size=_PARQUET_BUFFER)
        except Exception as error:  # pyarrow raises several kinds; its words say which
            raise UserError(
                f"not a Parquet file: {error}", where=where, remedy="Set index.format to the format of the file"
            ) from None
        names = tuple(file.schema_arrow.names)
        if len(names) < 2:
            raise UserError("the file has too few columns", where=where, value=", ".join(names),
                            remedy="It needs a source and a target")  # fmt: skip
        if not file.metadata.num_rows:
            raise no_rows(where)
        columns = edge_columns(params, names, [], where)
        for column in columns[:2]:
            kind = file.schema_arrow.field(column).type
            if isinstance(kind, pa.DictionaryType):
                kind = kind.value_type
            if not _is_id(kind):
                raise _no_ids(where, names[column], kind)
        for column in columns:
            if column >= 0 and names.count(names[column]) > 1:
                raise UserError(
                    "the file has several columns of the same name", where=where, value=names[column],
                    remedy="Give each column a name of its own",
                )  # fmt: skip
        timed = (params.time, params.from_time, params.until) != (None, None, None)
        rows = _parquet_sample(file, columns, timed)
        kinds = {
            number: str(field.type)
            for number, field in enumerate(file.schema_arrow)
            if not _is_number(field.type) and field.name.lower() not in ROW_NAMES
        }
    read = Dialect("parquet", gzipped=gzipped, columns=columns, names=names)
    return read, rows, kinds


def _parquet_sample(file: pq.ParquetFile, columns: tuple[int, int, int], timed: bool) -> list[list[str]]:
    """The first rows that have both ids, as text; columns other than ids, numbers and, if `timed`, dates are empty."""
    schema = file.schema_arrow
    names = schema.names
    numbers = [
        number
        for number, name in enumerate(names)
        if (_is_number(schema.field(number).type) or (timed and _is_date(schema.field(number).type)))
        and names.count(name) == 1
        and name.lower() not in ROW_NAMES
    ]
    sampled = {number: names[number] for number in {*numbers, *columns} - {-1}}
    try:
        batch = next(file.iter_batches(SAMPLE_ROWS, columns=list(sampled.values())), None)
        values = {number: _values(batch.column(name)) for number, name in sampled.items()} if batch else {}
    except (pa.ArrowException, OSError, ValueError):  # what is damaged is said when the rows are read
        return []
    rows = [[""] * len(names) for _ in range(batch.num_rows if batch else 0)]
    for number, column in values.items():
        for row, value in zip(rows, column, strict=True):
            row[number] = _text(value)
    return [row for row in rows if row[columns[0]] and row[columns[1]]]


def _values(column: pa.Array) -> list[object]:
    dated: list[object] = (column.cast(pa.string()) if pa.types.is_temporal(column.type) else column).to_pylist()
    return dated


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_date(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_temporal, pa.types.is_string, pa.types.is_large_string))


def _is_id(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view,
             pa.types.is_binary, pa.types.is_large_binary, pa.types.is_boolean, pa.types.is_null)  # fmt: skip
    return any(test(kind) for test in tests)


def _no_ids(where: str, name: str, kind: pa.DataType) -> UserError:
    how = "dropna().astype('int64')" if pa.types.is_floating(kind) else "astype(str)"
    return UserError(
        f"the column is of type {kind}: ids are text or whole numbers", where=where, value=name,
        remedy=f'Convert it: python -c "import pandas as pd; d = pd.read_parquet({where!r}); '
        f"d[{name!r}] = d[{name!r}].{how}; d.dropna(subset=[{name!r}]).to_parquet('edges.parquet')\"",
    )  # fmt: skip
