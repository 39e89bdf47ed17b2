"""Sizes of a file of samples, from some of its rows: for plans, not for results."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.text_file import open_unpacked
from superworkflow.tasks.feature_graph.tables import is_table, label_in
from superworkflow.tasks.heterograph.feature_stats import first_rows, width_of
from superworkflow.tasks.heterograph.file_sample import table_stats
from superworkflow.tasks.heterograph.tables import PARQUET
from superworkflow.tasks.heterograph.values import is_list

_TEXT_BYTES = 1 << 20
_LAST = re.compile(rb"(\d+):[^:\n]*$", re.MULTILINE)


def sample_stats(source: Source, look_bytes: int) -> dict[str, int | bool]:
    """Stats of a source that is a local file, for `Input.stats`; none of any other.

    Returns:
        Those of `table_stats`, and `features`, `values`, the numbers that are not zero, and of a table `table_bytes`,
        what its columns take.
    """
    path = source.location.local_path
    if path is None:
        return {}
    found = table_stats(source, look_bytes)
    try:
        if not is_table(path, source.uri):
            with open_unpacked(path, source.uri) as stream:
                text = stream.read(_TEXT_BYTES)
            values = text.count(b":") / max(text.count(b"\n"), 1)
            features = max(map(int, _LAST.findall(text)), default=0)
            return {**found, "features": features, "values": round(values * found["rows"])}
    except UserError:
        return found  # who reads it says what is wrong
    with path.open("rb") as stream:
        columns = first_rows(path, stream.read(len(PARQUET)) == PARQUET)
    rows = max(max(map(len, columns.values()), default=0), 1)
    taken = sum(column.nbytes for column in columns.values()) / rows
    columns.pop(label_in(list(columns)), None)
    widths = {name: width_of(column) for name, column in columns.items()}
    values = sum(_values(column, widths[name]) for name, column in columns.items())
    return {
        **found, "features": sum(widths.values()), "values": round(values * found["rows"]),
        "table_bytes": round(taken * found["rows"]),
    }  # fmt: skip


def _values(column: Any, width: int) -> float:
    """Numbers of a row that are not zero, of those that a column becomes: all, where most are, for they are centred."""
    if width != 1 or is_list(column.type):
        return float(width if is_list(column.type) else min(width, 1))
    try:
        zeros = pc.sum(pc.equal(column.cast(pa.float64()), 0.0)).as_py() or 0
    except pa.ArrowInvalid:  # truth values, or numbers of which some are missing
        return 1.0
    share = 1 - zeros / max(len(column), 1)
    return share if share < 0.5 else 1.0
