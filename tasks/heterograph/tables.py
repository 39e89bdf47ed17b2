"""The tables of a graph, read in batches of rows in the order of their files: CSV, TSV, Parquet and TFRecord."""

from __future__ import annotations

import csv
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.part_files import partition_values
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.text_file import GZIP, LINE_BYTES, open_unpacked
from superworkflow.tasks.heterograph.values import BadValue
from superworkflow.tasks.lib.formats.arrow import is_damage
from superworkflow.tasks.lib.formats.text_header import separator_of

BATCH_ROWS = 1 << 17
BATCH_VALUES = 1 << 20
_SQL_BYTES, _COLUMN_BYTES = 256 << 20, 160 << 10
"""Memory that DuckDB may take for text: so much, and in each thread so much for each column."""
_IDS = {"id": "#id", "source": "#source", "target": "#target"}
_TFRECORD = re.compile(r"[_.-]tfrecords?|\btfr\b")
_CSV = re.compile(r"[_.-][ct]sv\b")
PARQUET = b"PAR1"


_Reader = Callable[[Path, str, Sequence[str], int], Iterator[list[pa.Array]]]


class TableBatch(NamedTuple):
    """Rows of a table.

    Args:
        where: the file, for people.
        row: number of the first one in the file, from 1 on.
        columns: Arrow arrays [rows].
        text: they are fields of a CSV file.
    """

    where: str
    row: int
    columns: list[pa.Array]
    text: bool

    def fault(self, error: BadValue, remedy: str = "Correct the table, or the schema") -> UserError:
        """The error for a value in this batch."""
        return UserError(
            error.what, where=f"{self.where}, row {self.row + error.row}", value=error.value, remedy=remedy
        )


