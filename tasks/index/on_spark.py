"""The index stage on Spark: the relational definition there, and rows that executors write to the store.

No task holds more than a block of the graph; the driver holds counts only.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import Any, cast

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.spark.session import spark_session
from superworkflow.infra.engines.spark.tasks import run_tasks, spark_errors
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.scratch import Scratch
from superworkflow.tasks.index import IndexParams
from superworkflow.tasks.index.relational import Relations
from superworkflow.tasks.index.spark_csr import FILES, cut, write_files
from superworkflow.tasks.index.spark_rows import FilePart, parts_of, rows_of, whole_file
from superworkflow.tasks.index.spark_steps import kept, number_vertices, row_lengths, trim
from superworkflow.tasks.lib.edge_list.detect import Dialect, detect
from superworkflow.tasks.lib.edge_list.diagnose import bad_row, duplicate_edge, too_heavy
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings, warning_stats


def run(job: StageRun[IndexParams]) -> Output:
    """Index one edge list; see `tasks.index.run`."""
    source, params = job.sources["edges"], job.params
    # The lines of an object in a bucket cannot be read with a limit, and are where they come through a buffer.
    with source.location.open() as raw, io.BufferedReader(cast(io.RawIOBase, raw)) as stream:
        dialect = detect(stream, params, source.uri)
    job.progress.log(dialect.describe())
    log_warnings(job.progress, dialect.warnings)
    # Tables that are sent to all executors would go through the driver.
    with spark_session(job, {"spark.sql.autoBroadcastJoinThreshold": "-1"}) as session, spark_errors():
        parts = parts_of(source.location, dialect)
        found = _relations(session, source.uri, dialect, parts, params)
        if found.bad_rows and dialect.kind == "csv" and parts != [FilePart()]:
            session.catalog.clearCache()
            job.progress.log("fields are quoted; one task reads the whole file")
            found = _relations(session, source.uri, dialect, [FilePart()], params)
        if found.bad_rows:
            raise _named(session, Faulty(source.uri, dialect))
        if found.dropped:
            job.progress.log(f"{found.dropped} rows without an id are left out")
        if found.too_heavy:
            raise too_heavy(found.too_heavy, params.directed, source.uri)
        return _write(job, session, found, dialect)


def _relations(session: Any, uri: str, dialect: Dialect, parts: list[FilePart], params: IndexParams) -> Relations:
    from fugue_spark import SparkExecutionEngine  # type: ignore[import-untyped]
    from fugue_spark.dataframe import SparkDataFrame  # type: ignore[import-untyped]

    from superworkflow.tasks.index import relational

    return relational.index(
        SparkExecutionEngine(session), SparkDataFrame(kept(rows_of(session, uri, dialect, parts))),
        directed=params.directed, weighted=dialect.weighted, duplicates=params.duplicates,
        keep=lambda frame, name: SparkDataFrame(kept(frame.native)),
        number=lambda engine, degrees: SparkDataFrame(number_vertices(degrees.native)),
        drop=dialect.missing == "drop",
    )  # fmt: skip


def _write(job: StageRun[IndexParams], session: Any, found: Relations, dialect: Dialect) -> Output:
    from pyspark.sql import functions as f

    params, source = job.params, job.sources["edges"]
    vertices, numbered = found.vertices.native, found.edges.native
    weight = ["weight"] if dialect.weighted else []
    if not params.directed:
        numbered = numbered.select(f.least("u", "v").alias("u"), f.greatest("u", "v").alias("v"), *weight)
    edges = kept(numbered)
    before = edges.count()
    if not before:
        raise UserError(
            "no edges are left: every row is a self-loop" if found.rows else "the file has no rows",
            where=source.uri, value=f"{found.rows} rows", remedy="Give a file with edges between different nodes",
        )  # fmt: skip
    duplicates = found.rows - found.self_loops - before
    if duplicates and params.duplicates == "error":
        raise _named(session, Faulty(source.uri, dialect, params.directed, duplicates))
    graph = kept(row_lengths(vertices, edges, params.directed, untrimmed=True))
    seen = int(graph.agg(f.max("length")).first()[0])
    trimmed_vertices = trimmed_edges = 0
    if params.max_degree is not None and seen > params.max_degree:
        hubs = kept(graph.where(f.col("length") > params.max_degree).select("id"))
        trimmed_vertices = hubs.count()
        edges = kept(trim(edges, hubs, params.directed, params.max_degree, params.seed))
        trimmed_edges = before - edges.count()
        graph = kept(row_lengths(vertices, edges, params.directed, untrimmed=False))
    is_source = f.col("node").startswith(dialect.sides[0]) if dialect.sides else f.lit(False)
    facts = graph.agg(
        f.count("*").alias("vertices"), f.sum("length").alias("arcs"), f.max("length").alias("longest"),
        f.count(f.when(f.col("degree") == 0, 1)).alias("isolated"),
        f.count(f.when(f.col("length") == 0, 1)).alias("sinks"),
        f.count(f.when(is_source, 1)).alias("sources"),
    ).first()  # fmt: skip
    left = before - trimmed_edges
    job.progress.log(f"{facts['vertices']} vertices, {left} edges; writing rows")
    blocks = cut(graph, facts["vertices"])
    job.output.claim(FILES)
    job.output.adopt(write_files(session, job.output.location, graph, edges, blocks, params.directed, dialect.weighted))
    return Output(
        rows=left,
        stats={
            "vertices": facts["vertices"],
            "edges": left,
            "directed_edges": facts["arcs"],
            "directed": params.directed,
            "weighted": dialect.weighted,
            "max_degree": facts["longest"],
            "isolated_vertices": facts["isolated"],
            "sinks": facts["sinks"],
            "bytes": job.output.bytes_written,
            "rows_read": found.rows,
            "self_loops_dropped": found.self_loops,
            "duplicates_merged": duplicates,
            "max_degree_seen": seen,
            "trimmed_vertices": trimmed_vertices,
            "trimmed_edges": trimmed_edges,
            **dialect.name_stats(found.dropped, facts["sources"]),
            **warning_stats(dialect.warnings),
        },
    )


@dataclass(frozen=True)
class Faulty:
    """A file with a row to find: one that cannot be read, or one that repeats an edge where there are `duplicates`."""

    uri: str
    dialect: Dialect
    directed: bool = False
    duplicates: int = 0


def _named(session: Any, file: Faulty) -> UserError:
    """The error for the first such row, found by one task that reads the whole file."""
    run_tasks(session, _raise_for, [file])
    raise AssertionError("the search for a bad row always ends in an error")


def _raise_for(file: Faulty) -> None:
    with Scratch("search") as folder:
        path, dialect = str(whole_file(Location.of(file.uri), file.dialect, folder)), file.dialect
        if dialect.kind == "parquet":
            dialect = replace(dialect, gzipped=False)
        if file.duplicates:
            raise duplicate_edge(path, dialect, file.directed, file.uri, file.duplicates)
        raise bad_row(path, dialect, file.uri)
