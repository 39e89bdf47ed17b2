"""Sources in databases and lakehouses: snapshots named by content, taken again only where rows may have changed."""

import itertools
import sqlite3
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.request import read_tables
from superworkflow.infra.storage.warehouse import databases, ranges
from superworkflow.infra.storage.warehouse import snapshots as module
from superworkflow.infra.storage.warehouse.address import TableAddress
from superworkflow.infra.storage.warehouse.databases import is_away, open_session
from superworkflow.infra.storage.warehouse.snapshots import TableSnapshots
from tests.sweeps.conftest import Postgres
from tests.warehouse import postgres_with_vectors

PAIRS = [(f"v{i}", i * 7 % 40) for i in range(200)]
TABLE = pa.table({"source": [first for first, _ in PAIRS], "target": [second for _, second in PAIRS]})


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres_with_vectors() as found:
        with psycopg.connect(found.url) as connection:
            connection.execute("CREATE TABLE pairs (source text, target bigint)")
            with connection.cursor().copy("COPY pairs FROM STDIN") as copy:
                for pair in PAIRS:
                    copy.write_row(pair)
        yield found


def read(address: str, store: Path, **settings: Any) -> pa.Table:
    uris, _ = read_tables({"source": address}, str(store), **settings)
    assert Path(uris["source"]).parent == store / "snapshots"
    return pq.read_table(uris["source"])


def refused(address: str, store: Path) -> str:
    with pytest.raises(UserError) as caught:
        read(address, store)
    assert "\n" not in str(caught.value).strip().split("\n  ")[0]
    return str(caught.value)


def test_one_table_from_four_databases_is_one_file(server: Postgres, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with sqlite3.connect(tmp_path / "graph.db") as lite:
        lite.execute("CREATE TABLE pairs (source TEXT, target INTEGER)")
        lite.executemany("INSERT INTO pairs VALUES (?, ?)", PAIRS)
    with duckdb.connect(str(tmp_path / "graph.duckdb")) as duck:
        duck.execute("CREATE TABLE pairs (source VARCHAR, target BIGINT)")
        duck.executemany("INSERT INTO pairs VALUES (?, ?)", PAIRS)
    found = [
        read(f"{server.url}?table=public.pairs", tmp_path),
        read(f"{server.url}?query=SELECT source, target FROM pairs WHERE target < 1000", tmp_path),
        read(f"sqlite:///{tmp_path}/graph.db?table=pairs", tmp_path),
        read(f"duckdb:///{tmp_path}/graph.duckdb?table=pairs", tmp_path),
        read(f"sqlite+pysqlite:///{tmp_path}/graph.db?table=pairs", tmp_path),
    ]
    assert all(each.equals(TABLE) for each in found)
    assert len(list((tmp_path / "snapshots").glob("*.parquet"))) == 1


def test_other_types_are_plain(server: Postgres, tmp_path: Path) -> None:
    columns = "1.25::numeric AS n, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid AS u, ARRAY[1.0,2.0]::real[] AS v"
    columns += ", '1 month 2 days'::interval AS i"
    found = read(f"{server.url}?query=SELECT {columns}", tmp_path)
    assert found.to_pylist() == [
        {
            "n": 1.25,
            "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "v": [1.0, 2.0],
            "i": "MonthDayNano(months=1, days=2, nanoseconds=0)",
        }
    ]


def test_decimals_without_fraction_keep_all_digits(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "graph.duckdb")) as duck:
        duck.execute("CREATE TABLE wide AS SELECT 9007199254740993::DECIMAL(38, 0) AS id, 7::DECIMAL(18, 0) AS few")
        duck.execute("ALTER TABLE wide ADD COLUMN kind ENUM('a', 'b') DEFAULT 'b'")
    found = read(f"duckdb:///{tmp_path}/graph.duckdb?query=SELECT *, 1.5 AS part, 2::HUGEINT AS h FROM wide", tmp_path)
    assert found.to_pylist() == [{"id": "9007199254740993", "few": 7, "kind": "b", "part": 1.5, "h": "2"}]


