"""DuckDB as a reader of files that the text kernels leave to it, and as the engine of the relational definition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from tasks.index.source import NUMBER, Dialect

_BATCH_ROWS = 1 << 20
_UNUSED = "\x01"


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


def rows_query(path: str, dialect: Dialect) -> str:
    """SQL of the rows of a file: source and target (VARCHAR), and weight (FLOAT, null if not a positive number)."""
    source, target, weight = dialect.columns
    if dialect.kind == "parquet":
        names = [_identifier(dialect.names[column]) for column in dialect.columns if column >= 0]
        table, ends = f"read_parquet({_literal(path)})", [f"CAST({name} AS VARCHAR)" for name in names[:2]]
        number = f"TRY_CAST({names[2]} AS FLOAT)" if weight >= 0 else ""
    elif dialect.kind == "whitespace":
        table = (
            f"(SELECT string_split_regex(line, '[ \\t]+') AS f FROM (SELECT trim(line, E' \\t\\r') AS line FROM "
            f"{_read_csv(path, dialect, _UNUSED, 1, ['line'])}) WHERE line <> '' AND line[1] NOT IN ('#', '%'))"
        )
        ends = [f"f[{source + 1}]", f"f[{target + 1}]"]
        number = _number(f"f[{weight + 1}]")
    else:
        count = dialect.width
        names = [f"c{column}" for column in range(count)]
        table = _read_csv(path, dialect, dialect.separator, count, names)
        ends = [names[source], names[target]]
        number = _number(names[weight])
    chosen = f"{ends[0]} AS source, {ends[1]} AS target"
    if weight >= 0:
        chosen += f", CASE WHEN {number} > 0 AND isfinite({number}) THEN {number} END AS weight"
    return f"SELECT {chosen} FROM {table}"


def _number(column: str) -> str:
    return f"CASE WHEN regexp_full_match({column}, '{NUMBER}') THEN CAST(TRY_CAST({column} AS DOUBLE) AS FLOAT) END"


def _read_csv(path: str, dialect: Dialect, delimiter: str, count: int, names: list[str]) -> str:
    columns = ", ".join(f"'{name}': 'VARCHAR'" for name in names[:count])
    quote = '"' if dialect.kind == "csv" else ""
    compression = "gzip" if dialect.gzipped else "none"
    return (
        f"read_csv({_literal(path)}, auto_detect=false, header=false, skip={dialect.skipped_lines}, "
        f"delim={_literal(delimiter)}, quote='{quote}', escape='{quote}', compression='{compression}', "
        f"columns={{{columns}}}, strict_mode=false)"
    )


def label_batches(
    connection: Any, path: str, dialect: Dialect
) -> Iterator[tuple[list[Any], NDArray[np.float32] | None, int]]:
    """Rows in batches: Arrow columns of source and target, weights (NaN where bad) or None, and how many are bad."""
    for batch in connection.sql(rows_query(path, dialect)).to_arrow_reader(_BATCH_ROWS):
        if not batch.num_rows:
            continue
        columns = [batch.column(0), batch.column(1)]
        bad = sum(int(column.null_count) for column in columns)
        weights = None
        if dialect.weighted:
            bad += int(batch.column(2).null_count)
            weights = batch.column(2).to_numpy(zero_copy_only=False).astype(np.float32)
        yield columns, weights, bad


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
