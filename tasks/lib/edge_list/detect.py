"""Detection of an edge list's format, from its first bytes and the parameters."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import BinaryIO

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.text_file import numbered_lines, unpacked
from superworkflow.tasks.lib.edge_list.bipartite import ID_SUFFIX, doubt_first_row, doubt_sides, sides_of
from superworkflow.tasks.lib.edge_list.dialect import Dialect, ReadParams, lone_return_in, no_rows
from superworkflow.tasks.lib.edge_list.doubts import doubts
from superworkflow.tasks.lib.edge_list.edge_columns import (
    SOURCES,
    TARGETS,
    USERS,
    column_number,
    edge_columns,
    relation_column,
    usual_name,
)
from superworkflow.tasks.lib.edge_list.edge_times import EdgeTimes, settle_times
from superworkflow.tasks.lib.edge_list.missing_ids import is_missing
from superworkflow.tasks.lib.edge_list.other_formats import (
    HEAD_BYTES,
    is_number,
    refuse_binary,
    refuse_separators,
    refuse_text,
)
from superworkflow.tasks.lib.edge_list.parquet_head import MAGIC, SAMPLE_ROWS, parquet_head
from superworkflow.tasks.lib.edge_list.row_shapes import refuse_shape, refuse_sizes
from superworkflow.tasks.lib.edge_list.sampled_rows import SampledRows
from superworkflow.tasks.lib.edge_list.text_documents import refuse_document

SAMPLE_BYTES = 1 << 18
_BOM = b"\xef\xbb\xbf"
_DATE = re.compile(r"\s*([0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{4})\b")


def detect(stream: BinaryIO, params: ReadParams, where: str, most: int = SAMPLE_ROWS) -> Dialect:
    """Find how a file is written; of text, only its beginning is read.

    Args:
        stream: the file, which can go to any place.
        params: what the user said of it.
        where: the file's name in errors.
        most: rows to look at.

    Raises:
        UserError: another format, no rows, no such column, or a first row with fewer than two columns.
    """
    text, gzipped = unpacked(stream, where)
    head = text.read(HEAD_BYTES)
    text, _ = unpacked(stream, where)
    if params.format == "parquet" or (params.format in ("auto", "triples") and head.startswith(MAGIC)):
        read, rows, kinds = parquet_head(text, params, gzipped, where)
        return _settled(read, rows, (), params, where, kinds)
    refuse_binary(head, where)
    comments: list[str] = []
    lines, sizes, offset, skipped, whole = _first_lines(text, where, comments, most)
    if not lines:
        raise no_rows(where)
    sample = [line for line in lines if line.strip()]
    is_open = params.format == "auto" and params.delimiter is None
    if is_open:
        refuse_text(head, comments, lines, where)
        refuse_document(lines, where)
    if "\r" in sample[0]:
        raise lone_return_in(f"{where}, line {skipped + 1}", sample[0])
    kind, separator = _kind(params, sample, where)
    plain = Dialect(kind, separator, gzipped)  # type: ignore[arg-type]
    rows, first_lines = _rows(plain, lines, whole)
    named = any(name and not name.isdecimal() for name in (params.source, params.target, params.weight, params.time))
    header = params.header if params.header != "auto" else named or _is_header(rows)
    if named and not header:
        raise UserError(
            "columns are named, but the file is said to have no header", where="index.header", value=False,
            remedy="Drop index.header, or index.source, index.target, index.weight and index.time",
        )  # fmt: skip
    names = tuple(name.strip() for name in rows[0]) if header else ()
    if is_open and not header:
        refuse_sizes(rows, whole, skipped + 1, where)
    if len(rows[0]) < 2:
        remedy = "Each row needs a source and a target; set index.format or index.delimiter to what sets them apart"
        if "::" in sample[0]:
            remedy = f"Convert it: sed 's/::/\\t/g' {where} > edges.tsv"
        raise UserError(
            "the row has too few columns", where=f"{where}, line {skipped + 1}", value=sample[0], remedy=remedy
        )
    data = rows[1:] if header else rows
    if is_open and _has_row_names(rows):
        raise _row_names(where, rows[1])
    if is_open:
        refuse_separators(data, separator, bool(header), where)
        if not any((params.source, params.target, params.weight, params.time)):
            refuse_shape(data, lines, whole, names, where)
    columns = edge_columns(params, names, rows, where)
    if header:
        if whole and len(rows) == 1:
            raise no_rows(where)
        offset += sum(sizes[:first_lines])
        skipped += first_lines
    if kind == "whitespace":
        comments += [line for line in lines if line.lstrip()[:1] in ("#", "%")]
    read = replace(plain, data_offset=offset, skipped_lines=skipped, columns=columns, names=names)
    return _settled(read, data, comments, params, where)


def _settled(
    dialect: Dialect,
    rows: Sequence[Sequence[str]],
    comments: Sequence[str],
    params: ReadParams,
    where: str,
    kinds: Mapping[int, str] = MappingProxyType({}),
) -> Dialect:
    """The dialect with what the parameters say of rows, the sides of a bipartite file, and the doubts."""
    doubted = params.missing == "auto"
    times = _times(params, dialect, rows, where)
    if times is not None and times.column == dialect.columns[2]:
        dialect = replace(dialect, columns=(*dialect.columns[:2], -1))
    first, second = (dialect.names[number] if dialect.names else "" for number in dialect.columns[:2])
    guessed = (
        len(dialect.names) > 2
        and not (params.source or params.target or params.format == "triples")
        and not (usual_name(first) in SOURCES and usual_name(second) in TARGETS)
        and not (ID_SUFFIX.search(first) and ID_SUFFIX.search(second))
        and not (params.bipartite is True and usual_name(first) in USERS)
    )
    used = [] if times is None else [times.column]
    if params.format == "triples":
        used.append(relation_column(dialect.names, dialect.columns))
    sample = SampledRows(rows, dialect.names, dialect.columns, dialect.kind, comments, where, doubted, guessed, kinds,
                         tuple(used))  # fmt: skip
    prefixes = params.source_prefix, params.target_prefix
    sides = sides_of(params.bipartite, prefixes, comments, (first, second))
    found = list(doubts(sample))
    if sides is None and params.bipartite == "auto":
        found += filter(None, [doubt_sides(sample)])
    if not dialect.names and params.header == "auto":
        found += filter(None, [doubt_first_row(rows, dialect.columns, where)])
    missing = "keep" if doubted else params.missing
    return replace(dialect, negative=params.negative, missing=missing, sides=sides, warnings=tuple(found), times=times)


def _times(params: ReadParams, dialect: Dialect, rows: Sequence[Sequence[str]], where: str) -> EdgeTimes | None:
    """The column of times, if a parameter asks for it.

    Raises:
        UserError: there is none, it is used as another one, or it holds no times.
    """
    bounds = params.from_time, params.until
    if params.time is None and bounds == (None, None):
        return None
    names, wanted = dialect.names, None
    if params.time not in (None, "auto"):
        wanted = column_number("time", str(params.time), names, len(names) or min(map(len, rows), default=0), where)
        weighs = wanted == dialect.columns[2] and (params.weight is not None or params.weighted is True)
        if wanted in dialect.columns[:2] or weighs:
            raise UserError("one column is used twice", where="index.time", value=params.time,
                            remedy="Name the column of times, which is neither an end nor the weight")  # fmt: skip
    return settle_times(wanted, bounds, names, rows, dialect.columns, where)


def _has_row_names(rows: list[list[str]]) -> bool:
    """True if the rows have one field more than the first one, which holds names."""
    names, rest = rows[0], rows[1:]
    return (
        len(rest) > 1
        and not any(is_number(name.strip('"')) for name in names)
        and all(len(row) == len(names) + 1 for row in rest)
    )


def _row_names(where: str, row: list[str]) -> UserError:
    return UserError(
        "the rows have one field more than the header, as R's write.table writes them: their first is the row's name",
        where=where, value=", ".join(row)[:200],
        remedy=f'Convert it: python -c "import pandas as pd; pd.read_csv({where!r}, sep=None, engine=\'python\')'
        ".to_csv('edges.csv', index=False)\"",
    )  # fmt: skip


def _first_lines(
    text: BinaryIO, where: str, comments: list[str], most: int
) -> tuple[list[str], list[int], int, int, bool]:
    """The first lines of data, without what ends them.

    Args:
        text: the file's content.
        where: name of the file.
        comments: takes the first of the lines before the data, but empty ones.
        most: rows to look at.

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
            if data.strip() and len(comments) < SAMPLE_ROWS:
                comments.append(data[:HEAD_BYTES].decode("utf-8", "replace").strip())
            continue
        if not lines:
            offset = read - len(data)
        elif rows > most or read > (SAMPLE_BYTES if offset < SAMPLE_BYTES else offset + SAMPLE_BYTES):
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


