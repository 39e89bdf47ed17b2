"""Doubts about the columns of an edge list: ones that nothing reads, and ones that hold no ends of edges."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from superworkflow.tasks.lib.edge_list.edge_times import date_range
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.edge_list.other_formats import is_number
from superworkflow.tasks.lib.edge_list.sampled_rows import SampledRows, counts_rows, unix_time

_MOST_NAMED = 4
"""Most unused columns that have a warning each."""
_FEW_ROWS, _SOME_ROWS, _MANY_ROWS = 3, 20, 100
"""Fewest rows from which text in a column, sources that never recur, and a table of labels are doubted."""
_LABELS = re.compile(
    r"(class|label|y|category|community|cluster|group|department|target_class)(_?(id|name))?s?", re.IGNORECASE
)
_NODES = re.compile(r"(node|vertex|name|paper|user|item|index)?_?(id|name)?", re.IGNORECASE)
_PAIR = re.compile(r"(.*[^0-9])?(1 \1?2|0 \1?1|a \1?b|i \1?j|x \1?y)|(.+) \3", re.IGNORECASE)
"""Names that belong together without a usual one, such as protein1 and protein2."""
_CUT = "index.from_time or index.until to cut by date"
_SETTLE = "Set index.source and index.target to the columns of nodes"


def column_doubts(sample: SampledRows) -> Iterator[InputWarning]:
    """All warnings about columns."""
    if not sample.rows:
        return
    width = Counter(map(len, sample.rows)).most_common(1)[0][0]
    ends = list(_ends(sample, width))
    yield from ends
    unused = [warning for number in range(width) if (warning := _unused(sample, number, not ends)) is not None]
    yield from unused[:_MOST_NAMED]
    if len(unused) > _MOST_NAMED:
        last = unused[-1].where.removeprefix(f"{sample.where}, ")
        yield InputWarning(f"{len(unused) - _MOST_NAMED} more columns are not used", sample.where, f"up to {last}",
                           _SETTLE)  # fmt: skip
    lengths = {len(row) for row in sample.rows}
    if len(lengths) > 1 and len(sample.rows) >= _FEW_ROWS and 2 * sum(len(row) > 2 for row in sample.rows) > width:
        yield InputWarning("rows have different numbers of fields, and two of each are read", sample.where,
                           f"{min(lengths)} to {max(lengths)}", "Give each edge a row of its own")  # fmt: skip


def _ends(sample: SampledRows, width: int) -> Iterator[InputWarning]:
    """Columns that are read as the ends of edges, but may be others."""
    source, target, _ = sample.columns
    names = f"{sample.name(source)} and {sample.name(target)}"
    sources, targets = sample.values(source), sample.values(target)
    if width == 2 and _are_labels(sample, sources, targets):
        yield InputWarning("the rows look like labels of nodes and are read as edges", sample.where, names,
                           "Give them as --labels, or set index.source and index.target if they are edges")  # fmt: skip
    elif source == 0 and width > 2 and counts_rows(sources) and not any(map(is_number, targets)):
        yield InputWarning("the first column counts the rows and is read as the source", sample.column(0),
                           f"{sources[0]}, {sources[1]}, …", "Set index.source=2 and index.target=3")  # fmt: skip
    elif sample.guessed and not _PAIR.fullmatch(f"{sample.name(source)} {sample.name(target)}"):
        yield InputWarning("the header has no usual name for the ends of an edge, and its first columns are read",
                           sample.where, names, _SETTLE)  # fmt: skip
    elif width > 2 and len(sources) >= _SOME_ROWS and len(set(sources)) == len(sources):
        for number in set(range(width)) - {source, target}:
            others = set(sample.values(number))
            both = others & set(targets)
            if (
                10 * len(set(sources) & (others | set(targets))) <= len(sources)
                and 10 * len(both) >= len(others) > 2
                and len(both) > 2
            ):
                yield InputWarning(f"each row has another source, and column {sample.name(number)} holds targets too",
                                   sample.where, f"{sources[0]}, {sources[1]}, …", _SETTLE)  # fmt: skip
                return


def _are_labels(sample: SampledRows, sources: list[str], targets: list[str]) -> bool:
    """Columns named as node and label are; without names, a first that never recurs and a second of few values."""
    if sample.names:
        source, target = (sample.name(number).strip() for number in sample.columns[:2])
        return bool(_LABELS.fullmatch(target)) and bool(_NODES.fullmatch(source))
    rows = len(sources)
    return rows >= _MANY_ROWS and len(set(sources)) == rows and _SOME_ROWS * len(set(targets)) <= rows


def _unused(sample: SampledRows, number: int, text: bool) -> InputWarning | None:
    """The warning for a column with content that nothing reads: it may hold weights, times, or kinds of edges.

    Args:
        sample: of rows.
        number: of the column.
        text: also for one of text.
    """
    if number in (*sample.columns, *sample.used):
        return None
    if kind := sample.kinds.get(number):
        is_time = kind.startswith(("timestamp", "date"))
        settle = f"Set index.time={sample.name(number)} and {_CUT}" if is_time else _SETTLE
        return InputWarning("a column is not used", sample.column(number), f"type {kind}", settle)
    values = [value.strip() for value in sample.values(number)]
    if not all(values):
        return None
    column = f"index.weight={sample.names[number] if number < len(sample.names) else number + 1}"
    time = column.replace("weight", "time", 1)
    if days := unix_time(values):
        return InputWarning("a column of Unix times is not used", sample.column(number), days,
                            f"Set {time} and {_CUT}, or {column} to use them as weights")  # fmt: skip
    if days := date_range(values):
        return InputWarning("a column of dates is not used", sample.column(number), days,
                            f"Set {time} and {_CUT}")  # fmt: skip
    if all(map(is_number, values)) and all(map(math.isfinite, map(float, values))):
        if counts_rows(values):
            return None
        numbers = sorted(map(float, values))
        negative = "" if numbers[0] >= 0 else " and index.negative, since some are negative,"
        found = f"{numbers[0]:g} to {numbers[-1]:g} in the first {len(values)} rows"
        return InputWarning("a column of numbers is not used", sample.column(number), found,
                            f"Set {column}{negative} to use them as weights")  # fmt: skip
    different = list(dict.fromkeys(values))
    if not text or len(values) < _FEW_ROWS or len(different) == 1:
        return None
    shown = ", ".join(value[:40] for value in different[:3]) + (", …" if len(different) > 3 else "")
    return InputWarning("a column of text is not used", sample.column(number), shown,
                        "Set index.source or index.target if it names nodes, or leave the column out")  # fmt: skip
