"""Columns of an edge list: source, target and weight, by the parameters, their names, or their place."""

from __future__ import annotations

import re
from collections.abc import Sequence

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.edge_list.dialect import ReadParams
from superworkflow.tasks.lib.edge_list.edge_times import NAMES as TIMES
from superworkflow.tasks.lib.edge_list.other_formats import has_leading_zero, is_number
from superworkflow.tasks.lib.edge_list.sampled_rows import unix_time

SOURCES = (
    "source", "src", "from", "u", "node1", "node_1",
    "id1", "id_1", "head", "start", "tail_id", "source_id", ":start_id",
)  # fmt: skip
TARGETS = (
    "target", "dst", "to", "v", "node2", "node_2",
    "id2", "id_2", "tail", "end", "head_id", "target_id", ":end_id",
)  # fmt: skip
_WEIGHTS = ("weight", "weights", "w")
_RATINGS = ("rating", "ratings", "score", "scores", "stars")
"""Names of a column of weights, if there must be one."""
USERS = ("user", "users", "user_id", "userid", "user id")
"""Names of the source's column, of two sets of nodes."""
_RELATIONS = ("relation", "predicate", "rel", "r", "p")
ROW_NAMES = ("", "unnamed: 0", "__index_level_0__")
"""Names of the column in which pandas and R write the rows' names."""


def edge_columns(params: ReadParams, names: tuple[str, ...], rows: list[list[str]], where: str) -> tuple[int, int, int]:
    """Numbers of the source, target and weight columns."""
    lower = [usual_name(name) for name in names]
    width = len(names) or min(map(len, rows), default=0)

    def place(parameter: str, wanted: str | None, usual: tuple[str, ...]) -> int | None:
        if wanted is not None:
            return column_number(parameter, wanted, names, width, where)
        return next((lower.index(name) for name in usual if name in lower), None)

    if params.format == "triples":
        return _triple(names, rows, lower, where)
    source = place("source", params.source, SOURCES)
    target = place("target", params.target, TARGETS)
    weight = place("weight", params.weight, _WEIGHTS)
    if source is None or target is None or source == target:
        taken = {source if params.source else None, target if params.target else None, weight}
        free = [column for column in range(max(3, len(names))) if column not in taken]
        if len(names) > 2 and lower[0] in ROW_NAMES and 0 in free:
            free.remove(0)
        if names and params.bipartite is True:
            late = [column for column in free if column < len(names) and _is_time(column, lower, rows[1:])]
            late += [column for column, name in enumerate(lower) if name in _RATINGS]
            users = [column for column, name in enumerate(lower) if name in USERS]
            free.sort(key=lambda column: (column in late, column not in users))
        source = source if params.source and source is not None else free.pop(0)
        target = target if params.target and target is not None else free.pop(0)
    if params.weighted is False:
        weight = None
    elif weight is None and params.weighted is True:
        row_names = [column for column in range(width) if lower and lower[column] in ROW_NAMES]
        free = [column for column in range(width) if column not in (source, target, *row_names)]
        weight = _ratings_column(free, lower, rows[1:] if names else rows, where)
    elif weight is None and not names and rows and all(len(row) == 3 and is_number(row[2]) for row in rows):
        values = [row[2] for row in rows]
        if {source, target} == {0, 1} and not any(map(has_leading_zero, values)) and unix_time(values) is None:
            weight = 2
    if len({source, target, weight}) < 3:
        raise UserError(
            "one column is used twice", where="index.source, index.target, index.weight",
            value=(params.source, params.target, params.weight), remedy="Name three different columns",
        )  # fmt: skip
    return source, target, -1 if weight is None else weight


def _is_time(column: int, lower: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """True for a column with a usual name of times, or of Unix times."""
    values = [row[column] for row in rows if column < len(row)]
    return bool(lower and lower[column] in TIMES) or unix_time(values) is not None


def _ratings_column(free: list[int], lower: Sequence[str], rows: Sequence[Sequence[str]], where: str) -> int:
    """Column of weights that must be there: with a usual name, or the first of numbers that are no times, or the first.

    Args:
        free: columns that are no end of an edge.
        lower: names of all columns in small letters; empty without a header.
        rows: a sample.
        where: the file, for people.

    Raises:
        UserError: there is no further column.
    """
    if not free:
        raise UserError("each row needs a number besides its two nodes, such as a rating or a weight", where=where,
                        value=", ".join(lower) or "2 columns",
                        remedy="Add a third column, such as how often a pair occurs")  # fmt: skip
    named = [column for column in free if lower and lower[column] in _RATINGS]
    others = [column for column in free if not _is_time(column, lower, rows)]
    numbers = [column for column in others if all(is_number(row[column]) for row in rows if column < len(row))]
    return (named or numbers or others or free)[0]


def column_number(parameter: str, wanted: str, names: Sequence[str], width: int, where: str) -> int:
    """Number from 0 of a column that a parameter of `index` names, or gives by its number from 1.

    Raises:
        UserError: there is no such column.
    """
    if wanted in names:
        return names.index(wanted)
    if wanted.isdecimal() and 0 < int(wanted) <= width:
        return int(wanted) - 1
    shown = ", ".join(names) if names else f"no header, and {width} columns, counted from 1"
    raise UserError(
        f"the file has no such column; it has: {shown}", where=f"{where}, index.{parameter}",
        value=wanted, remedy=f"Set index.{parameter} to one of these",
    )  # fmt: skip


def usual_name(name: str) -> str:
    """A column's name in small letters, without what Neo4j and others add: `:START_ID(Person)`, `weight:float`."""
    return re.sub(r"(?<=.)(\([^()]*\)|:(float|double|int|long|token))$", "", name.strip().lower())


def _triple(names: tuple[str, ...], rows: list[list[str]], lower: list[str], where: str) -> tuple[int, int, int]:
    """Columns of head and tail: by their usual names, or the first and the third."""
    if min(map(len, rows), default=len(names)) < 3:
        raise UserError(
            "a triple has three columns: head, relation and tail", where=where, value=", ".join(rows[0] or names),
            remedy="Drop index.format=triples",
        )  # fmt: skip
    head = next((lower.index(name) for name in ("head", "subject", "h", "s") if name in lower), 0)
    tail = next((lower.index(name) for name in ("tail", "object", "t", "o") if name in lower), 2)
    return head, tail, -1


def relation_column(names: Sequence[str], columns: Sequence[int]) -> int:
    """Column of relations of triples: by a usual name, or the first that is neither head nor tail.

    Args:
        names: of the columns; empty without a header.
        columns: of heads and tails first.
    """
    lower = [name.lower() for name in names]
    named = (lower.index(name) for name in _RELATIONS if name in lower)
    free = next(column for column in range(3) if column not in columns[:2])
    return next((column for column in named if column not in columns[:2]), free)
