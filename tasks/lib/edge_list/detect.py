"""Detection of an edge list's format, from its first bytes and the parameters."""

from __future__ import annotations

import csv
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import BinaryIO, Literal, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.text_file import numbered_lines, unpacked
from superworkflow.tasks.lib.edge_list.bipartite import ID_SUFFIX, Sides, doubt_first_row, doubt_sides, sides_of
from superworkflow.tasks.lib.edge_list.doubts import doubts
from superworkflow.tasks.lib.edge_list.edge_times import EdgeTimes, settle_times
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.edge_list.missing_ids import is_missing
from superworkflow.tasks.lib.edge_list.other_formats import (
    HEAD_BYTES,
    has_leading_zero,
    is_number,
    refuse_binary,
    refuse_separators,
    refuse_text,
)
from superworkflow.tasks.lib.edge_list.row_shapes import refuse_shape, refuse_sizes
from superworkflow.tasks.lib.edge_list.sampled_rows import SampledRows, unix_time
from superworkflow.tasks.lib.edge_list.text_documents import refuse_document

NUMBER = r"[ \t]*\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?[ \t]*"
"""Pattern of a weight, for SQL and for the search for bad rows; the kernels accept the same."""

SAMPLE_BYTES = 1 << 18
SAMPLE_ROWS = 1000

