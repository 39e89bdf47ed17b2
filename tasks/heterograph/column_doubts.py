"""Columns of ids and times among features: they are left out, with a warning, unless `heterograph.take` names them.

A column of one value a node is doubted where it has

- ids: whole numbers whose name ends in `id`, or that are all different (at least 20, or 10 without a gap) and fill half
  of their range; and texts that are all different and so named;
- times: dates, texts of ISO 8601, Unix times from 1990 to 2099, or numbers called `time`, `timestamp`, `date`,
  `datetime` or `year`.

Other whole numbers that are all different, such as populations, are features, with a warning, and so are years from
1000 to 2999 in a column called `year`, each of which two rows have on average.

A sample is looked at first, and all rows where different values decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.heterograph.values import is_text
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.edge_list.sampled_rows import unix_time

DATES = "dates"
SAMPLE = 1000
"""Rows by which a column is doubted."""
_LEAST_DIFFERENT, _LEAST_DENSE = 20, 10
_ID_NAME = re.compile(r"(?i:(^|[_\s.-])(id|uuid|guid)$)|[a-z](Id|ID)$")
_YEARS = range(1000, 3000)
_TIME_NAMES = ("time", "timestamp", "date", "datetime", "year")
ISO = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?\s?(Z|UTC|[+-][0-9]{2}:?[0-9]{2})?)?$"
_ZONE = r"(:[0-9.]+)\s?(Z|UTC|[+-][0-9]{2}:?[0-9]{2})$"
_WHOLE = r"^[+-]?[0-9]{1,18}(\.0*)?$"


class ColumnDoubt(NamedTuple):
    """A doubt about a column.

    Args:
        what: its values seem to be, in words.
        found: their range.
        by_difference: it is doubted because its values are all different: those of all rows decide.
        is_read: it is a feature nevertheless.
    """

    what: str
    found: str
    by_difference: bool = False
    is_read: bool = False

    @property
    def dates(self) -> bool:
        """True for what becomes days since 1970 if it is a feature."""
        return self.what == DATES

    def warning(self, name: str, where: str, stage: str = "heterograph") -> InputWarning:
        """The warning, whether the column is a feature or not, which names a parameter of a stage."""
        outcome, other, choice = "is left out of the features", "have it read as a feature", "take"
        if self.is_read:
            outcome, other, choice = "is read as a feature", "leave it out", "leave_out"
            other += " if they are ids" * self.by_difference
        return InputWarning(f"a column of {self.what} {outcome}", f"{where}, column {name}", self.found,
                            f"Set {stage}.{choice}={name} to {other}")  # fmt: skip


def doubt_of(name: str, column: Any) -> ColumnDoubt | None:
    """The doubt about a column, None for a feature.

    Args:
        name: of the column, without its set.
        column: Arrow or NumPy array of some of its values; of text without missing ones.
    """
    array = pa.array(column) if isinstance(column, np.ndarray) else column.drop_null()
    if is_time(array.type):
        return ColumnDoubt(DATES, _shown(array)) if len(array) else None
    if is_text(array.type):
        if len(array) and pc.all(pc.match_substring_regex(array, ISO)).as_py():
            return ColumnDoubt(DATES, _shown(array))
        if not len(array) or not pc.all(pc.match_substring_regex(array, _WHOLE)).as_py():
            is_id = len(array) >= _LEAST_DIFFERENT and _ID_NAME.search(name) and len(pc.unique(array)) == len(array)
            return ColumnDoubt("ids", _shown(array), True) if is_id else None
        array = pc.replace_substring_regex(array, r"^\+|\.0*$", "").cast(pa.int64())
    if pa.types.is_floating(array.type):
        array = pc.filter(array, pc.is_finite(array))
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)) or not len(array):
        return None
    return _doubt_of_numbers(name, array.to_numpy(zero_copy_only=False))


def _doubt_of_numbers(name: str, values: NDArray[Any]) -> ColumnDoubt | None:
    if values.dtype.kind == "f" and (values != np.floor(values)).any():
        return None
    low, high = int(values.min()), int(values.max())
    found = f"{low} to {high}"
    if len(values) > 1 and (days := unix_time([str(low), str(high)])):
        return ColumnDoubt("Unix times", days)
    if name.lower() == "year" and low in _YEARS and high in _YEARS and 2 * len(np.unique(values)) <= len(values):
        return ColumnDoubt("years", found, is_read=True)
    if name.lower() in _TIME_NAMES and high > 1:
        return ColumnDoubt("times", found)
    if _ID_NAME.search(name):
        return ColumnDoubt("ids", found)
    least = _LEAST_DENSE if high - low + 1 == len(values) else _LEAST_DIFFERENT
    if len(values) >= least and len(np.unique(values)) == len(values):
        is_read = high - low > 2 * len(values)
        return ColumnDoubt("whole numbers that are all different, as ids are,", found, True, is_read)
    return None


def is_time(kind: pa.DataType) -> bool:
    """True for Arrow's dates and timestamps."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def days_of(array: Any) -> NDArray[np.float64]:
    """Days since 1970 of dates, timestamps, or texts of them, whose zones are ignored; NaN for null."""
    if is_text(array.type):
        array = pc.replace_substring_regex(array, _ZONE, r"\1")
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    micros = array.cast(pa.timestamp("us", getattr(array.type, "tz", None))).cast(pa.int64())
    found: NDArray[np.float64] = pc.divide(micros.cast(pa.float64(), safe=False), 86_400e6).to_numpy(
        zero_copy_only=False
    )
    return found


def chosen_columns(text: str, names: Iterable[str], parameter: str) -> frozenset[str]:
    """Columns that a parameter names, with commas between them.

    Raises:
        UserError: there is no such column.
    """
    wanted, there = [name.strip() for name in text.split(",") if name.strip()], list(names)
    for name in wanted:
        if name not in there:
            raise UserError("there is no such column of features", where=parameter, value=name,
                            remedy=f"Valid: {', '.join(there)[:500] or 'none'}")  # fmt: skip
    return frozenset(wanted)


def _shown(array: Any) -> str:
    ends = pc.min_max(array).as_py()
    return f"{ends['min']} to {ends['max']}"
