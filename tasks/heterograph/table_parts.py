"""Parts of tables, which executors read by themselves.

A part is some row groups of a Parquet file, a range of bytes of another file, or a whole file: compressed files can
only be read from their beginning, and so can CSV files with quotes (`row_spans`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq

from superworkflow.infra.storage.digest import file_sha256
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.scratch import Scratch
from superworkflow.infra.storage.source import Source, changed
from superworkflow.tasks.heterograph.refusals import text_ids
from superworkflow.tasks.heterograph.row_spans import FileChunk, RowSpan, copy_span, pieces_of
from superworkflow.tasks.heterograph.tables import PARQUET, Table, TableBatch, batch_rows, read_parquet
from superworkflow.tasks.lib.in_parts.id_ranges import IdPart, Scanned

PART_BYTES = 64 << 20
"""Bytes of a file that a task reads, unless a row group is larger, or the file cannot be split."""


class TablePart(NamedTuple):
    """Rows of a table that one task reads.

    Args:
        number: of the part, among all parts of all tables.
        uri, bytes, sha256: of the file.
        groups: of a Parquet file, the first row group and the one after the last.
        span: of another one, bytes; without either the part is the whole file.
        row: number in the file of the row before the first.
    """

    number: int
    uri: str
    bytes: int
    sha256: str
    groups: tuple[int, int] | None = None
    span: RowSpan | None = None
    row: int = 0

    def batches(self, names: Sequence[str], width: int = 1) -> Iterator[TableBatch]:
        """Columns of all rows, as `Table.batches`.

        Raises:
            UserError: as there, or the file is not what it was when the run began.
        """
        location = Location.of(self.uri)
        if self.groups is not None:
            row = self.row + 1
            with location.open() as stream:
                groups = range(*self.groups)
                for columns in read_parquet(stream, self.uri, names, batch_rows(width), groups):
                    if len(columns[0]):
                        yield TableBatch(self.uri, row, columns, False)
                    row += len(columns[0])
            return
        with Scratch("table") as folder:
            table = Table(cast("Source", _OneFile(self)), location.name, folder, 1)
            for batch in table.batches(names, width):
                yield batch._replace(row=batch.row + self.row)
            table.close()

    def where(self, row: int) -> str:
        """The file and the number in it of a row of this part, for people."""
        return f"{self.uri}, row {self.row + 1 + row}"


class _Member(NamedTuple):
    location: Location


class _OneFile:
    """A part's file, as `Table` asks a source for it."""

    is_folder = False

    def __init__(self, part: TablePart):
        self._part, self._location, self._copy = part, Location.of(part.uri), Path()
        self.members: Mapping[str, _Member] = {self._location.name: _Member(self._location)}

    def files(self, name: str) -> list[str]:
        return [name]

    def local(self, scratch: Path, name: str) -> Path:
        """The file, or a copy of it, which is what was summed; or a copy of the part's bytes."""
        if self._part.span is not None:
            if self._copy == Path():
                self._copy = scratch / name
                self._copy_span(self._part.span)
            return self._copy
        if (there := self._location.local_path) is not None:
            return there
        if self._copy == Path():
            copy = scratch / name
            self._location.download(copy)
            if file_sha256(copy) != self._part.sha256:
                raise changed(self._location.uri, "while the stage read it")
            self._copy = copy
        return self._copy

    def _copy_span(self, span: RowSpan) -> None:
        changed_since = changed(self._location.uri, "while the stage read it")
        if self._location.size() != self._part.bytes:
            raise changed_since
        try:
            copy_span(self._location, span, self._copy)
        except EOFError:
            raise changed_since from None


def large_pieces(source: Source, tables: Iterable[str]) -> list[FileChunk]:
    """Pieces of tables to inspect before their files are split."""
    names = dict.fromkeys(name for table in tables for name in source.files(table))
    members = [source.members[name] for name in names]
    return [piece for each in members for piece in pieces_of(each.location, each.state.size, PART_BYTES)]


def parts_of(source: Source, table: str, first: int, spans: Mapping[str, Sequence[RowSpan]]) -> list[TablePart]:
    """The parts of a table, in the order of its rows.

    Args:
        source: that has it.
        table: its name.
        first: number of the first part.
        spans: by URI, of files that were looked at and are to be split.
    """
    parts: list[TablePart] = []
    for name in source.files(table):
        member = source.members[name]
        size, location = member.state.size, member.location
        whole = TablePart(0, location.uri, size, member.sha256)
        if found := spans.get(location.uri):
            parts += [whole._replace(span=span, row=span.row) for span in found]
        elif size:
            parts += [whole._replace(groups=groups, row=row) for groups, row in _pieces(location, size)]
    return [part._replace(number=first + index) for index, part in enumerate(parts)]


def _pieces(location: Location, size: int) -> list[tuple[tuple[int, int] | None, int]]:
    """Row groups of each part of a file, and the rows before them."""
    with location.open() as stream:
        if stream.read(len(PARQUET)) != PARQUET or size <= PART_BYTES:
            return [(None, 0)]
        stream.seek(0)
        try:
            metadata = pq.read_metadata(stream)
        except (pa.ArrowException, OSError):
            return [(None, 0)]  # who reads it says what is wrong
    pieces: list[tuple[tuple[int, int] | None, int]] = []
    begin = row = rows = taken = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        rows, taken = rows + group.num_rows, taken + sum(
            group.column(column).total_compressed_size for column in range(group.num_columns)
        )  # fmt: skip
        if taken >= PART_BYTES or number + 1 == metadata.num_row_groups:
            pieces.append(((begin, number + 1), row))
            begin, row, rows, taken = number + 1, row + rows, 0, 0
    return pieces


@dataclass(frozen=True)
class Scan(IdPart):
    """Columns of ids of one part, to be read."""

    part: TablePart
    columns: tuple[str, ...]


def scan(item: Scan) -> Scanned:
    """Read the ids of a part.

    Raises:
        UserError: the table cannot be read, or an id is none; names file and row.
    """
    batches = item.part.batches(item.columns)
    return item.leave(
        ([ids.cast(pa.large_string()) for ids in text_ids(batch)] for batch in batches), len(item.columns)
    )
