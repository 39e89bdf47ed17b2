"""Detection of an edge list's format, from its first bytes and the parameters."""

from __future__ import annotations

import csv
import shutil
import tempfile
from dataclasses import dataclass
from typing import BinaryIO, Literal, Protocol

import pyarrow.parquet as pq

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.text_file import numbered_lines, unpacked

NUMBER = r"[ \t]*\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?[ \t]*"
"""Pattern of a weight, for SQL and for the search for bad rows; the kernels accept the same."""

SAMPLE_BYTES = 1 << 18
SAMPLE_ROWS = 1000

_SOURCES = ("source", "src", "from", "u", "node1", "node_1", "id1", "id_1", "head", "start", "tail_id", "source_id")
_TARGETS = ("target", "dst", "to", "v", "node2", "node_2", "id2", "id_2", "tail", "end", "head_id", "target_id")
_WEIGHTS = ("weight", "weights", "w")
_PARQUET, _BOM = b"PAR1", b"\xef\xbb\xbf"


class ReadParams(Protocol):
    """Parameters that say how an edge list is read; see the fields of the stage `index`."""

    @property
    def format(self) -> str: ...
    @property
    def delimiter(self) -> str | None: ...
    @property
    def header(self) -> bool | str: ...
    @property
    def source(self) -> str | None: ...
    @property
    def target(self) -> str | None: ...
    @property
    def weight(self) -> str | None: ...
    @property
    def weighted(self) -> bool | str: ...


@dataclass(frozen=True)
class Dialect:
    """Dialect of an edge list file.

    Args:
        kind: csv, tsv, whitespace or parquet.
        separator: character between fields (csv, tsv).
        gzipped: the file is compressed.
        data_offset: bytes of the text before the first data row: byte order mark, comments at the top, header.
        skipped_lines: lines in those bytes.
        columns: number of the source, target and weight column from 0; -1 for no weights.
        names: column names of the header; empty when there is none.
    """

    kind: Literal["csv", "tsv", "whitespace", "parquet"]
    separator: str = " "
    gzipped: bool = False
    data_offset: int = 0
    skipped_lines: int = 0
    columns: tuple[int, int, int] = (0, 1, -1)
    names: tuple[str, ...] = ()

    @property
    def weighted(self) -> bool:
        return self.columns[2] >= 0

    @property
    def min_columns(self) -> int:
        """Columns that every row must have."""
        return max(self.columns) + 1

    def fields(self, line: str) -> list[str]:
        """The fields of one line (of a csv file: without quoted line ends)."""
        if self.kind == "whitespace":
            return [field for field in line.replace("\t", " ").split(" ") if field]
        if self.kind == "tsv" or '"' not in line:
            return line.split(self.separator)
        return next(csv.reader([line], delimiter=self.separator), [])

    def describe(self) -> str:
        """One line for the log."""
        names = ("first", "second", "third")
        shown = [
            self.names[column] if self.names else names[column] if column < 3 else f"{column + 1}th"
            for column in self.columns
            if column >= 0
        ]
        header = "with header" if self.names else "no header"
        roles = ", ".join(f"{role} = {name}" for role, name in zip(("source", "target", "weight"), shown, strict=False))
        packed = ", gzipped" if self.gzipped else ""
        return f"reading {self.kind}{packed}, {header}; {roles}"


