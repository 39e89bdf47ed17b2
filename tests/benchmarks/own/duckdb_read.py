"""DuckDB's bare read of an edge list: both columns of every row parsed as text into a table in memory.

python -m tests.benchmarks.own.duckdb_read EDGES.csv THREADS
"""

import sys

import duckdb

from tests.benchmarks.peers.serving import Clock, serve


def read() -> dict[str, float]:
    connection = duckdb.connect(config={"threads": int(sys.argv[2])})
    with Clock() as clock:
        connection.execute(
            "CREATE TEMP TABLE edges AS SELECT * FROM read_csv(?, header = true, all_varchar = true)", [sys.argv[1]]
        )
    (rows,) = connection.execute("SELECT count(*) FROM edges").fetchone() or (0,)
    return {"edges": rows, **clock.seconds()}


serve(lambda request: {}, read)
