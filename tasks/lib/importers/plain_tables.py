"""Schemas of graphs that lie in plain tables: which columns there are, and of which types, is read from the tables.

A node table has a column `id`, an edge table `source` and `target`; every other column is a feature. Whole numbers
become int64, other numbers float, the types that TF-GNN trains on. Columns of a CSV file have the narrowest type that
fits all of its values; in Parquet a list of one length is a vector, any other list is ragged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.table_access import TableAccess, find_tables
from superworkflow.tasks.lib.graph.schema import (
    EDGE_TYPE,
    REVERSED,
    EdgeSetSchema,
    GraphSchema,
    Metadata,
    NodeSetSchema,
    SchemaFeature,
)

_PARQUET = b"PAR1"
_SQL_TYPES = {"BOOLEAN": "bool", "BIGINT": "int64", "DOUBLE": "float", "VARCHAR": "string"}


class EdgeTable(NamedTuple):
    """A table of edges from nodes of one set to nodes of another."""

    source: str
    name: str
    target: str
    file: str


def plain_schema(
    folder: Path, nodes: Mapping[str, str], edges: Sequence[EdgeTable], reverse: Mapping[str, str]
) -> GraphSchema:
    """The schema of tables.

    Args:
        folder: of the schema, to which names of tables are relative that are not absolute.
        nodes: table by node set; `name@8.csv` names eight shards, and patterns are fine.
        edges: tables of edges.
        reverse: names of further edge sets, each with the set that it reverses.

    Raises:
        UserError: there is no such table, or what is needed is not in it.
    """
    node_sets = {name: NodeSetSchema(name, *_described(folder, file, ("id",))) for name, file in nodes.items()}
    edge_sets: dict[str, EdgeSetSchema] = {}
    for each in edges:
        for end in (each.source, each.target):
            if end not in node_sets:  # a latent set: its nodes are those that edges name
                node_sets[end] = NodeSetSchema(end)
        if each.name in edge_sets:
            raise UserError("two edge sets of one name", where=each.file, value=each.name, remedy="Rename one")
        features, metadata = _described(folder, each.file, ("source", "target"))
        edge_sets[each.name] = EdgeSetSchema(each.name, each.source, each.target, features, metadata)
    for name, origin in reverse.items():
        if origin not in edge_sets or name in edge_sets:
            what = "there is no such edge set" if origin not in edge_sets else "there is an edge set of this name"
            value = origin if origin not in edge_sets else name
            raise UserError(what, where=f"{name}={origin}", value=value, remedy=f"There are: {', '.join(edge_sets)}")
        edge_sets[name] = turned(edge_sets[origin], name)
    return GraphSchema(node_sets, edge_sets)


def turned(edges: EdgeSetSchema, name: str) -> EdgeSetSchema:
    """The set that has the edges of another one the other way round, from the same table."""
    metadata = replace(edges.metadata, extra=(*edges.metadata.extra, (EDGE_TYPE, REVERSED)))
    return replace(edges, name=name, source=edges.target, target=edges.source, metadata=metadata)


def _described(folder: Path, file: str, ends: Sequence[str]) -> tuple[tuple[SchemaFeature, ...], Metadata]:
    """Features and metadata of one table."""
    files = find_tables(Location.of(folder), [file], str(folder), TableAccess(anywhere=True))
    found = [_local(files[name].location) for name in sorted(files)]
    each = [_columns(path) for path in found]
    columns, rows = each[0][0], sum(count for _, count in each)
    for name, (other, _) in zip(found, each, strict=True):
        if other != columns:
            raise UserError("files of one table have other columns, or of other types", where=str(name),
                            value=sorted(set(other) ^ set(columns)), remedy=f"See {found[0]}")  # fmt: skip
    for end in ends:
        if end not in columns and f"#{end}" not in columns:
            raise UserError("the table has no such column", where=str(found[0]), value=end,
                            remedy=f"Rename one of: {', '.join(columns)}"[:1000])  # fmt: skip
    features = tuple(SchemaFeature(name, *kind) for name, kind in columns.items() if name.removeprefix("#") not in ends)
    return features, Metadata(file, rows)


def _local(place: Location) -> Path:
    if place.local_path is None:
        raise UserError("a table must be on this machine to be looked at", where=place.uri,
                        remedy="Describe its set in the schema by hand")  # fmt: skip
    return place.local_path


Column = tuple[str, tuple[int | None, ...]]
"""Type and shape."""


def _columns(path: Path) -> tuple[dict[str, Column], int]:
    """Columns of a file, and its rows."""
    with path.open("rb") as stream:
        is_parquet = stream.read(len(_PARQUET)) == _PARQUET
    if not is_parquet:
        return _of_csv(path)
    try:
        with pq.ParquetFile(path) as file:
            kinds = {field.name: _of_arrow(field.type, f"{path}, column {field.name}") for field in file.schema_arrow}
            return kinds, file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"the table cannot be read: {error}", where=str(path),
                        remedy="Write the file again; it is damaged, or no Parquet") from None  # fmt: skip


def _of_arrow(kind: pa.DataType, where: str) -> Column:
    if pa.types.is_dictionary(kind):
        return _of_arrow(kind.value_type, where)
    if pa.types.is_fixed_size_list(kind):
        dtype, shape = _of_arrow(kind.value_type, where)
        return dtype, (kind.list_size, *shape)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        dtype, shape = _of_arrow(kind.value_type, where)
        return dtype, (None, *shape)
    for fits, dtype in (
        (pa.types.is_boolean, "bool"), (pa.types.is_integer, "int64"), (pa.types.is_floating, "float"),
        (pa.types.is_string, "string"), (pa.types.is_large_string, "string"), (pa.types.is_string_view, "string"),
        (pa.types.is_binary, "string"), (pa.types.is_large_binary, "string"),
    ):  # fmt: skip
        if fits(kind):
            return dtype, ()
    raise UserError("a column of this type is no feature", where=where, value=str(kind),
                    remedy="Give numbers, truth values, text, or lists of them")  # fmt: skip


def _of_csv(path: Path) -> tuple[dict[str, Column], int]:
    import duckdb

    from superworkflow.tasks.lib.edge_list.duckdb_reader import path_literal

    types = ", ".join(f"'{each}'" for each in _SQL_TYPES)
    rows = (
        f"read_csv({path_literal(str(path))}, header = true, delim = ',', quote = '\"', escape = '\"', "
        f"sample_size = -1, auto_type_candidates = [{types}], hive_partitioning = false)"
    )
    try:
        with duckdb.connect() as connection:
            found: Any = connection.sql(f"SELECT * FROM {rows}")
            kinds = dict(zip(found.columns, map(str, found.types), strict=True))
            count = connection.sql(f"SELECT count(*) FROM {rows}").fetchall()[0][0]
    except duckdb.Error as error:
        raise UserError(
            f"the table cannot be read: {' '.join(str(error).split())[:400]}", where=str(path),
            remedy="Give CSV with a header, commas, and as many fields in each row as in the header",
        ) from None  # fmt: skip
    return {name: (_SQL_TYPES[kind], ()) for name, kind in kinds.items()}, int(count)
