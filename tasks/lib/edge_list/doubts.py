"""Doubts about an edge list, from the rows that detection samples: each becomes an `InputWarning`."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.edge_list.missing_ids import NAMES
from superworkflow.tasks.lib.edge_list.other_formats import is_number

_LEAST_SHARE = 0.001
"""Share of the sampled rows from which a name of a missing value is doubted; one row is always too few."""
_SECONDS = (631_152_000, 4_102_444_800)
"""Unix times from 1990 to 2099."""
_UNITS = (1, 1000, 1_000_000, 1_000_000_000)
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec"
_ODD_FORMS = (
    (re.compile(r"[0-9]\.?[0-9]*[eE]\+[0-9]{2,3}"), 0.0,
     "ids are rounded numbers, as spreadsheets, R and pandas write long ones", "Export them again, as text"),
    (re.compile(rf"[0-9]{{1,2}}-({_MONTHS})|({_MONTHS})-[0-9]{{1,2}}", re.IGNORECASE), 0.0,
     "ids look like dates that a spreadsheet has made of names such as MAR2", "Export them again, as text"),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+(Z|[+-][0-9:]+)?)?|([0-9]{1,2}[/.]){2}[0-9]{2,4}"), 0.9,
     "dates are read as nodes", "Set index.source and index.target to the columns of nodes"),
    (re.compile(r"[+-]?[0-9]*\.[0-9]*[1-9][0-9]*"), 0.9,
     "fractions are read as nodes", "Set index.source and index.target to the columns of nodes"),
    (re.compile(r"\[.*\]|\{.*\}"), 0.5,
     "a list is read as one node", "Give each of its members a row, in pandas: .explode()"),
)  # fmt: skip
"""Form of an id, share of the sampled ids from which it is doubted, the doubt, and what settles it."""


class SampledRows(NamedTuple):
    """First rows of a file.

    Args:
        rows: fields of each row, without the header.
        names: of the columns; empty without a header.
        columns: number of the source, target and weight column; -1 for no weights.
        kind: of the dialect.
        comments: lines that are skipped as comments, at the top and among the rows.
        where: name of the file.
        missing: names of missing values are read as nodes, and no parameter has asked for that.
    """

    rows: Sequence[Sequence[str]]
    names: Sequence[str]
    columns: tuple[int, int, int]
    kind: str
    comments: Sequence[str]
    where: str
    missing: bool = True

    def name(self, number: int) -> str:
        """Name of a column, or its number from 1."""
        return self.names[number] if number < len(self.names) else str(number + 1)

    def column(self, number: int) -> str:
        """Place of a column, for people."""
        return f"{self.where}, column {self.name(number)}"

    def values(self, number: int) -> list[str]:
        return [row[number] for row in self.rows if len(row) > number]


def doubts(sample: SampledRows) -> tuple[InputWarning, ...]:
    """All warnings about the sampled rows."""
    return (*_unused_columns(sample), *_nodes(sample), *_comments(sample))


def unix_time(values: Sequence[str]) -> str | None:
    """Range of the dates if all values are Unix times, in seconds or finer units; None otherwise."""
    if not values or not all(re.fullmatch(r"[0-9]{9,19}(\.[0-9]+)?", value.strip()) for value in values):
        return None
    numbers = [float(value) for value in values]
    for unit in _UNITS:
        first, last = min(numbers) / unit, max(numbers) / unit
        if first >= _SECONDS[0] and last <= _SECONDS[1]:
            days = [datetime.fromtimestamp(seconds, UTC).date().isoformat() for seconds in (first, last)]
            return f"{days[0]} to {days[1]}"
    return None


def _unused_columns(sample: SampledRows) -> Iterator[InputWarning]:
    """Columns of numbers that nothing reads: they may be weights or times."""
    width = Counter(map(len, sample.rows)).most_common(1)[0][0] if sample.rows else 0
    for number in range(width):
        values = [value.strip() for value in sample.values(number)]
        if number in sample.columns or not all(values):
            continue
        column = f"index.weight={sample.names[number] if number < len(sample.names) else number + 1}"
        if days := unix_time(values):
            yield InputWarning("a column of Unix times is not used", sample.column(number), days,
                               f"Set {column} to use them as weights")  # fmt: skip
        elif all(map(is_number, values)) and all(map(math.isfinite, map(float, values))) and not _counts_rows(values):
            numbers = sorted(map(float, values))
            negative = "" if numbers[0] >= 0 else " and index.negative, since some are negative,"
            found = f"{numbers[0]:g} to {numbers[-1]:g} in the first {len(values)} rows"
            yield InputWarning("a column of numbers is not used", sample.column(number), found,
                               f"Set {column}{negative} to use them as weights")  # fmt: skip


def _nodes(sample: SampledRows) -> Iterator[InputWarning]:
    """Names of nodes that look like missing values, or differ by less than a reader sees."""
    source, target, _ = sample.columns
    counts: Counter[str] = Counter()
    for number in (source, target):
        counts.update(sample.values(number))
    where = f"{sample.where}, first {len(sample.rows)} rows"
    for name in sorted(set(NAMES) & counts.keys(), key=lambda each: -counts[each]):
        if sample.missing and counts[name] > max(1, _LEAST_SHARE * len(sample.rows)):
            found = f"{name!r} in {counts[name]} ends"
            yield InputWarning("a name of missing values is read as a node", where, found,
                               "Set index.missing=drop to leave such rows out, or index.missing=keep")  # fmt: skip
    floats = [name for name in counts if re.fullmatch(r"[0-9]+\.0", name)]
    if twins := [name for name in floats if name[:-2] in counts]:
        yield _twins(where, twins[0], twins[0][:-2], "numbers with and without a point")
    elif floats and any(set(sample.values(number)) <= {*floats, *NAMES} for number in (source, target)):
        yield InputWarning("ids are written as numbers with a point, as pandas does where some are missing", where,
                           repr(floats[0]), "Write them as whole numbers: .dropna().astype('int64')")  # fmt: skip
    yield from _forms(sample, where)
    for rule, same in (("blanks around them", str.strip), ("Unicode forms", _composed)):
        pair = next(((name, same(name)) for name in counts if same(name) != name and same(name) in counts), None)
        if pair:
            yield _twins(where, *pair, rule)
    if sample.kind == "whitespace" and all(len(name) > 1 and name[0] == name[-1] == '"' for name in counts):
        yield InputWarning("quotes are part of the names", where, next(iter(counts)),
                           "Set index.format=csv and index.delimiter=' ' to read what is inside them")  # fmt: skip
    values = sample.values(source)
    if source == 0 and _counts_rows(values) and any(len(row) > 2 for row in sample.rows):
        others = sample.values(target)
        if not any(map(is_number, others)):
            yield InputWarning("the first column counts the rows and is read as the source", sample.column(0),
                               f"{values[0]}, {values[1]}, …", "Set index.source=2 and index.target=3")  # fmt: skip


def _forms(sample: SampledRows, where: str) -> Iterator[InputWarning]:
    """Ids that are dates or lists, or that a spreadsheet has changed."""
    for number in sample.columns[:2]:
        values = sample.values(number)
        for form, share, what, settle in _ODD_FORMS:
            found = [value for value in values if form.fullmatch(value.strip())]
            if found and len(found) >= share * len(values):
                yield InputWarning(what, f"{where}, column {sample.name(number)}", repr(found[0]), settle)


def _twins(where: str, first: str, second: str, rule: str) -> InputWarning:
    return InputWarning(f"names that differ only by {rule} are different nodes", where, f"{first!r} and {second!r}",
                        "Write each name in one form")  # fmt: skip


def _comments(sample: SampledRows) -> Iterator[InputWarning]:
    """Lines that are skipped as comments, although they have as many fields as a row and no blank after the mark."""
    source, target, _ = sample.columns
    splits = {"csv": r"[,;|\t]", "tsv": r"\t", "whitespace": r"[ \t]+"}
    width = len(sample.rows[0]) if sample.rows else 0
    nodes = {value for number in (source, target) for value in sample.values(number)}

    def is_row(line: str) -> bool:
        fields = [field.strip() for field in re.split(splits[sample.kind], line.strip())]
        others = [field for field in fields if field[:1] not in ("#", "%")]
        return (
            len(fields) == width
            and fields[0][1:2] not in ("", "#", "%", " ")
            and (not others or all(field in nodes for field in others[:1]))
        )

    rows = [line for line in sample.comments if is_row(line)]
    if rows:
        settle = "Put a header above them"
        if sample.kind == "whitespace":
            settle = "Set index.format to tsv or csv to keep such lines below the first row"
        what = f"{len(rows)} lines that look like rows are skipped as comments"
        yield InputWarning(what, sample.where, rows[0][:80], settle)


def _counts_rows(values: Sequence[str]) -> bool:
    """True for consecutive numbers from 0 or 1."""
    return (
        len(values) > 2
        and values[0] in ("0", "1")
        and all(value == str(number) for number, value in enumerate(values, int(values[0])))
    )


def _composed(name: str) -> str:
    return name if name.isascii() else unicodedata.normalize("NFC", name)
