"""Find the row that is wrong: read the file again, slowly, with line numbers. Only called after a failure."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.resources import Resources, format_bytes
from superworkflow.infra.storage.text_file import numbered_lines
from superworkflow.tasks.lib.edge_list.dialect import NUMBER, Dialect, lone_return_in
from superworkflow.tasks.lib.edge_list.edge_files import EdgeFile
from superworkflow.tasks.lib.edge_list.edge_times import NO_TIME
from superworkflow.tasks.lib.edge_list.missing_ids import is_missing
from superworkflow.tasks.lib.edge_list.text_rows import open_rows

_SHOWN = 200  # characters of a row
_MOST_PAIRS = 5_000_000


class WeightFault(UserError):
    """The error for a row whose weight is not a positive number."""


def bad_row(files: Iterable[EdgeFile], where: str, reason: str = "") -> UserError:
    """The error for the first bad row of some files.

    Args:
        files: one or several, of one kind.
        where: name of the file or its folder for people.
        reason: what the reader said, for the case that no row is found to be wrong.
    """
    kind = ""
    for path, dialect, name in files:
        kind = dialect.kind
        try:
            for place, row, text in _rows(path, dialect, name):
                fault = _fault(row, text, dialect, f"{name}, {place}")
                if fault:
                    return fault
        except UserError as error:  # of a line that is too long or has wrong quotes
            return error
        except (pa.ArrowException, OSError) as error:
            return UserError(
                f"the file cannot be read: {' '.join(str(error).split())[:400]}",
                where=name, remedy=f"Write the file again; it is damaged, or no {kind}",
            )  # fmt: skip
    said = reason.strip().splitlines() or ["unknown cause"]
    return UserError(
        f"the file cannot be read as {kind}: {said[0]}",
        where=where, remedy="Set index.format, index.delimiter or index.header to match the file",
    )  # fmt: skip


def too_little_memory(where: str, resources: Resources, given: int, reason: str) -> UserError:
    """The error for a database that has not enough memory, although it spills to disk.

    Args:
        where: name of the file for people.
        resources: of the stage.
        given: bytes that the database may take of them.
        reason: what it said.
    """
    return UserError(
        f"too little memory to read and index it: DuckDB may take {format_bytes(given)}, spills the rest to disk, and "
        f"says: {reason.strip().splitlines()[0]}",
        where=where, value=f"memory: {format_bytes(resources.memory)}",
        remedy="Give the stage more memory (resources: memory) or the disk that it spills to more room, or let it run "
        "on Spark (engine: spark)",
    )  # fmt: skip


def too_heavy(edges: Iterable[tuple[str, str]], directed: bool, where: str) -> UserError:
    """The error for edges whose rows' weights add up to more than a float holds; it names the first by its labels."""

    def in_bytes(edge: tuple[str, str]) -> tuple[bytes, bytes]:
        return edge[0].encode(), edge[1].encode()

    source, target = min(
        (edge if directed or in_bytes(edge) < in_bytes(edge[::-1]) else edge[::-1] for edge in edges), key=in_bytes
    )
    return UserError(
        "the weights of the edge's rows add up to more than 3.4e38, the most that a weight can be",
        where=where, value=f"{source} {target}",
        remedy="Scale all weights down, or set index.duplicates to max or min",
    )  # fmt: skip


def duplicate_edge(files: Iterable[EdgeFile], directed: bool, where: str, count: int) -> UserError:
    """The error for rows of the same edge, with the first that repeats one (of the first 5 million edges)."""
    seen: dict[tuple[str, str], tuple[str, str]] = {}
    value = f"{count} rows"
    rows = ((file, *each) for file in files for each in _rows(file.path, file.dialect, file.where))
    for (_, dialect, name), place, row, _ in rows:
        if dialect.times is not None and dialect.times.read:
            time = dialect.times.numbers(pa.array([str(row[dialect.times.column])]))
            if time is None or not dialect.times.inside(time)[0]:
                continue
        pair = row[dialect.columns[0]], row[dialect.columns[1]]
        if dialect.missing == "drop" and any(map(is_missing, pair)):
            continue
        ends = f"{pair[0]} {pair[1]}"
        if not directed and dialect.sides is None and pair[1] < pair[0]:
            pair = pair[1], pair[0]
        if pair in seen and (pair[0] != pair[1] or dialect.sides is not None):
            file, first = seen[pair]
            first = first if file == name else f"{file}, {first}"
            where, value = f"{name}, {place}", f"{ends}, first in {first}"
            break
        if len(seen) < _MOST_PAIRS:
            seen[pair] = name, place
    return UserError(
        "the edge occurs again, and index.duplicates is error", where=where, value=value,
        remedy="Remove the row, or set index.duplicates to sum, max or min",
    )  # fmt: skip


def no_edges(rows: int, dialect: Dialect, where: str) -> UserError:
    """The error for a file none of whose rows is an edge."""
    found, remedy = "the file has no rows", "Give a file with edges between different nodes"
    if rows:
        found = "no edges are left: every row is a self-loop"
    elif dialect.times is not None and dialect.times.read:
        found, remedy = "no row is between from_time and until", "Widen them, or leave one out"
    return UserError(found, where=where, value=f"{rows} rows", remedy=remedy)


