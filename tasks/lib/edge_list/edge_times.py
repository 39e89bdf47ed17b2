"""Times of edges: the column that has them, its values as whole numbers, and the rows between two times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.edge_list.sampled_rows import unix_range
from superworkflow.tasks.lib.edge_list.time_bounds import bound_number, unix_unit

NAMES = ("time", "timestamp", "ts", "unixtime", "unix_time", "datetime", "date")
"""Usual names of a column of times."""
NO_TIME = "the time is neither a number nor a date such as 2004-05-01 or 2004-05-01T12:00:00Z"
_NUMBER = r"^[+-]?[0-9]+(\.[0-9]*)?([eE][+]?[0-9]+)?$"
_FRACTION, _ZONE = r"(:[0-9]{2})\.[0-9]+", r":[0-9]{2}(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"


@dataclass(frozen=True)
class EdgeTimes:
    """Times of an edge list.

    Args:
        column: its number from 0.
        unit: by how many there are in a second, 1 for dates; 0 for numbers that are no Unix times.
        dates: the values are dates.
        first: least time of the rows that are read, in this unit; None for no bound.
        until: time from which on rows are not read.
        kept: the rows that are read have their times with them.
    """

    column: int
    unit: int
    dates: bool = False
    first: int | None = None
    until: int | None = None
    kept: bool = False

    @property
    def read(self) -> bool:
        """True if the column must be read."""
        return self.kept or self.first is not None or self.until is not None

    def numbers(self, column: Any) -> NDArray[np.int64] | None:
        """Whole times of an Arrow column of strings, rounded down; None if one is none.

        Dates become Unix times in seconds. Numbers stay in the unit that they have.
        """
        try:
            text = pc.ascii_trim(pc.cast(column, pa.string()), " \t")
            if text.null_count:
                return None
            return _seconds(text) if self.dates else _whole(text)
        except pa.ArrowInvalid:
            return None

    def inside(self, times: NDArray[np.int64]) -> NDArray[np.bool_]:
        """True for each time that is not before `first` and is before `until`."""
        inside = np.ones(len(times), bool)
        if self.first is not None:
            inside &= times >= self.first
        if self.until is not None:
            inside &= times < self.until
        return inside


def cut(columns: list[Any], times: EdgeTimes) -> tuple[list[Any], Any] | None:
    """The rows between two times.

    Args:
        columns: of rows, the last of which holds times.
        times: how they are read.

    Returns:
        The other columns and times, int64, as Arrow arrays; None if a value is no time.
    """
    numbers = times.numbers(columns[-1])
    if numbers is None:
        return None
    inside = pa.array(times.inside(numbers))
    return [column.filter(inside) for column in columns[:-1]], pa.array(numbers).filter(inside)


def settle_times(
    wanted: int | None,
    bounds: tuple[str | None, str | None],
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    columns: Sequence[int],
    where: str,
) -> EdgeTimes:
    """Find the column of times and what it holds.

    Args:
        wanted: number of the column, if it is given.
        bounds: `from_time` and `until`.
        names: of the columns; none without a header.
        rows: sample.
        columns: those that are read as source, target and weight.
        where: name of the file.

    Raises:
        UserError: there is none, or it holds no times, or the bounds do not fit them.
    """
    lower = [name.strip().lower() for name in names]
    width = min(map(len, rows), default=len(names))
    free = [number for number in range(width) if number not in columns]
    named = (lower.index(name) for name in NAMES if name in lower and lower.index(name) in free)
    column = next(named, None) if wanted is None else wanted
    if column is None:
        column = next((each for each in free if _holds_times([row[each] for row in rows])), None)
    if column is None:
        raise UserError("no column of times is found", where=where, value=", ".join(names) or f"{width} columns",
                        remedy="Set index.time to the column of times, by its name or its number from 1")  # fmt: skip
    values = [row[column] for row in rows if len(row) > column]
    found = _understood(values, column)
    place = f"{where}, column {names[column] if column < len(names) else column + 1}"
    if found is None:
        value = next((each for each in values if not _understood([each], 0)), "nothing")
        raise UserError(NO_TIME, where=place, value=value,
                        remedy="Set index.time to the column of times, or write them so")  # fmt: skip
    numbers = []
    for parameter, text in zip(("from_time", "until"), bounds, strict=True):
        numbers.append(None if text is None else bound_number(text, found.unit))
        if text is not None and numbers[-1] is None:
            kind = "Unix times or dates" if found.unit else "numbers that are no Unix times from 1990 to 2099"
            raise UserError(f"the bound does not fit the times, which are {kind}", where=f"index.{parameter}",
                            value=f"{text}; the first time of {place} is {values[0]}",
                            remedy="Give a date such as 2004-05-01, or a number like those of the file")  # fmt: skip
    return replace(found, first=numbers[0], until=numbers[1])


def whole_times(values: Sequence[str]) -> NDArray[np.int64] | None:
    """Times as whole numbers, by the rule of `EdgeTimes.numbers`; None if one is neither a number nor a date."""
    found = _understood(values, 0)
    return None if found is None else found.numbers(pa.array(values, pa.string()))


def date_range(values: Sequence[str]) -> str | None:
    """Range of the dates if all values are dates of ISO 8601; None otherwise."""
    if not values or not _holds_dates(values):
        return None
    return f"{min(values)[:10]} to {max(values)[:10]}"


def _understood(values: Sequence[str], column: int) -> EdgeTimes | None:
    """The rule by which the values of a column are read as times; None if they are none."""
    numbers = EdgeTimes(column, 0).numbers(pa.array(values, pa.string()))
    if numbers is not None and len(numbers):
        return EdgeTimes(column, unix_unit(int(numbers.min()), int(numbers.max())) or 0)
    return EdgeTimes(column, 1, dates=True) if _holds_dates(values) else None


def _holds_times(values: Sequence[str]) -> bool:
    return unix_range(values) is not None or _holds_dates(values)


def _holds_dates(values: Sequence[str]) -> bool:
    return bool(values) and EdgeTimes(0, 1, dates=True).numbers(pa.array(values, pa.string())) is not None


def _whole(text: Any) -> NDArray[np.int64] | None:
    if pc.all(pc.match_substring_regex(text, r"^[+-]?[0-9]+$"), min_count=0).as_py():
        whole: NDArray[np.int64] = pc.cast(pc.ascii_ltrim(text, "+"), pa.int64()).to_numpy(zero_copy_only=False)
        return whole
    if not pc.all(pc.match_substring_regex(text, _NUMBER), min_count=0).as_py():
        return None
    numbers = np.floor(pc.cast(pc.ascii_ltrim(text, "+"), pa.float64()).to_numpy(zero_copy_only=False))
    if (np.abs(numbers) >= 2.0**63).any():
        return None
    return np.asarray(numbers.astype(np.int64))


def _seconds(text: Any) -> NDArray[np.int64]:
    plain = pc.replace_substring_regex(text, _FRACTION, r"\1")
    zoned = pc.match_substring_regex(plain, _ZONE)
    local = pc.cast(pc.if_else(zoned, pa.scalar(None, pa.string()), plain), pa.timestamp("s"))
    universal = pc.cast(pc.if_else(zoned, plain, pa.scalar(None, pa.string())), pa.timestamp("s", "UTC"))
    both = pc.coalesce(pc.cast(local, pa.int64()), pc.cast(universal, pa.int64()))
    seconds: NDArray[np.int64] = both.to_numpy(zero_copy_only=False)
    return seconds
