"""How an edge list file is written: found from its first bytes and what the parameters say."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pyarrow.parquet as pq

from infra.errors import UserError
from tasks.index import IndexParams

NUMBER = r"[ \t]*\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?[ \t]*"
"""How a weight may be written: for SQL and for the search for bad rows; the kernels take the same."""

SAMPLE_BYTES = 1 << 18
HEAD_BYTES = 2 * SAMPLE_BYTES
"""Bytes of a file that hold a sample of its text, also when that is compressed and did not get smaller."""
SAMPLE_ROWS = 1000

_SOURCES = ("source", "src", "from", "u", "node1", "node_1", "id1", "id_1", "head", "start", "tail_id", "source_id")
_TARGETS = ("target", "dst", "to", "v", "node2", "node_2", "id2", "id_2", "tail", "end", "head_id", "target_id")
_WEIGHTS = ("weight", "weights", "w")
_GZIP, _PARQUET, _BOM = b"\x1f\x8b", b"PAR1", b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Dialect:
    """How a file is written.

    Args:
        kind: csv, tsv, whitespace or parquet.
        separator: character between fields (csv, tsv).
        gzipped: the file is compressed.
        data_offset: bytes of the text before the first data row: byte order mark, comments at the top, header.
        skipped_lines: lines in those bytes.
        columns: number of the source, target and weight column from 0; -1 for no weights.
        names: column names of the header; empty when there is none.
        width: columns of the first row.
    """

    kind: Literal["csv", "tsv", "whitespace", "parquet"]
    separator: str = " "
    gzipped: bool = False
    data_offset: int = 0
    skipped_lines: int = 0
    columns: tuple[int, int, int] = (0, 1, -1)
    names: tuple[str, ...] = ()
    width: int = 2

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
            return line.replace("\t", " ").split()
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


def detect(path: str, params: IndexParams, where: str, whole: BinaryIO | None = None) -> Dialect:
    """Find how a file is written.

    Args:
        path: local file.
        params: what the user said of it.
        where: the file's name in errors.
        whole: the file itself, where `path` holds its beginning only (`HEAD_BYTES`).

    Raises:
        UserError: no rows, no such column, or a first row with fewer than two columns.
    """
    with open(path, "rb") as stream:
        magic = stream.read(4)
    gzipped = magic[:2] == _GZIP
    head = _head(path, gzipped, where)
    if params.format == "parquet" or (params.format == "auto" and head[:4] == _PARQUET):
        return _parquet(whole or path, params, gzipped, where)
    offset = len(_BOM) if head.startswith(_BOM) else 0
    lines = head[offset:].split(b"\n")
    if len(head) == SAMPLE_BYTES and len(lines) > 1:
        lines.pop()  # cut off
    skipped = 0
    while lines and (not lines[0].strip() or lines[0].lstrip()[:1] in (b"#", b"%")):
        offset += len(lines.pop(0)) + 1
        skipped += 1
    sample = [line.decode("utf-8", "replace").removesuffix("\r") for line in lines if line.strip()][: SAMPLE_ROWS + 1]
    if not sample:
        raise _no_rows(where)
    kind, separator = _kind(params, sample[0], where)
    plain = Dialect(kind, separator, gzipped)  # type: ignore[arg-type]
    rows = [plain.fields(line) for line in sample]
    if kind == "whitespace":
        rows = [row for row in rows if row and row[0][0] not in "#%"]
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
        offset += len(lines[0]) + 1
        skipped += 1
    width = max(len(rows[0]), max(columns) + 1)
    return Dialect(kind, separator, gzipped, offset, skipped, columns, names, width)  # type: ignore[arg-type]


def _head(path: str, gzipped: bool, where: str) -> bytes:
    if not gzipped:
        with open(path, "rb") as stream:
            return stream.read(SAMPLE_BYTES)
    try:
        with gzip.open(path, "rb") as packed:
            return packed.read(SAMPLE_BYTES)
    except (EOFError, OSError, zlib.error) as error:
        raise broken_gzip(where, error) from None


def broken_gzip(where: str, error: Exception) -> UserError:
    """The error for a compressed file that ends early or is damaged."""
    return UserError(
        f"the file cannot be decompressed: {error}", where=where, remedy="Copy or download it again; gzip -t checks it"
    )


def _no_rows(where: str) -> UserError:
    return UserError("the file has no rows", where=where, remedy="Give a file with one edge in each row")


def _parquet(file_or_path: BinaryIO | str, params: IndexParams, gzipped: bool, where: str) -> Dialect:
    given: Any = file_or_path
    try:
        if gzipped:
            packed = Path(given).read_bytes() if isinstance(given, str) else given.read()
            given = io.BytesIO(gzip.decompress(packed))
        file = pq.ParquetFile(given)
    except Exception as error:  # pyarrow raises several kinds; its words say which
        raise UserError(
            f"not a Parquet file: {error}", where=where, remedy="Set index.format to how the file is written"
        ) from None
    names = tuple(file.schema_arrow.names)
    if len(names) < 2:
        raise UserError(
            "the file has too few columns", where=where, value=", ".join(names), remedy="It needs a source and a target"
        )
    if file.metadata.num_rows == 0:
        raise _no_rows(where)
    return Dialect("parquet", gzipped=gzipped, columns=_columns(params, names, [], where), names=names)


def _kind(params: IndexParams, line: str, where: str) -> tuple[str, str]:
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


def _columns(params: IndexParams, names: tuple[str, ...], rows: list[list[str]], where: str) -> tuple[int, int, int]:
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