def test_types_of_sqlite_are_those_of_all_values(tmp_path: Path) -> None:
    """The driver takes the types of the first 1,024 rows, and writes numbers among text with seven digits."""
    rows = [(i, i, None, None, i) for i in range(2000)]
    rows += [("x", 0.5, "late", 1, None), (123456789.25, 1, b"y", 2, None)]
    with sqlite3.connect(tmp_path / "graph.db") as lite:
        lite.execute('CREATE TABLE mixed (a, b, "c""d", e INTEGER, f)')
        lite.executemany("INSERT INTO mixed VALUES (?, ?, ?, ?, ?)", rows)
    for read_by in ("table=mixed", "query=SELECT * FROM mixed -- all"):
        found = read(f"sqlite:///{tmp_path}/graph.db?{read_by}", tmp_path).to_pydict()
        assert found["a"] == [*map(str, range(2000)), "x", "123456789.25"]
        assert found["b"] == [*map(float, range(2000)), 0.5, 1.0]
        assert found['c"d'] == [None] * 2000 + ["late", "y"]
        assert found["e"] == [None] * 2000 + [1, 2]
        assert found["f"] == [*range(2000), None, None]
    said = refused(f"sqlite+pysqlite:///{tmp_path}/graph.db?table=mixed", tmp_path)
    assert "Could not convert 'x'" in said
    assert "CAST(" in said


def test_types_that_only_later_rows_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "_BATCH", 2)
    rows = [(None, 1, "a"), (None, 2, "b"), ("x", 2.5, "c"), (None, 4, "d"), ("y", 5, None)]
    with sqlite3.connect(tmp_path / "graph.db") as lite:
        lite.execute("CREATE TABLE late (a, b, c)")
        lite.executemany("INSERT INTO late VALUES (?, ?, ?)", rows)
    found = read(f"sqlite+pysqlite:///{tmp_path}/graph.db?table=late", tmp_path)
    assert list(zip(*found.to_pydict().values(), strict=True)) == rows


