"""The relational definition gives the same relations on Spark as on DuckDB, without being written again."""

from __future__ import annotations

import random
import shutil

import duckdb
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("fugue_spark")
if shutil.which("java") is None:
    pytest.skip("Spark needs Java", allow_module_level=True)

from fugue_duckdb import DuckExecutionEngine
from fugue_duckdb.dataframe import DuckDataFrame
from fugue_spark import SparkExecutionEngine
from fugue_spark.dataframe import SparkDataFrame
from pyspark.sql import SparkSession

from superworkflow.tasks.index import relational


@pytest.fixture(scope="module")
def spark():
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    yield session
    session.stop()


def test_spark_and_duckdb_agree(spark):
    draw = random.Random(1)
    labels = ["007", "7", "ä", "b", "B", "日本", "z" * 20, *map(str, range(40))]
    rows = [(draw.choice(labels), draw.choice(labels), draw.choice([0.5, 1.0, 2.5])) for _ in range(800)]
    options = {"directed": False, "weighted": True, "duplicates": "sum"}

    engine = SparkExecutionEngine(spark)
    frame = SparkDataFrame(spark.createDataFrame(rows, "source string, target string, weight float"))
    there = relational.index(engine, frame, keep=lambda relation, name: engine.persist(relation), **options)

    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (source VARCHAR, target VARCHAR, weight FLOAT)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)

        def keep(relation, name):
            relation.native.create(name)
            return DuckDataFrame(connection.table(name))

        duck = DuckExecutionEngine(connection=connection)
        here = relational.index(duck, DuckDataFrame(connection.table("t")), keep=keep, **options)
        assert sorted(here.vertices.as_array()) == sorted(there.vertices.as_array())
        assert sorted(here.edges.as_array()) == sorted(there.edges.as_array())
    assert (
        (here.rows, here.self_loops, here.bad_rows)
        == (there.rows, there.self_loops, there.bad_rows)
        == (800, here.self_loops, 0)
    )
    assert len(there.vertices.as_array()) == 46
