"""Rows of an edge list in parts: tasks read parts of its files, as the stage reads them in process."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.scratch import Scratch
from superworkflow.infra.storage.text_file import LINE_BYTES, open_unpacked
from superworkflow.tasks.lib.edge_list.dialect import Dialect
from superworkflow.tasks.lib.edge_list.text_rows import BadRow, open_rows, text_rows
from superworkflow.tasks.lib.formats.arrow import is_damage
from superworkflow.tasks.lib.in_parts.id_ranges import IdPart

PART_BYTES = 64 << 20
"""Bytes of text that a task reads."""

_LOOK_AHEAD = 1 << 16
_READER_MEMORY = 256 << 20


@dataclass(frozen=True)
class FilePart:
    """Part of a file that one task reads.

    Args:
        first, last: of text, the lines that begin in these bytes; of Parquet, its row groups; both 0 for all.
        file: number of the file.
    """

    first: int = 0
    last: int = 0
    file: int = 0

    @property
    def is_whole(self) -> bool:
        return not self.last


def parts_of(location: Location, dialect: Dialect, file: int = 0) -> list[FilePart]:
    """Parts in which tasks share a file; one task reads a file that is compressed as a whole."""
    if dialect.gzipped:
        return [FilePart(file=file)]
    if dialect.kind == "parquet":
        with location.open() as stream:
            groups = pq.ParquetFile(stream).num_row_groups
        return [FilePart(group, group + 1, file) for group in range(groups)]
    size = location.size() or 0
    starts = range(dialect.data_offset, size, PART_BYTES)
    return [FilePart(start, min(start + PART_BYTES, size), file) for start in starts]


@dataclass(frozen=True)
class RowPart(IdPart):
    """Rows of one part: sources, targets, and the weights if there are any.

    Args:
        uri, dialect: of the file.
        part: of it.
    """

    uri: str
    dialect: Dialect
    part: FilePart

    @property
    def weights_name(self) -> str:
        """Name of the remaining file of weights."""
        return f"weights/{self.number:06d}"


class ScannedRows(NamedTuple):
    """Rows of a part that was read.

    Args:
        rows: how many, without those that were left out.
        dropped: rows that lack an id and were left out.
        bad: some row lacks an id or its weight, or the part cannot be read; the rest means nothing then.
        samples: of the ids.
    """

    rows: int
    dropped: int
    bad: bool
    samples: list[str]


def scan_rows(item: RowPart) -> ScannedRows:
    """Read the rows of a part and leave them."""
    read = _parquet_rows if item.dialect.kind == "parquet" else _text_rows
    weights, dropped = [np.zeros(0, np.float32)], 0

    def ends(folder: Path) -> Iterator[list[pa.Array]]:
        nonlocal dropped
        for columns in read(Location.of(item.uri), item.dialect, item.part, folder):
            if item.dialect.missing == "drop":
                there = pc.not_equal(columns[0], "")
                columns, dropped = [each.filter(there) for each in columns], dropped + pc.sum(pc.invert(there)).as_py()
            if any(each.null_count for each in columns) or any(
                pc.any(pc.equal(each, "")).as_py() for each in columns[:2]
            ):
                raise BadRow
            weights.extend(each.to_numpy() for each in columns[2:])
            yield [each.cast(pa.large_string()) for each in columns[:2]]

    with Scratch("rows") as folder:
        try:
            rows, samples = item.leave(ends(folder), 2)
        except BadRow:
            return ScannedRows(0, 0, True, [])
    if item.dialect.weighted:
        item.kept.write(item.weights_name, np.concatenate(weights))
    return ScannedRows(rows, dropped, False, [*samples[0], *samples[1]])


def _text_rows(location: Location, dialect: Dialect, part: FilePart, folder: Path) -> Iterator[list[Any]]:
    """Columns of source, target, and weight if there is one, in batches.

    Raises:
        BadRow: a row is bad, or a part of a csv file has quotes: its lines may be no rows.
    """
    if part.is_whole:
        with open_rows(str(whole_file(location, dialect, folder)), dialect, location.uri) as stream:
            for columns, weights in text_rows(stream, dialect):
                yield columns if weights is None else [*columns, pa.array(weights)]
        return
    with location.open() as stream:
        text = whole_lines(stream, part.first, part.last, dialect.data_offset)
    if dialect.kind == "csv" and b'"' in text:
        raise BadRow
    for columns, weights in text_rows(io.BytesIO(text), dialect):
        yield columns if weights is None else [*columns, pa.array(weights)]


def _parquet_rows(location: Location, dialect: Dialect, part: FilePart, folder: Path) -> Iterator[list[Any]]:
    """The same of a Parquet file.

    Raises:
        BadRow: a row is bad.
        UserError: the file is damaged.
    """
    import duckdb

    from superworkflow.tasks.lib.edge_list import duckdb_reader

    if part.is_whole:
        path, dialect = whole_file(location, dialect, folder), replace(dialect, gzipped=False)
    else:
        path = folder / "rows"
        chosen = dialect.chosen
        names = [dialect.names[column] for column in chosen]
        groups = list(range(part.first, part.last))
        try:
            with location.open() as stream:
                table = pq.ParquetFile(stream).read_row_groups(groups, names, use_threads=False)  # a task has one core
        except (pa.ArrowException, OSError) as error:
            if not is_damage(error):
                raise
            raise UserError(
                f"the file cannot be read: {error}", where=location.uri, remedy="Write it again; it is damaged"
            ) from None
        pq.write_table(table.select(names), path)
        places = tuple(chosen.index(column) if column >= 0 else -1 for column in dialect.columns)
        dialect = replace(dialect, columns=cast("tuple[int, int, int]", places), names=tuple(names))
        if dialect.times is not None and dialect.times.read:
            dialect = replace(dialect, times=replace(dialect.times, column=chosen.index(dialect.times.column)))
    connection = duckdb_reader.connect(_READER_MEMORY, 1, folder)
    try:
        for columns, weights in duckdb_reader.label_batches(connection, str(path), dialect):
            yield columns if weights is None else [*columns, pa.array(weights)]
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error:
        raise BadRow from None
    finally:
        connection.close()


def whole_file(location: Location, dialect: Dialect, folder: Path) -> Path:
    """A local copy of a file, or the file itself; a compressed Parquet file is uncompressed."""
    path = location.local_path
    if path is None:
        path = folder / "whole"
        location.download(path)
    if dialect.kind == "parquet" and dialect.gzipped:
        with open_unpacked(path, location.uri) as packed, (folder / "plain").open("wb") as plain:
            shutil.copyfileobj(packed, plain)
        path = folder / "plain"
    return path


def whole_lines(stream: BinaryIO, first: int, last: int, begin: int) -> bytes:
    """The lines that begin in bytes `first` to `last - 1` of a stream whose rows begin at `begin`.

    Raises:
        BadRow: a line is too long.
    """
    start = first
    if first > begin:  # a line begins here only if the one before has ended
        stream.seek(first - 1)
        start = first - 1 + _line_bytes(stream)
        if start >= last:
            return b""
    stream.seek(start)
    text = stream.read(last - start)
    if not text.endswith(b"\n"):
        stream.seek(last)
        rest = _line_bytes(stream)
        stream.seek(last)
        text += stream.read(rest)
    return text


def _line_bytes(stream: BinaryIO) -> int:
    """Bytes from where a stream stands to the end of its line."""
    count = 0
    while count <= LINE_BYTES and (chunk := stream.read(_LOOK_AHEAD)):
        end = chunk.find(b"\n")
        if end >= 0:
            return count + end + 1
        count += len(chunk)
    if count > LINE_BYTES:
        raise BadRow
    return count
