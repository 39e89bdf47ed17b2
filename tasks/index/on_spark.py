"""The index stage on Spark: the relational definition there, and rows that executors write to the store.

No task holds more than a block of the graph; the driver holds counts only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.spark.session import spark_session
from superworkflow.infra.engines.spark.tasks import run_tasks, spark_errors
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.part_files import part_uri
from superworkflow.infra.storage.scratch import Scratch
from superworkflow.tasks.index import IndexParams
from superworkflow.tasks.index.relational import Relations
from superworkflow.tasks.index.spark_csr import FILES, cut, write_files
from superworkflow.tasks.index.spark_rows import FilePart, parts_of, rows_of, whole_file
from superworkflow.tasks.index.spark_steps import kept, number_vertices, row_lengths, trim
from superworkflow.tasks.lib.edge_list.diagnose import bad_row, duplicate_edge, no_edges, too_heavy
from superworkflow.tasks.lib.edge_list.dialect import Dialect
from superworkflow.tasks.lib.edge_list.edge_files import EdgeFile, detect_files, opened
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings, warning_stats


def run(job: StageRun[IndexParams]) -> Output:
    """Index one edge list; see `tasks.index.run`."""
    source, params = job.sources["edges"], job.params
    files = [(part_uri(source, name), found) for name, found in detect_files(source, params, partial(opened, source))]
    dialect = files[0][1]
    job.progress.log(dialect.describe())
    log_warnings(job.progress, dialect.warnings)
    # Tables that are sent to all executors would go through the driver.
    with spark_session(job, {"spark.sql.autoBroadcastJoinThreshold": "-1"}) as session, spark_errors():
        parts = [part for i, (uri, each) in enumerate(files) for part in parts_of(Location.of(uri), each, i)]
        found = _relations(session, files, parts, params)
        if found.bad_rows and dialect.kind == "csv" and not all(part.is_whole for part in parts):
            session.catalog.clearCache()
            job.progress.log("fields are quoted; one task reads the whole of a file")
            found = _relations(session, files, [FilePart(file=i) for i in range(len(files))], params)
        if found.bad_rows:
            raise _named(session, Faulty(source.uri, files))
        if found.dropped:
            job.progress.log(f"{found.dropped} rows without an id are left out")
        if found.too_heavy:
            raise too_heavy(found.too_heavy, params.directed, source.uri)
        return _write(job, session, found, files)


def _relations(session: Any, files: list[tuple[str, Dialect]], parts: list[FilePart], params: IndexParams) -> Relations:
    from fugue_spark import SparkExecutionEngine  # type: ignore[import-untyped]
    from fugue_spark.dataframe import SparkDataFrame  # type: ignore[import-untyped]

    from superworkflow.tasks.index import relational

    return relational.index(
        SparkExecutionEngine(session), SparkDataFrame(kept(rows_of(session, files, parts))),
        directed=params.directed, weighted=files[0][1].weighted, duplicates=params.duplicates,
        keep=lambda frame, name: SparkDataFrame(kept(frame.native)),
        number=lambda engine, degrees: SparkDataFrame(number_vertices(degrees.native)),
        drop=files[0][1].missing == "drop",
    )  # fmt: skip


def _write(job: StageRun[IndexParams], session: Any, found: Relations, files: list[tuple[str, Dialect]]) -> Output:
    from pyspark.sql import functions as f

    params, source, dialect = job.params, job.sources["edges"], files[0][1]
    vertices, numbered = found.vertices.native, found.edges.native
    weight = ["weight"] if dialect.weighted else []
    if not params.directed:
        numbered = numbered.select(f.least("u", "v").alias("u"), f.greatest("u", "v").alias("v"), *weight)
    edges = kept(numbered)
    before = edges.count()
    if not before:
        raise no_edges(found.rows, dialect, source.uri)
    duplicates = found.rows - found.self_loops - before
    if duplicates and params.duplicates == "error":
        raise _named(session, Faulty(source.uri, files, params.directed, duplicates))
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
    """Files with a row to find: one that cannot be read, or one that repeats an edge where there are `duplicates`."""

    uri: str
    files: list[tuple[str, Dialect]]
    directed: bool = False
    duplicates: int = 0


def _named(session: Any, file: Faulty) -> UserError:
    """The error for the first such row, found by one task that reads all of them."""
    run_tasks(session, _raise_for, [file])
    raise AssertionError("the search for a bad row always ends in an error")


def _raise_for(file: Faulty) -> None:
    def local() -> Iterator[EdgeFile]:
        for uri, dialect in file.files:
            with Scratch("search") as folder:
                path = whole_file(Location.of(uri), dialect, folder)
                yield EdgeFile(path, replace(dialect, gzipped=False) if dialect.kind == "parquet" else dialect, uri)

    if file.duplicates:
        raise duplicate_edge(local(), file.directed, file.uri, file.duplicates)
    raise bad_row(local(), file.uri)
