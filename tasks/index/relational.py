"""The definition of the index in relations, written once for every engine that Fugue runs: DuckDB here, Spark there.

Only SQL that DuckDB and Spark read alike is used, so no dialect is translated. Strings compare by their UTF-8 bytes
on both. The compiled kernels do the same faster in memory; this is what they are tested against.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fugue.collections.sql import StructuredRawSQL, TempTableName
from fugue.dataframe.dataframe import DataFrame
from fugue.dataframe.dataframes import DataFrames
from fugue.execution.execution_engine import ExecutionEngine

Keep = Callable[[DataFrame, str], DataFrame]
"""(relation, name) to the same relation, computed once and kept where the engine keeps such: table, cache, …"""

_BEYOND_FLOAT = "3.4028235677973366e38"
"""The least double that is infinite as a float: in the middle of the largest float and what would come after it."""
_RULES = {"sum": "SUM", "max": "MAX", "min": "MIN", "error": "MAX"}


@dataclass(frozen=True)
class Relations:
    """The index as relations.

    Args:
        vertices: id (bigint, 0 to n - 1), node (string), degree (bigint).
        edges: u, v (ids), weight (float) if weighted; each edge once.
        rows: rows read.
        self_loops: rows with the same node twice.
        bad_rows: rows without source, target or weight; when there are any, the rest means nothing.
        too_heavy: of the edges whose weight is beyond a float, the first by its labels, if there are any.
        dropped: rows that were left out, since they lack an id; they are not in `rows`.
    """

    vertices: DataFrame
    edges: DataFrame
    rows: int
    self_loops: int
    bad_rows: int
    too_heavy: list[tuple[str, str]]
    dropped: int = 0


def number_by_window(engine: ExecutionEngine, degrees: DataFrame) -> DataFrame:
    """Vertices (id, node, degree) of (node, degree): by degree from the highest, then by label."""
    return select(
        engine,
        "SELECT ROW_NUMBER() OVER (ORDER BY degree DESC, node) - 1 AS id, node, degree FROM {degrees}",
        degrees=degrees,
    )


def index(
    engine: ExecutionEngine,
    rows: DataFrame,
    *,
    directed: bool,
    weighted: bool,
    duplicates: str,
    keep: Keep,
    number: Callable[[ExecutionEngine, DataFrame], DataFrame] = number_by_window,
    drop: bool = False,
) -> Relations:
    """Simple graph with numbered vertices of a relation of rows.

    Args:
        engine: where to compute.
        rows: source, target (string), and weight (float) if weighted; null where a row is bad.
        directed: whether (u, v) and (v, u) are different edges.
        weighted: edges have weights.
        duplicates: rule for the weight of merged rows: sum, max or min.
        keep: keeps a relation that is used more than once.
        number: numbers the vertices; an engine whose windows are not parallel brings its own.
        drop: rows with two empty names lack an id and are left out.
    """
    dropped = 0
    if drop:
        dropped = int(select(engine, "SELECT COUNT(*) AS n FROM {rows} WHERE source = ''", rows=rows).as_array()[0][0])
        rows = select(engine, "SELECT * FROM {rows} WHERE source IS NULL OR source <> ''", rows=rows)
    fault = "source IS NULL OR target IS NULL OR source = '' OR target = ''" + (
        " OR weight IS NULL" if weighted else ""
    )
    counts = select(
        engine,
        "SELECT COUNT(*) AS n, SUM(CASE WHEN source = target THEN 1 ELSE 0 END) AS self_loops, "
        f"SUM(CASE WHEN {fault} THEN 1 ELSE 0 END) AS bad FROM {{rows}}",
        rows=rows,
    ).as_array()[0]
    first, second = ("source", "target") if directed else ("LEAST(source, target)", "GREATEST(source, target)")
    # The sum in double does not depend on the order of rows, unless weights differ by more than 2²⁹ times.
    merged = f"{_RULES[duplicates]}(CAST(weight AS DOUBLE))"
    total = f", CASE WHEN {merged} < {_BEYOND_FLOAT} THEN CAST({merged} AS FLOAT) END AS weight" if weighted else ""
    simple = keep(
        select(
            engine,
            f"SELECT {first} AS source, {second} AS target{total} FROM {{rows}} WHERE source <> target "
            f"GROUP BY {first}, {second}",
            rows=rows,
        ),
        "simple_edges",
    )
    degrees = select(
        engine,
        "SELECT node, SUM(ends) AS degree FROM (SELECT source AS node, 1 AS ends FROM {edges} UNION ALL "
        "SELECT target AS node, 1 AS ends FROM {edges} UNION ALL "
        "SELECT source AS node, 0 AS ends FROM {rows} WHERE source = target) AS found GROUP BY node",
        edges=simple,
        rows=rows,
    )
    vertices = keep(number(engine, degrees), "vertices")
    numbered = select(
        engine,
        f"SELECT s.id AS u, t.id AS v{', e.weight' if weighted else ''} FROM {{edges}} AS e "
        "JOIN {vertices} AS s ON e.source = s.node JOIN {vertices} AS t ON e.target = t.node",
        edges=simple,
        vertices=vertices,
    )
    heavy = "SELECT source, target FROM {edges} WHERE weight IS NULL ORDER BY source, target LIMIT 1"
    too_heavy = select(engine, heavy, edges=simple).as_array() if weighted else []
    read, loops, bad = (int(count or 0) for count in counts)
    return Relations(vertices, numbered, read, loops, bad, [(u, v) for u, v in too_heavy], dropped)


def select(engine: ExecutionEngine, sql: str, **relations: DataFrame) -> DataFrame:
    """Result of a SELECT whose {names} stand for relations."""
    names = {name: TempTableName() for name in relations}  # type: ignore[no-untyped-call]
    statement = StructuredRawSQL.from_expr(
        sql.format(**{name: str(table) for name, table in names.items()}), dialect=None
    )
    frames: Any = DataFrames({names[name].key: relation for name, relation in relations.items()})
    return engine.sql_engine.select(frames, statement)