def _separator(marks: tuple[str, ...], sample: list[str]) -> str | None:
    """The mark in the first row that splits all rows alike, where only one does; else the first that is in it.

    Commas inside the fields between other marks are decimal commas, or parts of names.
    """
    found = [mark for mark in marks if mark in sample[0]]
    if len(found) < 2 or any('"' in line for line in sample):
        return found[0] if found else None
    even = [mark for mark in found if len({line.count(mark) for line in sample}) == 1]
    if len(even) > 1 and even[0] == ",":
        decimal = re.compile(r"\s*[+-]?[0-9]*,[0-9]+\s*")
        fields = [field for line in sample for field in line.split(even[1]) if "," in field]
        if all(decimal.fullmatch(field) for field in fields):
            return even[1]
    return even[0] if even else found[0]


def _kind(params: ReadParams, sample: list[str], where: str) -> tuple[str, str]:
    """Format and separator, from the parameters or the first rows."""
    line = sample[0]
    if params.delimiter is not None:
        if params.format not in ("auto", "csv"):
            raise UserError(
                "only csv files take a delimiter", where="index.delimiter", value=params.delimiter,
                remedy="Drop it or set index.format to csv",
            )  # fmt: skip
        return "csv", params.delimiter
    name = where.lower().removesuffix(".gz")
    if params.format == "csv" or (params.format in ("auto", "triples") and name.endswith(".csv")):
        mark = _separator((",", ";", "\t", "|"), sample)
        if mark or params.format == "csv" or len(line.split()) < 2:
            return "csv", mark or ","
    if params.format not in ("auto", "triples"):
        return params.format, "\t" if params.format == "tsv" else " "
    if any(field != field.strip() or not field for field in line.split("\t")[:2]):
        return "whitespace", " "  # tabs mixed with blanks
    if all(re.fullmatch(r"[^\s,]+ +[^\s,]+ +[+-]?[0-9]*,[0-9]+\s*", row) for row in sample):
        return "whitespace", " "  # decimal commas
    mark = _separator(("\t", ",", ";"), sample)
    return ("tsv" if mark == "\t" else "csv", mark) if mark else ("whitespace", " ")