def detect(stream: BinaryIO, params: ReadParams, where: str) -> Dialect:
    """Find how a file is written; of text, only its beginning is read.

    Args:
        stream: the file, which can go to any place.
        params: what the user said of it.
        where: the file's name in errors.

    Raises:
        UserError: no rows, no such column, or a first row with fewer than two columns.
    """
    text, gzipped = unpacked(stream, where)
    magic = text.read(len(_PARQUET))
    text, _ = unpacked(stream, where)
    if params.format == "parquet" or (params.format == "auto" and magic == _PARQUET):
        return _parquet(text, params, gzipped, where)
    lines, sizes, offset, skipped, whole = _first_lines(text, where)
    if not lines:
        raise _no_rows(where)
    sample = [line for line in lines if line.strip()]
    if "\r" in sample[0]:
        raise lone_return_in(f"{where}, line {skipped + 1}", sample[0])
    kind, separator = _kind(params, sample[0], where)
    plain = Dialect(kind, separator, gzipped)  # type: ignore[arg-type]
    rows, first_lines = _rows(plain, lines, whole)
    named = any((params.source, params.target, params.weight))
    header = params.header if params.header != "auto" else named or _is_header(rows)
    if named and not header:
        raise UserError(
            "columns are named, but the file is said to have no header", where="index.header", value=False,
            remedy="Drop index.header, or index.source, index.target and index.weight",
        )  # fmt: skip
    names = tuple(name.strip() for name in rows[0]) if header else ()
    if len(rows[0]) < 2:
        remedy = "Each row needs a source and a target; set index.format or index.delimiter to what sets them apart"
        raise UserError(
            "the row has too few columns", where=f"{where}, line {skipped + 1}", value=sample[0], remedy=remedy
        )
    columns = _columns(params, names, rows, where)
    if header:
        if whole and len(rows) == 1:
            raise _no_rows(where)
        offset += sum(sizes[:first_lines])
        skipped += first_lines
    return Dialect(kind, separator, gzipped, offset, skipped, columns, names)  # type: ignore[arg-type]


