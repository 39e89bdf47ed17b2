"""Rows of an edge list as a Spark relation: executors read parts of the file, as the stage reads it in process."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from infra.filesystem import Location
from infra.scratch import Scratch
from tasks.index.source import Dialect

PART_BYTES = 64 << 20
"""Bytes of text that a task reads."""

_LOOK_AHEAD = 1 << 16
_BATCH_ROWS = 1 << 16
_READER_MEMORY = 256 << 20


@dataclass(frozen=True)
class Part:
    """What one task reads of a file.

    Args:
        first, last: of text, the lines that begin in these bytes; of Parquet, its row groups; both 0 for all.
    """

    first: int = 0
    last: int = 0


def parts_of(location: Location, dialect: Dialect) -> list[Part]:
    """How tasks share a file. What is compressed as a whole is read by one."""
    if dialect.gzipped:
        return [Part()]
    if dialect.kind == "parquet":
        with location.open() as stream:
            groups = pq.ParquetFile(stream).num_row_groups
        return [Part(group, group + 1) for group in range(groups)]
    size = location.size() or 0
    return [Part(at, min(at + PART_BYTES, size)) for at in range(dialect.data_offset, size, PART_BYTES)]


def rows_of(session: Any, uri: str, dialect: Dialect, parts: list[Part]) -> Any:
    """Relation of source, target (string) and weight (float) if weighted.

    A part that cannot be read gives one row of nulls, as does a csv part with quotes, whose lines may be no rows.
    """
    schema = "source string, target string" + (", weight float" if dialect.weighted else "")
    numbers = session.range(0, len(parts), 1, len(parts))
    return numbers.mapInArrow(partial(_read, uri, dialect, parts), schema)


def arrow_schema(weighted: bool) -> pa.Schema:
    """Of the rows."""
    ends = [("source", pa.string()), ("target", pa.string())]
    return pa.schema([*ends, ("weight", pa.float32())] if weighted else ends)


def _read(uri: str, dialect: Dialect, parts: list[Part], numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import duckdb

    schema = arrow_schema(dialect.weighted)
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            with Scratch("rows") as folder:
                try:
                    yield from _rows(Location.of(uri), dialect, parts[number], folder, schema)
                except duckdb.OutOfMemoryException:
                    raise
                except (duckdb.Error, NotRows):
                    yield pa.RecordBatch.from_pylist([dict.fromkeys(schema.names)], schema)


class NotRows(Exception):
    """Lines of the text may not be rows: a quoted field may hold line ends."""


def _rows(
    location: Location, dialect: Dialect, part: Part, folder: Path, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    from tasks.index import duck

    path = local_part(location, dialect, part, folder)
    if path is None:
        return
    if part != Part():
        dialect = replace(dialect, data_offset=0, skipped_lines=0)
    elif dialect.kind == "parquet":
        dialect = replace(dialect, gzipped=False)
    connection = duck.connect(_READER_MEMORY, 1, folder)
    try:
        for batch in connection.sql(duck.rows_query(str(path), dialect)).to_arrow_reader(_BATCH_ROWS):
            if batch.num_rows:
                yield batch.cast(schema)
    finally:
        connection.close()


def local_part(location: Location, dialect: Dialect, part: Part, folder: Path) -> Path | None:
    """A local file with one part; None when it has no rows.

    Raises:
        NotRows: a part of a csv file has quotes.
    """
    if part == Part():
        return whole_file(location, dialect, folder)
    path = folder / "rows"
    with location.open() as stream:
        if dialect.kind == "parquet":
            file = pq.ParquetFile(stream)
            columns = [dialect.names[column] for column in dialect.columns if column >= 0]
            groups = list(range(part.first, part.last))
            pq.write_table(file.read_row_groups(groups, columns, use_threads=False), path)  # a task has one core
            return path
        text = whole_lines(stream, part.first, part.last, dialect.data_offset)
    if dialect.kind == "csv" and b'"' in text:
        raise NotRows
    path.write_bytes(text)
    return path if text else None


def whole_file(location: Location, dialect: Dialect, folder: Path) -> Path:
    """A local copy of a file, or the file itself; a compressed Parquet file is uncompressed."""
    path = location.local_path
    if path is None:
        path = folder / "whole"
        location.download(path)
    if dialect.kind == "parquet" and dialect.gzipped:
        with gzip.open(path, "rb") as packed, (folder / "plain").open("wb") as plain:
            shutil.copyfileobj(packed, plain)
        path = folder / "plain"
    return path


def whole_lines(stream: BinaryIO, first: int, last: int, begin: int) -> bytes:
    """The lines that begin in bytes `first` to `last - 1` of a stream whose rows begin at `begin`."""
    at = first
    if first > begin:  # a line begins here only if the one before has ended
        stream.seek(first - 1)
        at = first - 1 + _line_bytes(stream, first - 1)
        if at >= last:
            return b""
    stream.seek(at)
    text = stream.read(last - at)
    if not text.endswith(b"\n"):
        stream.seek(last)
        rest = _line_bytes(stream, last)
        stream.seek(last)
        text += stream.read(rest)
    return text


def _line_bytes(stream: BinaryIO, at: int) -> int:
    """Bytes from `at`, where the stream stands, to the end of its line."""
    count = 0
    while chunk := stream.read(_LOOK_AHEAD):
        end = chunk.find(b"\n")
        if end >= 0:
            return count + end + 1
        count += len(chunk)
    return count