class Table:
    """A table, which lies in one file or several.

    Args:
        source: that has them.
        name: of the table, as sources name it.
        scratch: folder for copies of remote and of gzipped files.
        threads: that read text.
    """

    def __init__(self, source: Source, name: str, scratch: Path, threads: int):
        self._source, self._scratch, self._threads = source, scratch, threads
        self.files = source.files(name)
        self._unpacked: dict[str, Path] = {}

    def batches(self, names: Sequence[str], width: int = 1) -> Iterator[TableBatch]:
        """Columns of all rows.

        Args:
            names: of columns; `id`, `source` and `target` with or without `#`.
            width: values that a row has about, for the size of batches.

        Raises:
            UserError: a file cannot be read, or has no such column.
        """
        rows = batch_rows(width)
        for file in self.files:
            path = self._source.local(self._scratch, file)
            where = self._source.members[file].location.uri
            if path.stat().st_size == 0:
                continue  # an empty shard
            readers: dict[str, _Reader] = {"csv": self._csv, "parquet": read_parquet, "tfrecord": self._tfrecord}
            with path.open("rb") as stream:
                magic = stream.read(len(PARQUET))
            read = readers[format_of(magic, where)]
            constant = partition_values(file) if self._source.is_folder else {}
            if constant:
                have = names_in(path, where)
                constant = {name: value for name, value in constant.items() if name not in have}
            wanted = [name for name in names if name not in constant]
            first = 1
            for columns in read(path, where, wanted or have[:1], rows):
                if constant:
                    there, count = iter(columns), len(columns[0])
                    columns = [_repeated(constant[name], count) if name in constant else next(there) for name in names]
                if len(columns[0]):
                    yield TableBatch(where, first, columns, read == self._csv)
                first += len(columns[0])

    def _csv(self, path: Path, where: str, names: Sequence[str], rows: int) -> Iterator[list[pa.Array]]:
        import duckdb  # tables of other formats do without

        from superworkflow.tasks.lib.edge_list.duckdb_reader import connect, path_literal

        path = self._plain_text(path, where)
        with path.open(encoding="utf-8-sig", newline="") as stream:
            csv.field_size_limit(LINE_BYTES)
            try:
                separator = separator_of(stream.readline(), where)
                stream.seek(0)
                header = next(csv.reader(stream, delimiter=separator, strict=True), [])
            except (csv.Error, UnicodeDecodeError) as error:
                remedy = "Give CSV in UTF-8 whose first row has the columns' names"
                raise UserError(f"the header cannot be read: {error}", where=where, remedy=remedy) from None
        chosen = ", ".join(f"c{_place(header, name, where)}" for name in names)
        kinds = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(len(header)))
        dialect = "header = true, auto_detect = false, compression = 'none', quote = '\"', escape = '\"'"
        query = (
            f"SELECT {chosen} FROM read_csv({path_literal(str(path))}, columns = {{{kinds}}}, {dialect}, "
            f"delim = '{separator}', nullstr = '', hive_partitioning = false)"
        )
        threads = max(1, min(self._threads, _SQL_BYTES // (len(header) * _COLUMN_BYTES)))
        with connect(_SQL_BYTES + threads * len(header) * _COLUMN_BYTES, threads, self._scratch) as connection:
            try:
                for batch in connection.sql(query).to_arrow_reader(rows):
                    yield batch.columns
            except (duckdb.Error, pa.ArrowException, OSError) as error:  # later batches come through Arrow
                raise UserError(
                    f"the table cannot be read: {' '.join(str(error).split())[:400]}", where=where,
                    remedy="Give CSV with as many fields in each row as in the header, and closed quotes",
                ) from None  # fmt: skip

    def _tfrecord(self, path: Path, where: str, names: Sequence[str], rows: int) -> Iterator[list[pa.Array]]:
        from superworkflow.tasks.lib.formats.tfrecord import read_examples

        wanted = [each for name in names for each in spellings(name)]
        table = read_examples(path, wanted)
        columns = []
        for name in names:
            given = next((each for each in spellings(name) if table[each].null_count < len(table[each])), None)
            if given is None and table.num_rows and name in _IDS:
                raise _no_column(name, where, [])
            columns.append(table[given or name])
        for start in range(0, table.num_rows, rows):
            yield [column.slice(start, rows).combine_chunks() for column in columns]

    def _plain_text(self, path: Path, where: str) -> Path:
        """The file, or where it is gzipped its content, within the limits for that."""
        with path.open("rb") as stream:
            if stream.read(len(GZIP)) != GZIP:
                return path
        if where not in self._unpacked:
            copy = self._scratch / f"unpacked-{uuid.uuid4().hex}.csv"
            with open_unpacked(path, where) as text, copy.open("wb") as out:
                shutil.copyfileobj(text, out, 1 << 20)
            self._unpacked[where] = copy
        return self._unpacked[where]

    def close(self) -> None:
        """Remove what was unpacked."""
        for path in self._unpacked.values():
            path.unlink(missing_ok=True)
        self._unpacked.clear()


def names_in(path: Path, where: str) -> list[str]:
    """Names of the columns of Parquet or CSV.

    Raises:
        UserError: they cannot be read.
    """
    with path.open("rb") as stream:
        is_parquet = stream.read(len(PARQUET)) == PARQUET
    try:
        if is_parquet:
            return list(pq.read_schema(path).names)
        csv.field_size_limit(LINE_BYTES)
        with open_unpacked(path, where) as stream:
            line = stream.readline(LINE_BYTES).decode("utf-8-sig")
        fields = next(csv.reader([line], delimiter=separator_of(line, where), strict=True), [""])
        return [name.strip() for name in fields]
    except (pa.ArrowException, csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"the names of the columns cannot be read: {error}", where=where,
                        remedy="Give Parquet, or CSV in UTF-8 with a header") from None  # fmt: skip


def _repeated(value: str, rows: int) -> pa.Array:
    """A column that the name of a folder holds."""
    return pa.repeat(pa.scalar(value or None, pa.string()), rows)


def read_parquet(
    file: Path | BinaryIO, where: str, names: Sequence[str], rows: int, groups: Sequence[int] | None = None
) -> Iterator[list[pa.Array]]:
    """Columns of a Parquet file, or of some of its row groups, in batches of up to `rows` rows.

    Raises:
        UserError: it cannot be read, or has no such column.
    """
    try:
        with pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False) as opened:
            have = opened.schema_arrow.names
            columns = [have[_place(have, name, where)] for name in names]
            chosen = list(dict.fromkeys(columns))
            for batch in opened.iter_batches(rows, row_groups=groups, columns=chosen, use_threads=False):
                yield [batch.column(column) for column in columns]
    except (pa.ArrowException, OSError, KeyError) as error:
        if not (is_damage(error) or isinstance(error, KeyError)):
            raise
        raise UserError(f"the table cannot be read: {error}", where=where,
                        remedy="Write the file again; it is damaged, or no Parquet") from None  # fmt: skip


def batch_rows(width: int) -> int:
    """Rows of a batch, if a row has about `width` values."""
    return max(256, min(BATCH_ROWS, BATCH_VALUES // max(width, 1)))


def spellings(name: str) -> list[str]:
    """Names that a column may have: ids with or without `#`."""
    bare = name.removeprefix("#")
    return list(dict.fromkeys([name, _IDS[bare], bare])) if bare in _IDS else [name]


def _place(have: Sequence[str], name: str, where: str) -> int:
    for each in spellings(name):
        if list(have).count(each) > 1:
            raise UserError("several columns have this name", where=where, value=each, remedy="Rename all but one")
        if each in have:
            return list(have).index(each)
    raise _no_column(name, where, have)


def _no_column(name: str, where: str, have: Sequence[str]) -> UserError:
    remedy = f"It has: {', '.join(have)}" if have else "Write it into each record"
    return UserError("the table has no such column", where=where, value=name, remedy=remedy[:1000])


def format_of(magic: bytes, where: str) -> str:
    """Format of a file, by its first bytes and its name: `parquet`, `tfrecord` or `csv`.

    Raises:
        UserError: neither shows it.
    """
    if magic == PARQUET:
        return "parquet"
    name = where.rpartition("/")[2].lower()
    if _TFRECORD.search(name):
        return "tfrecord"
    if _CSV.search(name):
        return "csv"
    raise UserError(
        "the format of a table is not clear from its name", where=where, value=name,
        remedy="Name it so that .csv, .tsv, .tfrecord or .parquet is in its name",
    )  # fmt: skip
