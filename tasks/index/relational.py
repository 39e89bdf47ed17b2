"""The definition of the index in relations, by SQL on DuckDB, which spills to disk.

Strings compare by their UTF-8 bytes. The compiled kernels do the same faster in memory; this is what they are tested
against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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

    vertices: Any
    edges: Any
    rows: int
    self_loops: int
    bad_rows: int
    too_heavy: list[tuple[str, str]]
    dropped: int = 0


def index(connection: Any, *, directed: bool, weighted: bool, duplicates: str, drop: bool = False) -> Relations:
    """Simple graph with numbered vertices of the rows of a table `edge_rows`.

    Args:
        connection: to DuckDB. The table has source, target (string), and weight (float) if weighted; null where a row
            is bad.
        directed: whether (u, v) and (v, u) are different edges.
        weighted: edges have weights.
        duplicates: rule for the weight of merged rows: sum, max or min.
        drop: rows with two empty names lack an id and are left out.
    """
    dropped = 0
    if drop:
        dropped = connection.execute("SELECT COUNT(*) FROM edge_rows WHERE source = ''").fetchone()[0]
        connection.execute("DELETE FROM edge_rows WHERE source = ''")
    fault = "source IS NULL OR target IS NULL OR source = '' OR target = ''"
    fault += " OR weight IS NULL" if weighted else ""
    counts = connection.execute(
        "SELECT COUNT(*), SUM(CASE WHEN source = target THEN 1 ELSE 0 END), "
        f"SUM(CASE WHEN {fault} THEN 1 ELSE 0 END) FROM edge_rows"
    ).fetchone()
    first, second = ("source", "target") if directed else ("LEAST(source, target)", "GREATEST(source, target)")
    # The sum in double does not depend on the order of rows, unless weights differ by more than 2²⁹ times.
    merged = f"{_RULES[duplicates]}(CAST(weight AS DOUBLE))"
    total = f", CASE WHEN {merged} < {_BEYOND_FLOAT} THEN CAST({merged} AS FLOAT) END AS weight" if weighted else ""
    connection.execute(
        f"CREATE TABLE simple_edges AS SELECT {first} AS source, {second} AS target{total} FROM edge_rows "
        f"WHERE source <> target GROUP BY {first}, {second}"
    )
    connection.execute(
        "CREATE TABLE vertices AS SELECT ROW_NUMBER() OVER (ORDER BY degree DESC, node) - 1 AS id, node, degree FROM ("
        "SELECT node, SUM(ends) AS degree FROM (SELECT source AS node, 1 AS ends FROM simple_edges UNION ALL "
        "SELECT target AS node, 1 AS ends FROM simple_edges UNION ALL "
        "SELECT source AS node, 0 AS ends FROM edge_rows WHERE source = target) AS found GROUP BY node)"
    )
    numbered = connection.sql(
        f"SELECT s.id AS u, t.id AS v{', e.weight' if weighted else ''} FROM simple_edges AS e "
        "JOIN vertices AS s ON e.source = s.node JOIN vertices AS t ON e.target = t.node"
    )
    heavy = "SELECT source, target FROM simple_edges WHERE weight IS NULL ORDER BY source, target LIMIT 1"
    too_heavy = connection.execute(heavy).fetchall() if weighted else []
    read, loops, bad = (int(count or 0) for count in counts)
    return Relations(connection.table("vertices"), numbered, read, loops, bad, too_heavy, dropped)
