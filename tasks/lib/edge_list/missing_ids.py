"""Ids that are missing: the one rule for Python's values, Arrow's columns and SQL, as `index.missing` says.

A row is without an id if its source or target is null, empty, blanks only, or a name that programs write for a missing
value, such as `NULL`. Readers give such a row two empty names where it is to be dropped, so that it can be counted.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

NAMES = (
    "\\N", "NULL", "Null", "null", "NA", "N/A", "n/a", "#N/A", "<NA>", "nan", "NaN", "NaT", "None", "none", "-",
)  # fmt: skip
"""Names that programs write for a missing value. `NAN` is none: it is the code of an airport."""

_BLANKS = " \t"


def is_missing(value: Any) -> bool:
    """True if a value of Python stands for no id."""
    text = "" if value is None else str(value).strip(_BLANKS)
    return not text or text in NAMES


def missing(column: Any) -> Any:
    """True for each name in an Arrow column of strings that stands for no id, or is null."""
    trimmed = pc.ascii_trim(column, _BLANKS)
    return pc.fill_null(pc.is_in(trimmed, value_set=pa.array(["", *NAMES], trimmed.type)), True)


def missing_sql(name: str) -> str:
    """The same as SQL of DuckDB.

    Args:
        name: SQL of a string.
    """
    names = ", ".join("'" + each + "'" for each in ("", *NAMES))
    return f"({name} IS NULL OR trim({name}, ' ' || chr(9)) IN ({names}))"


def drop_missing(columns: list[Any]) -> tuple[list[Any], Any, int]:
    """Columns of source and target without the rows that have two empty names.

    Returns:
        The columns, the mask of the rows that are left, and the number of the others.
    """
    named = pc.not_equal(columns[0], "")
    left = [column.filter(named) for column in columns]
    return left, named.to_numpy(zero_copy_only=False), len(columns[0]) - len(left[0])