def _first_lines(text: BinaryIO, where: str) -> tuple[list[str], list[int], int, int, bool]:
    """The first lines of data, without what ends them.

    Returns:
        The lines and the bytes of each with its end; bytes and lines before them; whether these are all there are.
    """
    lines: list[str] = []
    sizes: list[int] = []
    offset = skipped = read = rows = 0
    for number, line in numbered_lines(text, where):
        data = line.removeprefix(_BOM) if number == 1 else line
        read += len(line)
        if not lines and (not data.strip() or data.lstrip()[:1] in (b"#", b"%")):
            offset, skipped = read, number
            continue
        if not lines:
            offset = read - len(data)
        elif rows > SAMPLE_ROWS or read > (SAMPLE_BYTES if offset < SAMPLE_BYTES else offset + SAMPLE_BYTES):
            return lines, sizes, offset, skipped, False
        lines.append(data.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace"))
        sizes.append(len(data))
        rows += bool(data.strip())
    return lines, sizes, offset, skipped, True


def _rows(dialect: Dialect, lines: list[str], whole: bool) -> tuple[list[list[str]], int]:
    """The fields of the first rows, and how many lines the first row has."""
    if dialect.kind == "csv" and any('"' in line for line in lines):
        reader = csv.reader((line + "\n" for line in lines), delimiter=dialect.separator)
        rows, first_lines = [], 0
        try:
            for row in reader:
                first_lines = first_lines or reader.line_num
                rows += [row] if row else []
        except csv.Error as error:  # what is wrong where is said when the rows are read
            rows = rows or [[str(error)]]
        return rows[:-1] if len(rows) > 1 and not whole else rows, first_lines or 1
    rows = [dialect.fields(line) for line in lines if line.strip()]
    if dialect.kind == "whitespace":
        rows = [row for row in rows if row and row[0][0] not in "#%"]
    return rows, 1


def lone_return_in(place: str, line: str) -> UserError:
    """The error for a carriage return that ends no line."""
    return UserError(
        "the line has a carriage return before its end", where=place, value=line[:200],
        remedy="End lines in a newline, for example with tr '\\r' '\\n', or quote the field in a csv file",
    )  # fmt: skip


def _no_rows(where: str) -> UserError:
    return UserError("the file has no rows", where=where, remedy="Give a file with one edge in each row")


def _parquet(content: BinaryIO, params: ReadParams, gzipped: bool, where: str) -> Dialect:
    with tempfile.TemporaryFile() as plain:
        if gzipped:
            shutil.copyfileobj(content, plain)
        try:
            file = pq.ParquetFile(plain if gzipped else content)
        except Exception as error:  # pyarrow raises several kinds; its words say which
            raise UserError(
                f"not a Parquet file: {error}", where=where, remedy="Set index.format to the format of the file"
            ) from None
        names, rows = tuple(file.schema_arrow.names), file.metadata.num_rows
    if len(names) < 2:
        raise UserError(
            "the file has too few columns", where=where, value=", ".join(names), remedy="It needs a source and a target"
        )
    if not rows:
        raise _no_rows(where)
    columns = _columns(params, names, [], where)
    for column in columns:
        if column >= 0 and names.count(names[column]) > 1:
            raise UserError(
                "the file has several columns of the same name", where=where, value=names[column],
                remedy="Give each column a name of its own",
            )  # fmt: skip
    return Dialect("parquet", gzipped=gzipped, columns=columns, names=names)


def _kind(params: ReadParams, line: str, where: str) -> tuple[str, str]:
    """Format and separator, from the parameters or the first data row."""
    if params.delimiter is not None:
        if params.format not in ("auto", "csv"):
            raise UserError(
                "only csv files take a delimiter", where="index.delimiter", value=params.delimiter,
                remedy="Drop it or set index.format to csv",
            )  # fmt: skip
        return "csv", params.delimiter
    name = where.lower().removesuffix(".gz")
    if params.format == "csv" or (params.format == "auto" and name.endswith(".csv")):
        return "csv", next((mark for mark in (",", ";", "\t", "|") if mark in line), ",")
    if params.format != "auto":
        return params.format, "\t" if params.format == "tsv" else " "
    if any(field != field.strip() or not field for field in line.split("\t")[:2]):
        return "whitespace", " "  # tabs mixed with blanks
    for mark, kind in (("\t", "tsv"), (",", "csv"), (";", "csv")):
        if mark in line:
            return kind, mark
    return "whitespace", " "


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _is_header(rows: list[list[str]]) -> bool:
    first = [field.strip().lower() for field in rows[0]]
    if any(name in _SOURCES for name in first) and any(name in _TARGETS for name in first):
        return True
    rest = [row for row in rows[1:] if len(row) == len(first)]
    return (
        bool(rest)
        and any(
            not _is_number(first[column]) and first[column] and all(_is_number(row[column]) for row in rest)
            for column in range(min(3, len(first)))
        )
        and not any(_is_number(field) for field in first[:2])
    )


def _columns(params: ReadParams, names: tuple[str, ...], rows: list[list[str]], where: str) -> tuple[int, int, int]:
    """Numbers of the source, target and weight columns."""
    lower = [name.lower() for name in names]

    def place(parameter: str, wanted: str | None, usual: tuple[str, ...]) -> int | None:
        if wanted is not None:
            if wanted not in names:
                raise UserError(
                    f"the file has no such column; it has: {', '.join(names)}", where=f"{where}, index.{parameter}",
                    value=wanted, remedy=f"Set index.{parameter} to one of these",
                )  # fmt: skip
            return names.index(wanted)
        return next((lower.index(name) for name in usual if name in lower), None)

    source = place("source", params.source, _SOURCES)
    target = place("target", params.target, _TARGETS)
    weight = place("weight", params.weight, _WEIGHTS)
    if source is None or target is None or source == target:
        taken = {source if params.source else None, target if params.target else None, weight}
        free = [column for column in range(max(3, len(names))) if column not in taken]
        source = source if params.source and source is not None else free.pop(0)
        target = target if params.target and target is not None else free.pop(0)
    if params.weighted is False:
        weight = None
    elif weight is None and params.weighted is True:
        weight = next(column for column in range(3) if column not in (source, target))
    elif weight is None and not names and rows and all(len(row) == 3 and _is_number(row[2]) for row in rows):
        weight = 2
    if len({source, target, weight}) < 3:
        raise UserError(
            "one column is used twice", where="index.source, index.target, index.weight",
            value=(params.source, params.target, params.weight), remedy="Name three different columns",
        )  # fmt: skip
    return source, target, -1 if weight is None else weight
