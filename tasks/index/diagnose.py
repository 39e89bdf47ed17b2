"""Find the row that is wrong: read the file again, slowly, with line numbers. Only called after a failure."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from infra.errors import UserError
from tasks.index.source import NUMBER, Dialect, broken_gzip

_SHOWN = 200  # characters of a row
_MOST_PAIRS = 5_000_000


def bad_row(path: str, dialect: Dialect, where: str, reason: str = "") -> UserError:
    """The error for the first bad row of a file.

    Args:
        path: local file.
        dialect: how it is written.
        where: its name for people.
        reason: what the reader said, for the case that no row is found to be wrong.
    """
    try:
        for place, row, text in _rows(path, dialect):
            fault = _fault(row, text, dialect, f"{where}, {place}")
            if fault:
                return fault
    except UnicodeDecodeError as error:
        return not_utf8(path, dialect, where, error)
    except (EOFError, OSError, zlib.error) as error:
        return broken_gzip(where, error)
    except csv.Error as error:
        reason = str(error)
    said = reason.strip().splitlines() or ["unknown cause"]
    return UserError(
        f"the file cannot be read as {dialect.kind}: {said[0]}",
        where=where, remedy="Set index.format, index.delimiter or index.header to how the file is written",
    )  # fmt: skip


def not_utf8(path: str, dialect: Dialect, where: str, error: Exception) -> UserError:
    """The error for text that is not UTF-8, with its first such line."""
    with _binary(path, dialect) as stream:
        for number, line in enumerate(stream, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                where, value = f"{where}, line {number}", repr(line[:_SHOWN])
                break
        else:
            value = str(error)
    return UserError(
        "the text is not UTF-8", where=where, value=value, remedy="Convert the file, for example with iconv -t UTF-8"
    )


def duplicate_edge(path: str, dialect: Dialect, directed: bool, where: str, count: int) -> UserError:
    """The error for rows of the same edge, with the first that repeats one (of the first 5 million edges)."""
    seen: dict[tuple[str, str], str] = {}
    source, target, _ = dialect.columns
    value = f"{count} rows"
    for place, row, _ in _rows(path, dialect):
        pair = row[source], row[target]
        if not directed and pair[1] < pair[0]:
            pair = pair[1], pair[0]
        if pair in seen and pair[0] != pair[1]:
            where, value = f"{where}, {place}", f"{row[source]} {row[target]}, first in {seen[pair]}"
            break
        if len(seen) < _MOST_PAIRS:
            seen[pair] = place
    return UserError(
        "the edge occurs again, and index.duplicates is error", where=where, value=value,
        remedy="Remove the row, or set index.duplicates to sum, max or min",
    )  # fmt: skip


def _fault(row: list[Any], text: str, dialect: Dialect, place: str) -> UserError | None:
    source, target, weight = dialect.columns
    if len(row) < dialect.min_columns:
        return UserError(
            f"the row has too few columns: {len(row)} where {dialect.min_columns} are needed", where=place,
            value=text[:_SHOWN], remedy="Complete or remove the row, or set index.format or index.delimiter",
        )  # fmt: skip
    if row[source] in ("", None) or row[target] in ("", None):
        return UserError(
            "the row has an empty node", where=place, value=text[:_SHOWN], remedy="Complete or remove the row"
        )
    if weight >= 0 and not _is_weight(row[weight]):
        return UserError(
            "the weight is not a positive number", where=place, value=row[weight],
            remedy="Weights must be above 0 and finite; set index.weighted to false to ignore them",
        )  # fmt: skip
    return None


def _is_weight(value: Any) -> bool:
    if isinstance(value, str) and not re.fullmatch(NUMBER, value):
        return False
    try:
        with np.errstate(over="ignore", under="ignore"):
            number = np.float32(value)
    except (TypeError, ValueError):
        return False
    return bool(number > 0 and np.isfinite(number))


def _binary(path: str, dialect: Dialect) -> Any:
    return gzip.open(path, "rb") if dialect.gzipped else open(path, "rb")


def _rows(path: str, dialect: Dialect) -> Iterator[tuple[str, list[Any], str]]:
    """Place, fields and text of each data row."""
    if dialect.kind == "parquet":
        names = [dialect.names[column] for column in dialect.columns if column >= 0]
        number = 0
        for batch in pq.ParquetFile(path).iter_batches(columns=names):
            for values in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
                number += 1
                row: list[Any] = [None] * len(dialect.names)
                for name, value in zip(names, values, strict=True):
                    row[dialect.names.index(name)] = value
                yield f"row {number}", row, ", ".join(str(value) for value in values)
        return
    with _binary(path, dialect) as stream:
        stream.read(dialect.data_offset)
        lines = io.TextIOWrapper(stream, "utf-8", newline="\n")
        if dialect.kind == "csv":
            # An unclosed quote would swallow the rest of the file as one field.
            csv.field_size_limit(1 << 24)
            reader = csv.reader(lines, delimiter=dialect.separator)
            start = dialect.skipped_lines + 1
            for row in reader:
                if row:
                    yield f"line {start}", row, dialect.separator.join(row)
                start = dialect.skipped_lines + reader.line_num + 1
            return
        for number, line in enumerate(lines, dialect.skipped_lines + 1):
            text = line.rstrip("\r\n")
            if text.strip() and not (dialect.kind == "whitespace" and text.lstrip()[0] in "#%"):
                yield f"line {number}", dialect.fields(text), text
