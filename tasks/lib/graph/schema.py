"""Schemas of graphs: TF-GNN's `GraphSchema` in text format, read and written without TensorFlow.

A schema names the sets of nodes and edges, their features, and the files of their tables:

    node_sets {
      key: "paper"
      value {
        features { key: "year" value { dtype: DT_INT64 } }
        features { key: "words" value { dtype: DT_FLOAT shape { dim { size: 128 } } } }
        metadata { filename: "papers.parquet" }
      }
    }
    edge_sets {
      key: "cites"
      value { source: "paper" target: "paper" metadata { filename: "cites@8.csv" } }
    }

A dimension of size -1 is ragged. An edge set whose metadata has `extra { key: "edge_type" value: "reversed" }` has the
table of another set, whose edges it has the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.table_files import plain
from superworkflow.tasks.lib.formats.text_format import message_class, parse, written
from superworkflow.tasks.lib.graph.dtypes import DTYPES, STRING

SCHEMA_FILE = "schema.pbtxt"
EDGE_TYPE, REVERSED = "edge_type", "reversed"
_DATA_TYPES = (
    "invalid", "float", "double", "int32", "uint8", "int16", "int8", "string", "complex64", "int64", "bool", "qint8",
    "quint8", "qint32", "bfloat16", "qint16", "quint16", "uint16", "complex128", "half", "resource", "variant",
    "uint32", "uint64",
)  # fmt: skip
"""TensorFlow's types of values by their numbers."""
_GRAPH_TYPES = ("UNDEFINED", "FULL", "SUBGRAPH", "RANDOM_WALKS")
_MESSAGES = {
    "schema": "context: context, node_sets: member_of_node_sets*, edge_sets: member_of_edge_sets*, info: origin",
    "origin": "graph_type: type_of_graph, root_set: string*",
    "context": "features: member_of_features*, metadata: metadata",
    "member_of_node_sets": "key: string, value: node_set",
    "node_set": "description: string, features: member_of_features*, context: string*, metadata: metadata",
    "member_of_edge_sets": "key: string, value: edge_set",
    "edge_set": "description: string, features: member_of_features*, context: string*, source: string, target: string, "
    "metadata: metadata",
    "member_of_features": "key: string, value: feature",
    "feature": "description: string, dtype: data_type, shape: shape, source: string",
    "shape": "dim: dimension*, unknown_rank: bool",
    "dimension": "size: int64, name: string",
    "metadata": "extra: member_of_extra*, filename: string, cardinality: int64, bigquery: bigquery",
    "member_of_extra": "key: string, value: string",
    "bigquery": "sql: string, table_spec: table_spec, reshuffle: bool, read_method: read_method",
    "table_spec": "project: string, dataset: string, table: string",
}
_SHARDS = re.compile(r"(.*[^/])-\?{5}-of-([0-9]{5})(\.[^/@]*)?")


