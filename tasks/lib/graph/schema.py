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
from dataclasses import dataclass, replace
from typing import Any

from superworkflow.infra.storage.table_files import plain
from superworkflow.tasks.lib.formats.text_format import TextMessage, parse, quoted
from superworkflow.tasks.lib.graph.dtypes import DTYPES, STRING

SCHEMA_FILE = "schema.pbtxt"
EDGE_TYPE, REVERSED = "edge_type", "reversed"
_DATA_TYPES: Mapping[str, int] = {
    "float": 1, "double": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "string": 7, "complex64": 8, "int64": 9,
    "bool": 10, "qint8": 11, "quint8": 12, "qint32": 13, "bfloat16": 14, "qint16": 15, "quint16": 16, "uint16": 17,
    "complex128": 18, "half": 19, "resource": 20, "variant": 21, "uint32": 22, "uint64": 23,
}  # fmt: skip
"""TensorFlow's types of values and their numbers."""
_GRAPH_TYPES = ("UNDEFINED", "FULL", "SUBGRAPH", "RANDOM_WALKS")
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

    def without_tables(self) -> GraphSchema:
        """The same without file names, and without what they say of the direction of edges."""
        kept = {name: replace(each, metadata=_stripped(each.metadata)) for name, each in self.node_sets.items()}
        edges = {name: replace(each, metadata=_stripped(each.metadata)) for name, each in self.edge_sets.items()}
        context = replace(self.context, metadata=_stripped(self.context.metadata))
        return replace(self, node_sets=kept, edge_sets=edges, context=context)


def read_schema(text: str, where: str) -> GraphSchema:
    """The schema in a text.

    Args:
        text: in text format.
        where: its name for people.

    Raises:
        UserError: it is no schema, or an edge set's ends are no node sets; names the line.
    """
    document = parse(text, where)
    document.check(("context", "node_sets", "edge_sets", "info"), "schema")
    nodes = {name: _node_set(name, body) for name, body in _entries(document, "node_sets")}
    edges = {name: _edge_set(name, body, nodes) for name, body in _entries(document, "edge_sets")}
    if not nodes:
        raise document.fault("the schema has no node sets", document.line, "", "Describe each set of nodes")
    context, info = document.message("context"), document.message("info")
    given = ContextSchema() if context is None else _context(context)
    if info is None:
        return GraphSchema(nodes, edges, given)
    info.check(("graph_type", "root_set"), "description of a graph's origin")
    kind = info.word("graph_type")
    if kind.isdigit() and int(kind) < len(_GRAPH_TYPES):
        kind = _GRAPH_TYPES[int(kind)]
    if kind and kind not in _GRAPH_TYPES:
        raise info.fault("unknown type of graph", info.line_of("graph_type"), kind, f"One of {', '.join(_GRAPH_TYPES)}")
    return GraphSchema(nodes, edges, given, kind, tuple(info.texts("root_set")))


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
    lines: list[str] = []
    if schema.context.features or schema.context.metadata != Metadata():
        body = [*_features_text(schema.context.features), *_metadata_text(schema.context.metadata)]
        lines += _block("context", body)
    for nodes in schema.node_sets.values():
        lines += _entry("node_sets", nodes.name, [*_common_text(nodes), *_metadata_text(nodes.metadata)])
    for edges in schema.edge_sets.values():
        ends = [f"source: {quoted(edges.source)}", f"target: {quoted(edges.target)}"]
        lines += _entry("edge_sets", edges.name, [*_common_text(edges), *ends, *_metadata_text(edges.metadata)])
    info = [f"graph_type: {schema.graph_type}"] if schema.graph_type else []
    info += [f"root_set: {quoted(name)}" for name in schema.root_sets]
    lines += _block("info", info) if info else []
    return "\n".join([*lines, ""])


def _entries(message: TextMessage, name: str) -> Iterator[tuple[str, TextMessage]]:
    """Keys and values of a map."""
    seen = set[str]()
    for entry in message.messages(name):
        entry.check(("key", "value"), f"member of {name}")
        key = entry.text("key")
        if key in seen:
            raise entry.fault(f"the name occurs twice in {name}", entry.line_of("key"), key, "Give each name once")
        seen.add(key)
        yield key, entry.message("value") or TextMessage(entry.where, entry.line)


def _features(message: TextMessage) -> tuple[SchemaFeature, ...]:
    return tuple(_feature(name, body) for name, body in _entries(message, "features"))


def _feature(name: str, body: TextMessage) -> SchemaFeature:
    body.check(("description", "dtype", "shape", "source"), "feature")
    number = {str(value): kind for kind, value in _DATA_TYPES.items()}
    given = body.word("dtype")
    dtype = number.get(given, given.removeprefix("DT_").lower())
    if dtype not in DTYPES and dtype != STRING:
        known = dtype in _DATA_TYPES and given
        what = "features of this type are not supported" if known else f"feature {name!r} has no known dtype"
        names = ", ".join(f"DT_{each.upper()}" for each in (*DTYPES, STRING))
        raise body.fault(what, body.line_of("dtype"), given, f"One of {names}")
    shape = body.message("shape")
    return SchemaFeature(name, dtype, () if shape is None else _shape(shape), body.text("description"),
                         body.text("source"))  # fmt: skip


