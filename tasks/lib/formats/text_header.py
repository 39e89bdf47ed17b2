"""The first row of a text table: names of columns, and the character between them."""

from __future__ import annotations

import csv
import re

SEPARATORS = (",", "\t", ";")
_TABS = re.compile(r"[_.-]tsv\b")


def separator_of(line: str, where: str) -> str:
    """The character between columns: comma, tab or semicolon, by which the first row has most fields; of equals a tab
    in files whose name has .tsv, else a comma.

    Args:
        line: the first row.
        where: path or URI of the file.

    Raises:
        csv.Error: the row cannot be read.
    """
    order = sorted(SEPARATORS, key="\t".__ne__) if _TABS.search(where) else list(SEPARATORS)
    fields = [len(next(csv.reader([line.rstrip("\r\n")], delimiter=each), [])) for each in order]
    return order[fields.index(max(fields))]