_SOURCES = (
    "source", "src", "from", "u", "node1", "node_1",
    "id1", "id_1", "head", "start", "tail_id", "source_id", ":start_id",
)  # fmt: skip
_TARGETS = (
    "target", "dst", "to", "v", "node2", "node_2",
    "id2", "id_2", "tail", "end", "head_id", "target_id", ":end_id",
)  # fmt: skip
_WEIGHTS = ("weight", "weights", "w")
_ROW_NAMES = ("", "unnamed: 0", "__index_level_0__")
"""Names of the column in which pandas and R write the rows' names."""
_PARQUET_BUFFER = 1 << 16
"""Bytes that are read at a time of a Parquet file's columns, of which only the first rows are wanted."""
PARQUET, _BOM = b"PAR1", b"\xef\xbb\xbf"


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
    @property
    def negative(self) -> str: ...
    @property
    def missing(self) -> str: ...
    @property
    def bipartite(self) -> bool | str: ...
    @property
    def source_prefix(self) -> str | None: ...
    @property
    def target_prefix(self) -> str | None: ...
    @property
    def time(self) -> str | None: ...
    @property
    def from_time(self) -> str | None: ...
    @property
    def until(self) -> str | None: ...


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
        negative: what becomes of rows with negative weights, as `index.negative`.
        missing: what becomes of rows without an id: error, drop, or keep, which reads names such as NULL as nodes.
        sides: prefixes of the names of sources and targets, if these are two sets of nodes.
        warnings: doubts about how the file is read.
        relation: number of the column of relations, which a reader of triples sets; -1 for none.
        times: of the rows, if they are asked for.
        texts: numbers of further columns whose texts come after all others, empty where a row has none; no rows are
            left out for them, so that they are read without weights and times.
    """

    kind: Literal["csv", "tsv", "whitespace", "parquet"]
    separator: str = " "
    gzipped: bool = False
    data_offset: int = 0
    skipped_lines: int = 0
    columns: tuple[int, int, int] = (0, 1, -1)
    names: tuple[str, ...] = ()
    negative: str = "error"
    missing: str = "keep"
    sides: Sides | None = None
    warnings: tuple[InputWarning, ...] = ()
    relation: int = -1
    texts: tuple[int, ...] = ()
    times: EdgeTimes | None = None

    @property
    def weighted(self) -> bool:
        return self.columns[2] >= 0

    @property
    def min_columns(self) -> int:
        """Columns that every row must have."""
        return max(self.chosen) + 1

    @property
    def reads_times(self) -> bool:
        """True if rows are read with their times."""
        return self.times is not None and self.times.read

    @property
    def chosen(self) -> list[int]:
        """Numbers of the columns to read: source, target, the weight or the relation, the time, and the texts."""
        time = self.times.column if self.times is not None and self.times.read else -1
        return [column for column in (*self.columns, self.relation, time, *self.texts) if column >= 0]

    def fields(self, line: str) -> list[str]:
        """The fields of one line (of a csv file: without quoted line ends)."""
        if self.kind == "whitespace":
            return [field for field in line.replace("\t", " ").split(" ") if field]
        if self.kind == "tsv" or '"' not in line:
            return line.split(self.separator)
        return next(csv.reader([line], delimiter=self.separator), [])

    def with_times(self) -> Dialect:
        """The dialect whose rows come with their times, if it knows the column."""
        return self if self.times is None else replace(self, times=replace(self.times, kept=True))

    def name_stats(self, dropped: int, sources: int) -> dict[str, str | int | bool]:
        """Stats of how nodes are named, where that is not as in the file.

        Args:
            dropped: rows that were left out, since they lack an id.
            sources: vertices that are sources, if the sides are two sets of nodes.
        """
        stats: dict[str, str | int | bool] = {"missing_dropped": dropped} if self.missing == "drop" else {}
        if self.sides is not None:
            source, target = self.sides
            stats |= {"bipartite": True, "source_prefix": source, "target_prefix": target, "source_vertices": sources}
        return stats

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
        if self.times is not None and self.times.read:
            place = self.times.column
            roles += f", time = {self.names[place] if self.names else f'column {place + 1}'}"
        sides = f"; two sets of nodes, named {self.sides[0]}… and {self.sides[1]}…" if self.sides else ""
        return f"reading {self.kind}{packed}, {header}; {roles}{sides}"


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
    if params.format == "parquet" or (params.format in ("auto", "triples") and head.startswith(PARQUET)):
        return _parquet(text, params, gzipped, where)
    refuse_binary(head, where)
    comments: list[str] = []
    lines, sizes, offset, skipped, whole = _first_lines(text, where, comments, most)
    if not lines:
        raise _no_rows(where)
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
    columns = _columns(params, names, rows, where)
    if header:
        if whole and len(rows) == 1:
            raise _no_rows(where)
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
        and not (_usual(first) in _SOURCES and _usual(second) in _TARGETS)
        and not (ID_SUFFIX.search(first) and ID_SUFFIX.search(second))
    )
    sample = SampledRows(rows, dialect.names, dialect.columns, dialect.kind, comments, where, doubted, guessed, kinds,
                         -1 if times is None else times.column)  # fmt: skip
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


def lone_return_in(place: str, line: str) -> UserError:
    """The error for a carriage return that ends no line."""
    return UserError(
        "the line has a carriage return before its end", where=place, value=line[:200],
        remedy="End lines in a newline, for example with tr '\\r' '\\n', or quote the field in a csv file",
    )  # fmt: skip


class NoRows(UserError):
    """A file without rows."""


def _no_rows(where: str) -> NoRows:
    return NoRows("the file has no rows", where=where, remedy="Give a file with one edge in each row")


def _parquet(content: BinaryIO, params: ReadParams, gzipped: bool, where: str) -> Dialect:
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
            raise _no_rows(where)
        columns = _columns(params, names, [], where)
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
            if not _is_number(field.type) and field.name.lower() not in _ROW_NAMES
        }
    read = Dialect("parquet", gzipped=gzipped, columns=columns, names=names)
    return _settled(read, rows, (), params, where, kinds)


def _parquet_sample(file: pq.ParquetFile, columns: tuple[int, int, int], timed: bool) -> list[list[str]]:
    """The first rows that have both ids, as text; columns other than ids, numbers and, if `timed`, dates are empty."""
    schema = file.schema_arrow
    names = schema.names
    numbers = [
        number
        for number, name in enumerate(names)
        if (_is_number(schema.field(number).type) or (timed and _is_date(schema.field(number).type)))
        and names.count(name) == 1
        and name.lower() not in _ROW_NAMES
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
        return "csv", _separator((",", ";", "\t", "|"), sample) or ","
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
    if any(name in _SOURCES for name in first) and any(name in _TARGETS for name in first):
        return True
    rest = [row for row in rows[1:] if len(row) == len(first)]
    if rest and not first[0] and all(first[1:]) and all(row[0] for row in rest):
        return True  # pandas names no column for the rows' names
    if rest and all(map(ID_SUFFIX.search, rows[0][:2])) and not any(ID_SUFFIX.search(row[0] + row[1]) for row in rest):
        return True
    return (
        bool(rest)
        and any(
            not is_number(first[column]) and first[column] and _are_numbers([row[column] for row in rest])
            for column in range(min(3, len(first)))
        )
        and not any(is_number(field) for field in first[:2])
    )


def _are_numbers(values: list[str]) -> bool:
    """True if all values are numbers, but for those that are missing, and some are."""
    return any(map(is_number, values)) and all(is_number(value) or is_missing(value) for value in values)


def _columns(params: ReadParams, names: tuple[str, ...], rows: list[list[str]], where: str) -> tuple[int, int, int]:
    """Numbers of the source, target and weight columns."""
    lower = [_usual(name) for name in names]
    width = len(names) or min(map(len, rows), default=0)

    def place(parameter: str, wanted: str | None, usual: tuple[str, ...]) -> int | None:
        if wanted is not None:
            return column_number(parameter, wanted, names, width, where)
        return next((lower.index(name) for name in usual if name in lower), None)

    if params.format == "triples":
        return _triple(names, rows, lower, where)
    source = place("source", params.source, _SOURCES)
    target = place("target", params.target, _TARGETS)
    weight = place("weight", params.weight, _WEIGHTS)
    if source is None or target is None or source == target:
        taken = {source if params.source else None, target if params.target else None, weight}
        free = [column for column in range(max(3, len(names))) if column not in taken]
        if len(names) > 2 and lower[0] in _ROW_NAMES and 0 in free:
            free.remove(0)
        source = source if params.source and source is not None else free.pop(0)
        target = target if params.target and target is not None else free.pop(0)
    if params.weighted is False:
        weight = None
    elif weight is None and params.weighted is True:
        weight = next(column for column in range(3) if column not in (source, target))
    elif weight is None and not names and rows and all(len(row) == 3 and is_number(row[2]) for row in rows):
        values = [row[2] for row in rows]
        if {source, target} == {0, 1} and not any(map(has_leading_zero, values)) and unix_time(values) is None:
            weight = 2
    if len({source, target, weight}) < 3:
        raise UserError(
            "one column is used twice", where="index.source, index.target, index.weight",
            value=(params.source, params.target, params.weight), remedy="Name three different columns",
        )  # fmt: skip
    return source, target, -1 if weight is None else weight


def column_number(parameter: str, wanted: str, names: Sequence[str], width: int, where: str) -> int:
    """Number from 0 of a column that a parameter of `index` names, or gives by its number from 1.

    Raises:
        UserError: there is no such column.
    """
    if wanted in names:
        return names.index(wanted)
    if wanted.isdecimal() and 0 < int(wanted) <= width:
        return int(wanted) - 1
    shown = ", ".join(names) if names else f"no header, and {width} columns, counted from 1"
    raise UserError(
        f"the file has no such column; it has: {shown}", where=f"{where}, index.{parameter}",
        value=wanted, remedy=f"Set index.{parameter} to one of these",
    )  # fmt: skip


def _usual(name: str) -> str:
    """A column's name in small letters, without what Neo4j adds: `:START_ID(Person)`, `weight:float`."""
    return re.sub(r"(?<=.)(\([^()]*\)|:(float|double|int|long))$", "", name.strip().lower())


def _triple(names: tuple[str, ...], rows: list[list[str]], lower: list[str], where: str) -> tuple[int, int, int]:
    """Columns of head and tail: by their usual names, or the first and the third."""
    if min(map(len, rows), default=len(names)) < 3:
        raise UserError(
            "a triple has three columns: head, relation and tail", where=where, value=", ".join(rows[0] or names),
            remedy="Drop index.format=triples",
        )  # fmt: skip
    head = next((lower.index(name) for name in ("head", "subject", "h", "s") if name in lower), 0)
    tail = next((lower.index(name) for name in ("tail", "object", "t", "o") if name in lower), 2)
    return head, tail, -1