def _fault(row: list[Any], text: str, dialect: Dialect, place: str) -> UserError | None:
    source, target, weight = dialect.columns
    if len(row) < dialect.min_columns:
        return UserError(
            f"the row has too few columns: {len(row)} where {dialect.min_columns} are needed", where=place,
            value=text[:_SHOWN], remedy="Complete or remove the row, or set index.format or index.delimiter",
        )  # fmt: skip
    if dialect.times is not None and dialect.times.read:
        given = row[dialect.times.column]
        time = dialect.times.numbers(pa.array([None if given is None else str(given)], pa.string()))
        if time is None:
            return UserError(NO_TIME, where=place, value=given, remedy="Complete or remove the row")
        if not dialect.times.inside(time)[0]:
            return None
    if dialect.relation >= 0 and row[dialect.relation] in ("", None):
        return UserError(
            "the row has an empty relation", where=place, value=text[:_SHOWN], remedy="Complete or remove the row"
        )
    ends = row[source], row[target]
    if dialect.missing != "drop" and (ends[0] in ("", None) or ends[1] in ("", None)):
        return UserError(
            "the row has an empty node", where=place, value=text[:_SHOWN],
            remedy="Complete or remove the row, or set index.missing=drop to leave such rows out",
        )  # fmt: skip
    try:
        f"{row[source]}{row[target]}".encode()
    except UnicodeEncodeError:
        return UserError(
            "the text is not UTF-8", where=place, value=text[:_SHOWN].encode("utf-8", "surrogateescape"),
            remedy="Convert the file, for example with iconv -t UTF-8",
        )  # fmt: skip
    if dialect.kind != "parquet" and '"' not in text and "\r" in text:
        return lone_return_in(place, text)
    if dialect.missing != "keep" and any(map(is_missing, ends)):
        if dialect.missing == "drop":
            return None
        return UserError(
            "a node has a name of missing values, and index.missing is error", where=place, value=text[:_SHOWN],
            remedy="Complete or remove the row, or set index.missing to drop or keep",
        )  # fmt: skip
    if weight >= 0 and not _is_weight(row[weight], dialect.negative):
        return WeightFault(
            "the weight is not a positive number", where=place, value=row[weight],
            remedy="Weights must be above 0 and finite; set index.weighted to false to ignore them, or index.negative "
            "to drop or absolute if they are negative",
        ) if dialect.negative != "keep" else UserError(
            "the rating is not a number", where=place, value=row[weight], remedy="Ratings must be finite: correct or "
            "remove the row, or name the column of ratings with index.weight",
        )  # fmt: skip
    return None


def _is_weight(value: Any, negative: str) -> bool:
    if negative in ("drop", "absolute") and re.match(r"[ \t]*-", str(value)):
        if negative == "drop":
            return True
        value = value.replace("-", "", 1) if isinstance(value, str) else -value
    if isinstance(value, str) and not re.fullmatch(NUMBER, value):
        return False
    try:
        with np.errstate(over="ignore", under="ignore"):
            number = np.float32(value)
    except (TypeError, ValueError):
        return False
    return bool(np.isfinite(number) and (number > 0 or negative == "keep"))


def _rows(path: Path, dialect: Dialect, where: str) -> Iterator[tuple[str, list[Any], str]]:
    """Place, fields and text of each data row."""
    if dialect.kind == "parquet":
        names = [dialect.names[column] for column in dialect.chosen]
        number = 0
        for batch in pq.ParquetFile(path).iter_batches(columns=names):
            for values in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
                number += 1
                row: list[Any] = [None] * len(dialect.names)
                for name, value in zip(names, values, strict=True):
                    row[dialect.names.index(name)] = value
                yield f"row {number}", row, ", ".join(str(value) for value in values)
        return
    first = dialect.skipped_lines + 1
    with open_rows(str(path), dialect, where) as stream:
        numbered = numbered_lines(stream, where, first)
        lines = ((number, line.decode("utf-8", "surrogateescape")) for number, line in numbered)
        if dialect.kind == "csv":
            yield from _csv_rows((line for _, line in lines), dialect, where, first)
            return
        for number, line in lines:
            text = line.removesuffix("\n").removesuffix("\r")
            fields = dialect.fields(text)
            if text and fields and not (dialect.kind == "whitespace" and fields[0][0] in "#%"):
                yield f"line {number}", fields, text


def _csv_rows(lines: Iterator[str], dialect: Dialect, where: str, first: int) -> Iterator[tuple[str, list[Any], str]]:
    line = ""

    def remember(read: str) -> str:
        nonlocal line
        line = read
        return read

    reader = csv.reader(map(remember, lines), delimiter=dialect.separator, strict=True)
    start = first
    try:
        for row in reader:
            if row:
                yield f"line {start}", row, dialect.separator.join(row)
            start = first + reader.line_num
    except csv.Error as error:
        if '"' not in line and "\r" in line[:-2]:
            raise lone_return_in(f"{where}, line {start}", line.removesuffix("\n")) from None
        raise UserError(
            f"the row cannot be read as csv: {error}", where=f"{where}, line {start}",
            remedy="Double the quotes within a quoted field and close it, and end lines in a newline",
        ) from None  # fmt: skip
