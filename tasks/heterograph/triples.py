"""Triples head, relation, tail as tables of a schema: one node set; for each relation an edge set and its reverse."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import StageRun
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.heterograph import NODE_SET, TIMESTAMP, HeterographParams
from superworkflow.tasks.heterograph.edge_rows import edge_rows
from superworkflow.tasks.index import IndexParams
from superworkflow.tasks.index.run import unpacked_parquet
from superworkflow.tasks.lib.edge_list.edge_columns import relation_column
from superworkflow.tasks.lib.edge_list.edge_files import edge_files
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings
from superworkflow.tasks.lib.graph.relation_names import REVERSE, safe_names
from superworkflow.tasks.lib.graph.schema import (
    EDGE_TYPE,
    REVERSED,
    SCHEMA_FILE,
    EdgeSetSchema,
    GraphSchema,
    Metadata,
    NodeSetSchema,
    SchemaFeature,
    schema_text,
)

MOST_RELATIONS = 1000


def write_tables(job: StageRun[HeterographParams], folder: Path) -> Source:
    """Write a schema and a Parquet table for each relation, and return the schema as a source.

    Raises:
        UserError: the file cannot be read, has no triples, or more than `MOST_RELATIONS` relations.
    """
    given = job.sources["edges"]
    params = job.params
    reading = IndexParams(format="triples", time=params.time, from_time=params.from_time, until=params.until)
    files = unpacked_parquet(edge_files(given, reading, job.scratch), job.scratch)
    dialect = files[0].dialect
    column = relation_column(dialect.names, dialect.columns)
    files = [file._replace(dialect=replace(file.dialect, relation=column)) for file in files]
    timed = params.time is not None
    if timed:
        files = [file._replace(dialect=file.dialect.with_times()) for file in files]
    job.progress.log(dialect.describe())
    log_warnings(job.progress, dialect.warnings)
    parts: dict[str, list[pa.Table]] = defaultdict(list)
    for columns, _ in edge_rows(job, files, given.uri):
        table = pa.table(columns, ["source", "target", "relation", TIMESTAMP][: len(columns)])
        for name in pc.unique(table.column("relation")).to_pylist():
            parts[name].append(table.filter(pc.equal(table.column("relation"), name)).drop_columns("relation"))
        if len(parts) > MOST_RELATIONS:
            raise UserError(
                f"there are more than {MOST_RELATIONS} relations, each of which would be an edge set",
                where=given.uri, value=", ".join(list(parts)[:3]),
                remedy="Keep the relations with most triples, or give related ones one name",
            )  # fmt: skip
    names = safe_names(sorted(parts, key=str.encode))
    features = (SchemaFeature(TIMESTAMP, "int64"),) if timed else ()
    edges: dict[str, EdgeSetSchema] = {}
    for number, (relation, name) in enumerate(names.items()):
        file = f"relation-{number}.parquet"
        pq.write_table(pa.concat_tables(parts.pop(relation)), folder / file)
        edges[name] = EdgeSetSchema(name, NODE_SET, NODE_SET, features, Metadata(file))
        back = f"{REVERSE}{name}"
        edges[back] = EdgeSetSchema(back, NODE_SET, NODE_SET, features, Metadata(file, None, ((EDGE_TYPE, REVERSED),)))
    schema = GraphSchema({NODE_SET: NodeSetSchema(NODE_SET)}, edges)
    (folder / SCHEMA_FILE).write_text(schema_text(schema), encoding="utf-8")
    made = Source.of(folder / SCHEMA_FILE)
    made.read_as(tables="superworkflow.tasks.lib.importers.dgl_chunked:named_tables", inside=SCHEMA_FILE)
    return made
