"""DuckDB as the reader of Parquet files, and as the engine of the relational definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from superworkflow.tasks.lib.edge_list.dialect import Dialect
from superworkflow.tasks.lib.edge_list.edge_files import EdgeFile
from superworkflow.tasks.lib.edge_list.missing_ids import missing_sql
from superworkflow.tasks.lib.edge_list.text_rows import BadRow, ParsedRows, cut_rows

_BATCH_ROWS = 1 << 20


def connect(memory_bytes: int, threads: int, scratch: Path) -> Any:
    """A database that spills to `scratch` beyond `memory_bytes`."""
    folder = scratch / "duckdb"
    folder.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {
        "memory_limit": f"{memory_bytes // 1_000_000}MB",
        "threads": threads,
        "temp_directory": str(folder),
    }
    return duckdb.connect(config=settings)


def lacks_memory(error: Exception) -> bool:
    """True if an error is that of a database without room for its work; also one that came through Arrow."""
    return isinstance(error, duckdb.OutOfMemoryException | MemoryError) or "Out of Memory Error" in str(error)


def rows_query(connection: Any, path: str, dialect: Dialect) -> str:
    """SQL of the rows of a Parquet file: source and target (VARCHAR), weight (FLOAT, null if no weight), time.

    Rows that are dropped for a missing id have two empty names; other rows without one have nulls.
    """
    table = f"read_parquet({path_literal(path)}, hive_partitioning=false)"
    # By their place: where columns differ in case only, DuckDB knows all but the first by another name.
    names = connection.sql(f"SELECT * FROM {table}").columns
    source, target, weight = dialect.columns
    ends = [f"CAST({_identifier(names[column])} AS VARCHAR)" for column in (source, target)]
    gone = " OR ".join(map(missing_sql, ends)) if dialect.missing != "keep" else ""
    if dialect.sides:
        ends = [f"{_literal(prefix)} || NULLIF({end}, '')" for prefix, end in zip(dialect.sides, ends, strict=True)]
    if gone:
        nothing = "''" if dialect.missing == "drop" else "NULL"
        ends = [f"CASE WHEN {gone} THEN {nothing} ELSE {end} END" for end in ends]
    chosen = f"{ends[0]} AS source, {ends[1]} AS target"
    if dialect.relation >= 0:
        chosen += f", CAST({_identifier(names[dialect.relation])} AS VARCHAR) AS relation"
    if weight >= 0:
        number = signed = f"TRY_CAST({_identifier(names[weight])} AS FLOAT)"
        if dialect.negative == "drop":
            table += f" WHERE {signed} IS NULL OR NOT {signed} < 0"
        elif dialect.negative == "absolute":
            number = f"abs({signed})"
        valid = "" if dialect.negative == "keep" else f"{number} > 0 AND "
        dropped = f"WHEN {gone} THEN 1 " if dialect.missing == "drop" else ""
        chosen += f", CASE {dropped}WHEN {valid}isfinite({number}) THEN {number} END AS weight"
    if dialect.times is not None and dialect.times.read:
        chosen += f", CAST({_identifier(names[dialect.times.column])} AS VARCHAR) AS time"
    for place, column in enumerate(dialect.texts):
        chosen += f", coalesce(CAST({_identifier(names[column])} AS VARCHAR), '') AS text{place}"
    return f"SELECT {chosen} FROM {table}"


def label_batches(connection: Any, path: str, dialect: Dialect) -> Iterator[ParsedRows]:
    """Rows of a Parquet file in batches.

    Raises:
        BadRow: a label or weight is missing, or the weight is no positive number.
    """
    for batch in connection.sql(rows_query(connection, path, dialect)).to_arrow_reader(_BATCH_ROWS):
        if not batch.num_rows:
            continue
        columns, kept = cut_rows(batch.columns, dialect)
        if any(column.null_count for column in columns):
            raise BadRow
        weights = columns.pop().to_numpy() if dialect.weighted else None
        yield [*columns, *kept], weights


def rows_of(connection: Any, files: Sequence[EdgeFile]) -> Iterator[ParsedRows]:
    """Rows of Parquet files, read by a cursor of their own, so that the connection may write what comes."""
    for path, dialect, _ in files:
        yield from label_batches(connection.cursor(), str(path), dialect)


def make_rows(connection: Any, name: str, weighted: bool, batches: Iterator[ParsedRows]) -> None:
    """A table of source, target and perhaps weight, of rows in batches."""
    weight = ", weight FLOAT" if weighted else ""
    connection.execute(f"CREATE TABLE {name} (source VARCHAR, target VARCHAR{weight})")
    for columns, weights in batches:
        arrays = [*columns, pa.array(weights)] if weights is not None else columns
        connection.register("batch", pa.table(arrays, ["source", "target", "weight"][: len(arrays)]))
        connection.execute(f"INSERT INTO {name} SELECT * FROM batch")
    connection.unregister("batch")


def path_literal(path: str) -> str:
    """SQL of a path in which DuckDB sees no pattern."""
    return _literal("".join(f"[{letter}]" if letter in "*?[" else letter for letter in path))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
