"""Bounds of edge times as people give them: a date or an instant of ISO 8601, or a number such as a Unix time."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator

SECONDS = (631_152_000, 4_102_444_800)
"""Unix times from 1990 to 2099."""
UNITS = (1, 1000, 1_000_000, 1_000_000_000)
"""Units of Unix times in a second."""


def unix_unit(first: float | Fraction, last: float | Fraction) -> int | None:
    """The unit in which numbers of this range are Unix times, by how many there are in a second; None if in none."""
    for unit in UNITS:
        if first / unit >= SECONDS[0] and last / unit <= SECONDS[1]:
            return unit
    return None


def bound_text(value: object) -> object:
    """A parameter's value as text where YAML has read it as a number or a date.

    Raises:
        ValueError: it is neither a number nor a date.
    """
    if isinstance(value, datetime | date):
        value = value.isoformat()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str):
        _parsed(value)
    return value


TimeBound = Annotated[str | None, BeforeValidator(bound_text)]
"""Parameter that bounds times."""
ColumnName = Annotated[str | None, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
"""Parameter that names a column, or gives its number from 1."""


def bound_number(text: str, unit: int) -> int | None:
    """The least whole time that is not before the bound.

    Args:
        text: of the bound.
        unit: of the times, by how many there are in a second; 0 for times that are no Unix times.

    Returns:
        The time in the same unit; None if the bound does not fit such times.
    """
    number, is_date = _parsed(text)
    if not unit:
        return None if is_date else math.ceil(number)
    given = 1 if is_date else unix_unit(number, number)
    return None if given is None else math.ceil(number * unit / given)


def _parsed(text: str) -> tuple[Fraction, bool]:
    """A number, or the seconds since 1970 of a date; and whether it is a date."""
    try:
        return Fraction(text.strip()), False
    except (ValueError, ZeroDivisionError):
        pass
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no date such as 2004-05-01, no instant such as 2004-05-01T12:00Z, and no "
                         "number") from None  # fmt: skip
    instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    since = instant - datetime(1970, 1, 1, tzinfo=UTC)
    return Fraction(since.days * 86_400 + since.seconds) + Fraction(since.microseconds, 1_000_000), True