@dataclass(frozen=True)
class SchemaFeature:
    """A feature; in its shape None is a ragged dimension."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] = ()
    description: str = ""
    source: str = ""


@dataclass(frozen=True)
class Metadata:
    """Metadata of a set: its table, and other facts.

    Args:
        filename: of the table; empty for none.
        cardinality: number of items, if it is known.
        extra: keys and values.
    """

    filename: str = ""
    cardinality: int | None = None
    extra: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ContextSchema:
    """Features of the graph as a whole."""

    features: tuple[SchemaFeature, ...] = ()
    metadata: Metadata = Metadata()
    line: int = 0


@dataclass(frozen=True)
class NodeSetSchema:
    """A set of nodes; `context` names the features of the context that hold for it."""

    name: str
    features: tuple[SchemaFeature, ...] = ()
    metadata: Metadata = Metadata()
    description: str = ""
    context: tuple[str, ...] = ()
    line: int = 0


@dataclass(frozen=True)
class EdgeSetSchema:
    """A set of edges from nodes of the set `source` to nodes of the set `target`."""

    name: str
    source: str
    target: str
    features: tuple[SchemaFeature, ...] = ()
    metadata: Metadata = Metadata()
    description: str = ""
    context: tuple[str, ...] = ()
    line: int = 0

    @property
    def is_reversed(self) -> bool:
        """True if the table has the edges the other way round."""
        return (EDGE_TYPE, REVERSED) in self.metadata.extra


@dataclass(frozen=True)
class GraphSchema:
    """A schema: sets by name, in the order of the file.

    Args:
        node_sets, edge_sets: by name.
        context: of the graph.
        graph_type: `FULL`, `SUBGRAPH`, `RANDOM_WALKS`, `UNDEFINED`, or empty where nothing is said.
        root_sets: node sets whose nodes subgraphs are rooted at.
    """

    node_sets: Mapping[str, NodeSetSchema]
    edge_sets: Mapping[str, EdgeSetSchema]
    context: ContextSchema = ContextSchema()
    graph_type: str = ""
    root_sets: tuple[str, ...] = ()

    def sets(self) -> list[ContextSchema | NodeSetSchema | EdgeSetSchema]:
        """The context, node sets and edge sets."""
        return [self.context, *self.node_sets.values(), *self.edge_sets.values()]

    def tables(self) -> Iterator[str]:
        """File names of all tables, each once."""
        yield from dict.fromkeys(each.metadata.filename for each in self.sets() if each.metadata.filename)


def read_schema(text: str, where: str) -> GraphSchema:
    """The schema in a text.

    Args:
        text: in text format.
        where: its name for people.

    Raises:
        UserError: it is no schema, or an edge set's ends are no node sets; names the line.
    """
    document = _schema_class()()
    parse(text, where, document, lambda: _first_untyped(document))
    nodes = {name: _node_set(name, body, where) for name, body in _entries(document.node_sets, where, "node_sets")}
    if not nodes:
        raise _fault("the schema has no node sets", document, where, "", "Describe each set of nodes")
    edges = {
        name: _edge_set(name, body, nodes, where) for name, body in _entries(document.edge_sets, where, "edge_sets")
    }
    context, info = document.context, document.info
    return GraphSchema(
        nodes, edges, ContextSchema(_features(context, where), _metadata(context, where), context.line),
        _GRAPH_TYPES[info.graph_type] if info.HasField("graph_type") else "", tuple(info.root_set),
    )  # fmt: skip


def named_tables(text: str, where: str) -> list[str]:
    """Names of the tables in a schema, for `Input.tables`.

    Raises:
        UserError: it is no schema.
    """
    return [table_name(name) for name in read_schema(text, where).tables()]


def table_name(filename: str) -> str:
    """A file name in a schema as sources name it: what `file://…` names by its path, shards as `name@8`."""
    name = plain(filename)
    shards = _SHARDS.fullmatch(name)
    return name if shards is None or not int(shards[2]) else f"{shards[1]}@{int(shards[2])}{shards[3] or ''}"


def schema_text(schema: GraphSchema) -> str:
    """A schema in text format, which `read_schema` and TF-GNN read."""
    document = _schema_class()()
    if schema.context.features or schema.context.metadata != Metadata():
        document.context.SetInParent()
        _fill(document.context, schema.context)
    for nodes in schema.node_sets.values():
        body = document.node_sets.add(key=nodes.name).value
        body.SetInParent()
        _fill(body, nodes)
    for edges in schema.edge_sets.values():
        body = document.edge_sets.add(key=edges.name).value
        body.source, body.target = edges.source, edges.target
        _fill(body, edges)
    if schema.graph_type:
        document.info.graph_type = _GRAPH_TYPES.index(schema.graph_type)
    if schema.root_sets:
        document.info.root_set.extend(schema.root_sets)
    return written(document)


@cache
def _schema_class() -> Any:
    types = {
        "type_of_graph": _GRAPH_TYPES, "data_type": [f"DT_{name.upper()}" for name in _DATA_TYPES],
        "read_method": ("READ_METHOD_UNSPECIFIED", "EXPORT", "DIRECT_READ"),
    }  # fmt: skip
    return message_class("schema", _MESSAGES, types)


def _first_untyped(document: Any) -> str:
    """Name the feature whose type has not been read."""
    sets = [document.context, *(each.value for each in (*document.node_sets, *document.edge_sets))]
    names = (each.key for body in sets for each in body.features if not each.value.HasField("dtype"))
    return next((f", feature {name!r}" for name in names), "")


def _fault(what: str, message: Any, where: str, value: object, remedy: str) -> UserError:
    return UserError(what, where=f"{where}:{message.line}", value=value, remedy=remedy)


def _entries(entries: Iterable[Any], where: str, field: str) -> Iterator[tuple[str, Any]]:
    """Keys and values of a map."""
    seen = set[str]()
    for entry in entries:
        if entry.key in seen:
            raise _fault(f"the name occurs twice in {field}", entry, where, entry.key, "Give each name once")
        seen.add(entry.key)
        entry.value.line = entry.value.line or entry.line
        yield entry.key, entry.value


def _features(body: Any, where: str) -> tuple[SchemaFeature, ...]:
    return tuple(_feature(name, value, where) for name, value in _entries(body.features, where, "features"))


def _feature(name: str, body: Any, where: str) -> SchemaFeature:
    dtype = _DATA_TYPES[body.dtype]
    if dtype not in DTYPES and dtype != STRING:
        what = "features of this type are not supported" if body.dtype else f"feature {name!r} has no known dtype"
        names = ", ".join(f"DT_{each.upper()}" for each in (*DTYPES, STRING))
        raise _fault(what, body, where, f"DT_{dtype.upper()}" if body.dtype else "", f"One of {names}")
    return SchemaFeature(name, dtype, _shape(body.shape, where), body.description, body.source)


def _shape(shape: Any, where: str) -> tuple[int | None, ...]:
    if shape.unknown_rank:
        raise _fault("a shape of unknown rank", shape, where, "unknown_rank", "Give its dimensions")
    for dim in shape.dim:
        if not -1 <= dim.size < 2**31:
            remedy = "Give 0 or more, or -1 for a ragged one"
            raise _fault("not the size of a dimension", dim, where, dim.size, remedy)
    return tuple(None if dim.size == -1 else dim.size for dim in shape.dim)


def _metadata(body: Any, where: str) -> Metadata:
    metadata = body.metadata
    if metadata.HasField("bigquery"):
        remedy = "Export the table to Parquet, and give its filename"
        raise _fault("tables in BigQuery are not read", metadata.bigquery, where, "bigquery", remedy)
    cardinality = metadata.cardinality if metadata.HasField("cardinality") else None
    if cardinality is not None and not 0 <= cardinality < 2**62:
        raise _fault("not a set's cardinality", metadata, where, cardinality, "Give 0 or more")
    return Metadata(metadata.filename, cardinality, tuple((each.key, each.value) for each in metadata.extra))


def _node_set(name: str, body: Any, where: str) -> NodeSetSchema:
    features, metadata = _features(body, where), _metadata(body, where)
    return NodeSetSchema(name, features, metadata, body.description, tuple(body.context), body.line)


def _edge_set(name: str, body: Any, node_sets: Mapping[str, NodeSetSchema], where: str) -> EdgeSetSchema:
    for end, node_set in (("source", body.source), ("target", body.target)):
        if node_set not in node_sets:
            what = f"the {end} of edge set {name!r} is no node set"
            raise _fault(what, body, where, node_set, f"There are: {', '.join(node_sets)}")
    return EdgeSetSchema(
        name, body.source, body.target, _features(body, where), _metadata(body, where), body.description,
        tuple(body.context), body.line,
    )  # fmt: skip


def _fill(body: Any, described: Any) -> None:
    """Set the fields that sets of nodes, sets of edges and the context share."""
    if not isinstance(described, ContextSchema):
        if described.description:
            body.description = described.description
        body.context.extend(described.context)
    for feature in described.features:
        value = body.features.add(key=feature.name).value
        value.dtype = _DATA_TYPES.index(feature.dtype)
        if feature.description:
            value.description = feature.description
        if feature.source:
            value.source = feature.source
        for size in feature.shape:
            value.shape.dim.add(size=-1 if size is None else size)
    metadata = described.metadata
    for key, text in metadata.extra:
        body.metadata.extra.add(key=key, value=text)
    if metadata.filename:
        body.metadata.filename = metadata.filename
    if metadata.cardinality is not None:
        body.metadata.cardinality = metadata.cardinality
