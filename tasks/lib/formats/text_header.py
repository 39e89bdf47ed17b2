"""The first row of a text table: names of columns, and the character between them."""

from __future__ import annotations

import csv

SEPARATORS = (",", "\t", ";")


def separator_of(line: str) -> str:
    """The character between columns: comma, tab or semicolon, by which the first row has most fields; of equals the
    first.

    Raises:
        csv.Error: the row cannot be read.
    """
    line = line.rstrip("\r\n")
    fields = [len(next(csv.reader([line], delimiter=each), [])) for each in SEPARATORS]
    return SEPARATORS[fields.index(max(fields))]