def _shape(shape: TextMessage) -> tuple[int | None, ...]:
    shape.check(("dim", "unknown_rank"), "shape")
    if shape.flag("unknown_rank"):
        raise shape.fault("a shape of unknown rank", shape.line, "unknown_rank", "Give its dimensions")
    sizes: list[int | None] = []
    for dim in shape.messages("dim"):
        dim.check(("size", "name"), "dimension")
        size = dim.number("size", 0) or 0
        if not -1 <= size < 2**31:
            raise dim.fault("not the size of a dimension", dim.line, size, "Give 0 or more, or -1 for a ragged one")
        sizes.append(None if size == -1 else size)
    return tuple(sizes)


def _metadata(message: TextMessage) -> Metadata:
    metadata = message.message("metadata")
    if metadata is None:
        return Metadata()
    metadata.check(("extra", "filename", "cardinality", "bigquery"), "set's metadata")
    if "bigquery" in metadata.fields:
        raise metadata.fault(
            "tables in BigQuery are not read", metadata.line_of("bigquery"), "bigquery",
            "Export the table to Parquet, and give its filename",
        )  # fmt: skip
    cardinality = metadata.number("cardinality")
    if cardinality is not None and not 0 <= cardinality < 2**62:
        raise metadata.fault("not a set's cardinality", metadata.line_of("cardinality"), cardinality, "Give 0 or more")
    extra = []
    for each in metadata.messages("extra"):
        each.check(("key", "value"), "metadata's extra")
        extra.append((each.text("key"), each.text("value")))
    return Metadata(metadata.text("filename"), cardinality, tuple(extra))


def _context(body: TextMessage) -> ContextSchema:
    body.check(("features", "metadata"), "context")
    return ContextSchema(_features(body), _metadata(body), body.line)


def _node_set(name: str, body: TextMessage) -> NodeSetSchema:
    body.check(("description", "features", "context", "metadata"), "node set")
    context = tuple(body.texts("context"))
    return NodeSetSchema(name, _features(body), _metadata(body), body.text("description"), context, body.line)


def _edge_set(name: str, body: TextMessage, node_sets: Mapping[str, NodeSetSchema]) -> EdgeSetSchema:
    body.check(("description", "features", "source", "target", "context", "metadata"), "edge set")
    for end in ("source", "target"):
        if body.text(end) not in node_sets:
            what = f"the {end} of edge set {name!r} is no node set"
            raise body.fault(what, body.line_of(end), body.text(end), f"There are: {', '.join(node_sets)}")
    return EdgeSetSchema(
        name, body.text("source"), body.text("target"), _features(body), _metadata(body), body.text("description"),
        tuple(body.texts("context")), body.line,
    )  # fmt: skip


def _stripped(metadata: Metadata) -> Metadata:
    extra = tuple(each for each in metadata.extra if each != (EDGE_TYPE, REVERSED))
    return replace(metadata, filename="", extra=extra)


def _common_text(items: Any) -> list[str]:
    lines = [f"description: {quoted(items.description)}"] if items.description else []
    return [*lines, *_features_text(items.features), *(f"context: {quoted(name)}" for name in items.context)]


def _features_text(features: Iterable[SchemaFeature]) -> list[str]:
    lines: list[str] = []
    for feature in features:
        body = [f"description: {quoted(feature.description)}"] if feature.description else []
        body.append(f"dtype: DT_{feature.dtype.upper()}")
        dims = [_block("dim", [f"size: {-1 if size is None else size}"]) for size in feature.shape]
        if dims:
            body += _block("shape", [line for dim in dims for line in dim])
        body += [f"source: {quoted(feature.source)}"] if feature.source else []
        lines += _entry("features", feature.name, body)
    return lines


def _metadata_text(metadata: Metadata) -> list[str]:
    body = [
        line
        for key, value in metadata.extra
        for line in _block("extra", [f"key: {quoted(key)}", f"value: {quoted(value)}"])
    ]
    body += [f"filename: {quoted(metadata.filename)}"] if metadata.filename else []
    body += [] if metadata.cardinality is None else [f"cardinality: {metadata.cardinality}"]
    return _block("metadata", body) if body else []


def _entry(name: str, key: str, body: list[str]) -> list[str]:
    return _block(name, [f"key: {quoted(key)}", *_block("value", body)])


def _block(name: str, body: Iterable[str]) -> list[str]:
    return [f"{name} {{", *(f"  {line}" for line in body), "}"]