def test_unchanged_table_is_not_read_again(server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    original = module.write_parquet
    monkeypatch.setattr(module, "write_parquet", lambda *given: reads.append(1) or original(*given))
    address = f"{server.url}?table=copy"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE copy AS SELECT * FROM pairs")
        changes = [
            "INSERT INTO copy VALUES ('new', 1)", "DELETE FROM copy WHERE source = 'new'",
            "UPDATE copy SET target = target + 1 WHERE source = 'v7'", "ALTER TABLE copy RENAME target TO goal",
            "BEGIN; DELETE FROM copy WHERE source = 'v3'; INSERT INTO copy VALUES ('v3', 9); COMMIT",
            "BEGIN; TRUNCATE copy; INSERT INTO copy SELECT * FROM pairs; COMMIT",
        ]  # fmt: skip
        read(address, tmp_path)
        for change in changes:
            connection.execute(change)
            found, before = read(address, tmp_path), len(reads)
            rows = connection.execute("SELECT * FROM copy").fetchall()
            assert sorted(zip(*found.to_pydict().values(), strict=True)) == sorted(rows), change
            read(address, tmp_path)
            assert len(reads) == before, change
    assert len(reads) == len(changes), "one leads back to rows that were read before"
    read(f"{server.url}?watermark=target&table=pairs", tmp_path)
    before = len(reads)
    read(f"{server.url}?watermark=target&table=pairs", tmp_path)
    assert len(reads) == before


def test_tables_of_one_run_are_of_one_state(server: Postgres, tmp_path: Path) -> None:
    """A writer moves a row from one table to another all the time: both tables together always have it once."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE here AS SELECT generate_series(1, 20000) AS n")
        connection.execute("CREATE TABLE there (n int)")
        connection.execute("INSERT INTO there VALUES (0)")
    over = threading.Event()

    def move() -> None:
        with psycopg.connect(server.url, autocommit=True) as connection:
            while not over.is_set():
                connection.execute(
                    "WITH gone AS (DELETE FROM here WHERE n = (SELECT min(n) FROM here) RETURNING n)"
                    " INSERT INTO there SELECT n FROM gone"
                )

    writer = threading.Thread(target=move)
    writer.start()
    try:
        addresses = {name: TableAddress.parse(f"{server.url}?table={name}") for name in ("here", "there")}
        for _ in range(3):
            with TableSnapshots(str(tmp_path)) as snapshots:
                taken = snapshots.take({name: each for name, each in addresses.items() if each is not None})
            rows = [value for each in taken.values() for value in pq.read_table(each.uri)["n"].to_pylist()]
            assert sorted(rows) == list(range(20001))
    finally:
        over.set()
        writer.join()


RANGES = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%ctid >=%' AND pid <> pg_backend_pid()"


@pytest.fixture
def long_table(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> tuple[str, pa.Table]:
    """Address of a table that is read in ranges, more of them than are read ahead, and its rows in one stream."""
    monkeypatch.setattr(ranges, "available_cpus", lambda: 4)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS long")
        connection.execute("CREATE TABLE long AS SELECT n, 'v' || n % 97 AS name FROM generate_series(1, 9000) AS n")
        connection.execute("CREATE INDEX ON long (name, n); DELETE FROM long WHERE n % 7 = 0")
        connection.execute("VACUUM long")
    address = f"{server.url}?table=long"
    expected = joined(f"{server.url}?options=-crandom_page_cost%3D0.001&table=long")  # an index would be cheaper
    assert expected["n"].to_pylist() == [n for n in range(1, 9001) if n % 7]
    monkeypatch.setattr(ranges, "BLOCKS", 2)
    return address, expected


def joined(address: str, between: Any = None) -> pa.Table:
    """The rows of a table; `between` is called when the first have been read."""
    found = TableAddress.parse(address)
    assert found is not None
    session = open_session(found)
    try:
        tables = session.read(found)
        first = next(tables)
        if between is not None:
            between()
        return pa.concat_tables([first, *tables])
    finally:
        session.close()


def test_ranges_are_the_rows_of_one_stream(server: Postgres, long_table: tuple[str, pa.Table]) -> None:
    """Also where rows are written, moved and deleted between them."""
    address, expected = long_table
    readers = []

    def write() -> None:
        with psycopg.connect(server.url, autocommit=True) as connection:
            end = time.monotonic() + 30  # the first range may be read before other connections begin
            while len(found := connection.execute(RANGES).fetchall()) < 4 and time.monotonic() < end:
                time.sleep(0.05)
            readers.extend(found)
            connection.execute("UPDATE long SET name = 'moved' WHERE n % 3 = 0; DELETE FROM long WHERE n > 5000")
            connection.execute("INSERT INTO long SELECT n, 'new' FROM generate_series(1, 9000) AS n")

    assert joined(address, write).equals(expected)
    assert len(readers) == 4
    assert not joined(address).equals(expected)


def test_lost_range_begins_again(
    server: Postgres, long_table: tuple[str, pa.Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    address, expected = long_table
    tries = []
    original = module.write_parquet

    def write(tables: Iterator[pa.Table], path: Path) -> int:
        first = next(tables)
        if not tries:
            with psycopg.connect(server.url) as connection:
                connection.execute(f"SELECT pg_terminate_backend(pid) FROM ({RANGES} LIMIT 1) AS one")
        tries.append(1)
        return original(itertools.chain([first], tables), path)

    monkeypatch.setattr(module, "write_parquet", write)
    assert read(address, tmp_path).equals(expected)
    assert len(tries) == 2


def test_one_stream_where_ranges_cannot_be(
    server: Postgres, long_table: tuple[str, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """No permission to share the snapshot, or somebody waits to change the table, who waits for this reader."""
    monkeypatch.setattr(ranges, "read_ahead", lambda *_: pytest.fail("read in ranges"))
    address, expected = long_table
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE plain LOGIN; GRANT SELECT ON long TO plain")
        connection.execute("REVOKE EXECUTE ON FUNCTION pg_export_snapshot() FROM PUBLIC")
        assert joined(address.replace("sweeper@", "plain@")).equals(expected)
        connection.execute("GRANT EXECUTE ON FUNCTION pg_export_snapshot() TO PUBLIC")
        found = TableAddress.parse(address)
        assert found is not None
        session = open_session(found)
        session.fingerprint(found)
        change = threading.Thread(target=lambda: psycopg.connect(server.url).execute("LOCK TABLE long"))
        change.start()
        while connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
            time.sleep(0.01)
        assert pa.concat_tables(session.read(found)).equals(expected)
        session.close()
        change.join()


def test_faults_are_one_sentence_each(
    server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    secret = "s3cr3t:/%41@"
    guarded = server.guarded("library", secret).replace("+psycopg", "")
    address = guarded.replace(secret, "${LIBRARY_PASSWORD}") + "?query=SELECT 1 AS source, 2 AS target"
    assert "no such variable" in refused(address, tmp_path)
    monkeypatch.setenv("LIBRARY_PASSWORD", "wrong")
    assert "password authentication failed" in refused(address, tmp_path)
    monkeypatch.setenv("LIBRARY_PASSWORD", secret)
    assert read(address, tmp_path).num_rows == 1
    with pytest.raises(UserError, match="a deployed run reads no such variable"):
        read(address, tmp_path, deployed=True)
    said = refused(guarded.replace(secret, "s3cr3t") + "?table=pairs", tmp_path)
    assert "must not contain a password" in said
    assert "s3cr3t" not in said
    assert not any("s3cr3t" in path.read_text(errors="ignore") for path in tmp_path.rglob("*") if path.is_file())

    assert 'relation "nothing" does not exist' in refused(f"{server.url}?table=nothing", tmp_path)
    assert "names no table" in refused(server.url, tmp_path)
    assert "two columns have one name" in refused(f"{server.url}?query=SELECT 1 AS a, 2 AS a", tmp_path)
    assert "has no row" in refused(f"{server.url}?query=SELECT * FROM pairs WHERE false", tmp_path)
    assert "keeps no earlier versions" in refused(f"{server.url}?as_of=3&table=pairs", tmp_path)
    assert "four slashes" in refused("sqlite:///nowhere.db?table=pairs", tmp_path)
    monkeypatch.setattr(module, "PATIENCE_S", 0.3)
    assert "Connection refused" in refused("postgresql://me@127.0.0.1:1/none?table=pairs", tmp_path)


@pytest.mark.parametrize(
    ("text", "away"),
    [
        ("Failed to prepare query: server closed the connection unexpectedly", True),
        ("[libpq] Failed to connect: Connection refused", True),
        ("No such file or directory", False),
        ('[libpq] FATAL: database "none" does not exist', False),
    ],
)
def test_errors_after_which_another_try_may_succeed(text: str, away: bool) -> None:
    assert is_away(OSError(text)) == away


def test_database_that_is_away_is_waited_for(server: Postgres, tmp_path: Path) -> None:
    server.stop()
    back = threading.Timer(1.5, server.start)
    back.start()
    began = time.monotonic()
    try:
        assert read(f"{server.url}?table=pairs", tmp_path).equals(TABLE)
    finally:
        back.join()
    assert time.monotonic() - began > 1


def test_versions_of_delta(tmp_path: Path) -> None:
    delta = pytest.importorskip("deltalake")
    lake = tmp_path / "lake"
    delta.write_deltalake(lake, TABLE.slice(0, 150))
    time.sleep(0.01)
    between = datetime.now(UTC).isoformat()
    delta.write_deltalake(lake, TABLE.slice(150), mode="append")
    store = tmp_path / "store"
    assert sorted(read(str(lake), store)["source"].to_pylist()) == sorted(TABLE["source"].to_pylist())
    for old in (read(f"{lake}?as_of=0", store), read(f"delta://{lake}", store, as_of=between)):
        assert old.equals(TABLE.slice(0, 150))
    with TableSnapshots(str(store)) as snapshots:
        versions = [
            snapshots.state(found) for text in (f"{lake}", f"{lake}?as_of=0") if (found := TableAddress.parse(text))
        ]
    assert len(set(versions)) == 2
    assert "cannot be read" in refused(f"{lake}?as_of=7", store)
    assert "has no such version, or none yet (got '2020-01-01" in refused(f"{lake}?as_of=2020-01-01", store)


def test_versions_of_iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    prefix = "PYICEBERG_CATALOG__LIBRARY__"
    for name, value in {
        "URI": f"sqlite:///{tmp_path}/catalog.db",
        "WAREHOUSE": f"file://{tmp_path}",
        "TYPE": "sql",
    }.items():
        monkeypatch.setenv(prefix + name, value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it is read when the module is imported
    catalog = load_catalog("library")
    catalog.create_namespace("graphs")
    table = catalog.create_table("graphs.pairs", TABLE.schema)
    table.append(TABLE.slice(0, 150))
    first = table.current_snapshot()
    assert first is not None
    table.append(TABLE.slice(150))
    store, address = tmp_path / "store", "iceberg://library/graphs.pairs"
    assert sorted(read(address, store)["source"].to_pylist()) == sorted(TABLE["source"].to_pylist())
    assert read(f"{address}?as_of={first.snapshot_id}", store).equals(TABLE.slice(0, 150))
    assert "cannot be read" in refused("iceberg://library/graphs.none", store)