def _is_header(rows: list[list[str]]) -> bool:
    first = [field.strip().lower() for field in rows[0]]
    if any(name in SOURCES for name in first) and any(name in TARGETS for name in first):
        return True
    rest = [row for row in rows[1:] if len(row) == len(first)]
    if rest and not first[0] and all(first[1:]) and all(row[0] for row in rest):
        return True  # pandas names no column for the rows' names
    if rest and all(map(ID_SUFFIX.search, rows[0][:2])) and not any(ID_SUFFIX.search(row[0] + row[1]) for row in rest):
        return True
    if any(is_number(field) for field in first[:2]):
        return False
    names = ((column, name.strip()) for column, name in enumerate(rows[0]) if not is_missing(name))
    return any(_names(name, [row[column] for row in rest], column > 1) for column, name in names)


def _names(name: str, values: list[str], dated: bool) -> bool:
    """True if a name is followed by numbers, or by dates where the column may have some."""
    if is_number(name) or _DATE.match(name):
        return False
    return _are_numbers(values) or (dated and bool(values) and all(map(_DATE.match, values)))


def _are_numbers(values: list[str]) -> bool:
    """True if all values are numbers, but for those that are missing, and some are."""
    return any(map(is_number, values)) and all(is_number(value) or is_missing(value) for value in values)
