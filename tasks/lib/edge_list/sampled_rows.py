"""First rows of an edge list, by which its reading is doubted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from superworkflow.tasks.lib.edge_list.time_bounds import unix_unit


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
        guessed: the first two columns are read, since no parameter and no usual name says which to read.
        kinds: type of each column that the rows leave empty, by its number.
        used: numbers of further columns that are read, of times and of relations.
    """

    rows: Sequence[Sequence[str]]
    names: Sequence[str]
    columns: tuple[int, int, int]
    kind: str
    comments: Sequence[str]
    where: str
    missing: bool = True
    guessed: bool = False
    kinds: Mapping[int, str] = MappingProxyType({})
    used: tuple[int, ...] = ()

    def name(self, number: int) -> str:
        """Name of a column, or its number from 1."""
        return self.names[number] if number < len(self.names) else str(number + 1)

    def column(self, number: int) -> str:
        """Place of a column, for people."""
        return f"{self.where}, column {self.name(number)}"

    def values(self, number: int) -> list[str]:
        return [row[number] for row in self.rows if len(row) > number]


def unix_range(values: Sequence[str]) -> tuple[float, float] | None:
    """First and last instant, in seconds, if all values are Unix times, in seconds or finer units; None otherwise."""
    if not values or not all(re.fullmatch(r"[0-9]{9,19}(\.[0-9]+)?", value.strip()) for value in values):
        return None
    numbers = [float(value) for value in values]
    unit = unix_unit(min(numbers), max(numbers))
    return None if unit is None else (min(numbers) / unit, max(numbers) / unit)


def unix_time(values: Sequence[str]) -> str | None:
    """Range of the dates if all values are Unix times; None otherwise."""
    found = unix_range(values)
    if found is None:
        return None
    days = [datetime.fromtimestamp(seconds, UTC).date().isoformat() for seconds in found]
    return f"{days[0]} to {days[1]}"


def counts_rows(values: Sequence[str]) -> bool:
    """True for consecutive numbers from 0 or 1."""
    return (
        len(values) > 2
        and values[0] in ("0", "1")
        and all(value == str(number) for number, value in enumerate(values, int(values[0])))
    )
