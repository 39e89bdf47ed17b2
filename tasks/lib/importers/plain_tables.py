"""Schemas of graphs that lie in plain tables: which columns there are, and of which types, is read from the tables.

A node table has a column `id`, an edge table `source` and `target`; every other column is a feature. Whole numbers
become int64, other numbers float, the types that TF-GNN trains on. Columns of a CSV file have the narrowest type that
fits all of its values; in Parquet a list of one length is a vector, any other list is ragged. Whole numbers and truth
values of which some are missing (`heterograph.values`) become text, which a label may be, too. Columns of Parquet of
other types, such as dates, are left out, as are numbers that are all missing, and lists in which some are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.table_access import TableAccess, find_tables
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.graph.dtypes import MISSING, STRING
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
_FLOAT = "float"
_SHOWN = 5
_SQL_TYPES = {"BOOLEAN": "bool", "BIGINT": "int64", "DOUBLE": "float", "VARCHAR": "string"}


class EdgeTable(NamedTuple):
    """A table of edges from nodes of one set to nodes of another."""

    source: str
    name: str
    target: str
    file: str


def plain_schema(
    folder: Path, nodes: Mapping[str, str], edges: Sequence[EdgeTable], reverse: Mapping[str, str],
    warn: Callable[[InputWarning], None] = lambda warning: None,
) -> GraphSchema:  # fmt: skip
    """The schema of tables.

    Args:
        folder: of the schema, to which names of tables are relative that are not absolute.
        nodes: table by node set; `name@8.csv` names eight shards, and patterns are fine.
        edges: tables of edges.
        reverse: names of further edge sets, each with the set that it reverses.
        warn: called with each warning of columns that are left out, or have missing values.

    Raises:
        UserError: there is no such table, or what is needed is not in it.
    """
    node_sets = {name: NodeSetSchema(name, *_described(folder, file, ("id",), warn)) for name, file in nodes.items()}
    edge_sets: dict[str, EdgeSetSchema] = {}
    for each in edges:
        for end in (each.source, each.target):
            if end not in node_sets:  # a latent set: its nodes are those that edges name
                node_sets[end] = NodeSetSchema(end)
        if each.name in edge_sets:
            raise UserError("two edge sets of one name", where=each.file, value=each.name, remedy="Rename one")
        features, metadata = _described(folder, each.file, ("source", "target"), warn)
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


def _described(
    folder: Path, file: str, ends: Sequence[str], warn: Callable[[InputWarning], None]
) -> tuple[tuple[SchemaFeature, ...], Metadata]:
    """Features and metadata of one table."""
    files = find_tables(Location.of(folder), [file], str(folder), TableAccess(anywhere=True))
    found = [_local(files[name].location) for name in sorted(files)]
    read = [_columns(path) for path in found]
    columns, rows = read[0][0], sum(count for _, count in read)
    kinds = {name: each.kind for name, each in columns.items()}
    for name, (other, _) in zip(found, read, strict=True):
        if {column: each.kind for column, each in other.items()} != kinds:
            raise UserError("files of one table have other columns, or of other types", where=str(name),
                            value=sorted(set(other) ^ set(columns)), remedy=f"See {found[0]}")  # fmt: skip
    for end in ends:
        if end not in columns and f"#{end}" not in columns:
            raise UserError("the table has no such column", where=str(found[0]), value=end,
                            remedy=f"Rename one of: {', '.join(columns)}"[:1000])  # fmt: skip
    features = [name for name in columns if name.removeprefix("#") not in ends]
    where = f"{found[0]}" + (f" and {len(found) - 1} more" if len(found) > 1 else "")
    absent = {name: sum(part[name].missing for part, _ in read) for name in features}
    why = {name: text for name in features if (text := columns[name].fault(absent[name], rows))}
    if why:
        shown = _some([f"{name} ({text})" for name, text in why.items()])
        warn(InputWarning("columns that cannot be features are left out", where, shown,
                          "Write them as numbers or text, and lists without missing values"))  # fmt: skip
    features = [name for name in features if name not in why]
    if lacking := [f"{name}: {absent[name]}" for name in features if absent[name]]:
        warn(InputWarning("values are missing in columns of numbers: whole numbers are described as text, decimals are "
                          "NaN in records, and networks and scores take the column's mean", where, _some(lacking),
                          "Fill them in the table where a mean is no good value"))  # fmt: skip
    return tuple(
        SchemaFeature(name, STRING if absent[name] and each.dtype != _FLOAT else each.dtype, each.shape)
        for name, each in columns.items() if name in features
    ), Metadata(file, rows)  # fmt: skip


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def _local(place: Location) -> Path:
    if place.local_path is None:
        raise UserError("a table must be on this machine to be looked at", where=place.uri,
                        remedy="Describe its set in the schema by hand")  # fmt: skip
    return place.local_path


class Column(NamedTuple):
    """A column of one file.

    Args:
        dtype: type of the feature; of a column that is none, the type in the file.
        shape: of the feature; None is a ragged dimension.
        missing: number of missing values, of single numbers and truth values, and in lists.
        is_other: it is of no type that features have.
    """

    dtype: str
    shape: tuple[int | None, ...] = ()
    missing: int = 0
    is_other: bool = False

    @property
    def kind(self) -> tuple[str, tuple[int | None, ...]]:
        """Type and shape, which all files of a table share."""
        return self.dtype, self.shape

    @property
    def is_number(self) -> bool:
        """True for single numbers and truth values."""
        return not self.shape and not self.is_other and self.dtype != STRING

    def fault(self, missing: int, rows: int) -> str:
        """Reason why it is no feature; empty if it is one.

        Args:
            missing: in all files of the table.
            rows: of these.
        """
        if self.is_other:
            return self.dtype
        if self.shape and missing:
            return f"list of {self.dtype} with missing values"
        return "without values" if self.is_number and missing == rows > 0 else ""


def _columns(path: Path) -> tuple[dict[str, Column], int]:
    """Columns of a file, and its rows."""
    with path.open("rb") as stream:
        is_parquet = stream.read(len(_PARQUET)) == _PARQUET
    if not is_parquet:
        return _of_csv(path)
    try:
        with pq.ParquetFile(path) as file:
            kinds = {field.name: _of_arrow(field.type) for field in file.schema_arrow}
            absent = _nulls(file, {name: each for name, each in kinds.items() if each.is_number or each.shape})
            kinds = {name: each._replace(missing=absent.get(name, 0)) for name, each in kinds.items()}
            return kinds, file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"the table cannot be read: {error}", where=str(path),
                        remedy="Write the file again; it is damaged, or no Parquet") from None  # fmt: skip


def _nulls(file: pq.ParquetFile, columns: Mapping[str, Column]) -> dict[str, int]:
    """Number of missing values of each column, nulls and NaN; in lists nulls alone."""
    counts = dict.fromkeys(columns, 0)
    for name, each in columns.items():
        try:
            for batch in file.iter_batches(columns=[name]):
                values = batch.column(0)
                for _ in each.shape:
                    values = values.flatten()
                counts[name] += pc.sum(pc.is_null(values, nan_is_null=not each.shape)).as_py() or 0
        except pa.ArrowInvalid:
            if not each.shape:
                raise
            counts[name] = 1  # Arrow reads no lists of one length of which some are missing
    return counts


def _of_arrow(kind: pa.DataType) -> Column:
    if pa.types.is_dictionary(kind):
        return _of_arrow(kind.value_type)
    if pa.types.is_fixed_size_list(kind):
        return _list_of(_of_arrow(kind.value_type), kind.list_size, kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_of(_of_arrow(kind.value_type), None, kind)
    for fits, dtype in (
        (pa.types.is_boolean, "bool"), (pa.types.is_integer, "int64"), (pa.types.is_floating, _FLOAT),
        (pa.types.is_decimal, _FLOAT), (pa.types.is_string, STRING), (pa.types.is_large_string, STRING),
        (pa.types.is_string_view, STRING), (pa.types.is_binary, STRING), (pa.types.is_large_binary, STRING),
    ):  # fmt: skip
        if fits(kind):
            return Column(dtype)
    return Column(str(kind), is_other=True)


def _list_of(inner: Column, length: int | None, kind: pa.DataType) -> Column:
    """Column of lists; no feature if these hold lists of several lengths."""
    if None in inner.shape:
        return Column(str(kind), is_other=True)
    return inner._replace(shape=(length, *inner.shape))


def _of_csv(path: Path) -> tuple[dict[str, Column], int]:
    import duckdb

    from superworkflow.tasks.lib.edge_list.duckdb_reader import path_literal

    types = ", ".join(f"'{each}'" for each in _SQL_TYPES)
    absent = ", ".join(
        f"'{form}'" for each in MISSING for form in dict.fromkeys((each, each.upper(), each.title(), "NaN"))
    )
    rows = (
        f"read_csv({path_literal(str(path))}, header = true, delim = ',', quote = '\"', escape = '\"', "
        f"sample_size = -1, auto_type_candidates = [{types}], hive_partitioning = false, nullstr = [{absent}])"
    )
    try:
        with duckdb.connect() as connection:
            found: Any = connection.sql(f"SELECT * FROM {rows}")
            kinds = dict(zip(found.columns, map(str, found.types), strict=True))
            count, *present = connection.sql(f"SELECT count(*), count(COLUMNS(*)) FROM {rows}").fetchall()[0]
    except duckdb.Error as error:
        raise UserError(
            f"the table cannot be read: {' '.join(str(error).split())[:400]}", where=str(path),
            remedy="Give CSV with a header, commas, and as many fields in each row as in the header",
        ) from None  # fmt: skip
    columns = {}
    for (name, kind), there in zip(kinds.items(), present, strict=True):
        dtype = _SQL_TYPES[kind] if there else STRING
        columns[name] = Column(dtype, missing=0 if dtype == STRING else count - there)
    return columns, int(count)
