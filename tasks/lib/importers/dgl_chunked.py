"""Typed graphs in DGL's chunked format: a `metadata.json` that names files of edges and features, and counts of both.

    {"graph_name": "mag", "node_type": ["author", "paper"], "num_nodes_per_chunk": [[10, 10], [20]],
     "edge_type": ["author:writes:paper"], "num_edges_per_chunk": [[50, 40]],
     "edges": {"author:writes:paper": {"format": {"name": "csv", "delimiter": " "}, "data": ["w-0.csv", "w-1.csv"]}},
     "node_data": {"paper": {"feat": {"format": {"name": "numpy"}, "data": ["feat.npy"]}}}, "edge_data": {}}

Nodes of a type are numbered from 0. Formats are csv, numpy and parquet. A member that a list of files needs and does
not have, or a type that nobody declares, is refused.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.graph.schema import GraphSchema, read_schema
from superworkflow.tasks.lib.graph.schema import named_tables as schema_tables

FORMATS = ("csv", "numpy", "parquet")
_MOST = 2**31 - 1


class Chunks(NamedTuple):
    """Files of one thing, in their order.

    Args:
        name: of it, for people.
        kind: one of `FORMATS`.
        delimiter: of CSV.
        files: names of them.
        counts: rows of each.
    """

    name: str
    kind: str
    delimiter: str
    files: tuple[str, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class EdgeType:
    """Edges of one type: the set's name, the node types of both ends, files of ends, and of features by name."""

    name: str
    source: str
    target: str
    edges: Chunks
    features: dict[str, Chunks]


@dataclass(frozen=True)
class ChunkedGraph:
    """A graph: how many nodes each type has, features of them by type and name, and types of edges."""

    nodes: dict[str, int]
    features: dict[str, dict[str, Chunks]]
    edges: tuple[EdgeType, ...]


def named_tables(text: str, where: str) -> list[str]:
    """Names of the files of a schema or of a `metadata.json`, for `Input.tables`.

    Raises:
        UserError: it is neither.
    """
    if not is_chunked(text):
        return schema_tables(text, where)
    graph = read_chunked(text, where)
    of_nodes = [chunks for features in graph.features.values() for chunks in features.values()]
    of_edges = [chunks for each in graph.edges for chunks in (each.edges, *each.features.values())]
    return [file for chunks in (*of_nodes, *of_edges) for file in chunks.files]


def schema_alone(text: str, where: str) -> GraphSchema:
    """The schema of a description, where no other can be read.

    Raises:
        UserError: it is none.
    """
    if is_chunked(text):
        raise UserError("DGL's chunked format is read in process alone", where="heterograph: engine",
                        value="spark", remedy="Set the engine to in-process, or give a schema")  # fmt: skip
    return read_schema(text, where)


def is_chunked(text: str) -> bool:
    """True if a description is one of these, and no schema."""
    return text.lstrip("\ufeff \t\r\n").startswith("{")


def read_chunked(text: str, where: str) -> ChunkedGraph:
    """The graph that a `metadata.json` describes.

    Raises:
        UserError: it is no such description; names the member.
    """
    return _Reader(text, where).graph()


class _Reader:
    def __init__(self, text: str, where: str):
        self._where = where
        try:
            self._document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"this is no JSON: {error}", where=where, remedy="Correct the file") from None

    def graph(self) -> ChunkedGraph:
        types, counts = self._counted("node_type", "num_nodes_per_chunk")
        nodes = {name: sum(of_chunks) for name, of_chunks in zip(types, counts, strict=True)}
        if too_many := [name for name, count in nodes.items() if count > _MOST]:
            raise self._fault("num_nodes_per_chunk", f"a node type has at most {_MOST} nodes", too_many[0])
        of_nodes = dict(zip(types, counts, strict=True))
        edge_types, edge_counts = self._counted("edge_type", "num_edges_per_chunk")
        ends = [self._ends(each, nodes) for each in edge_types]
        often = Counter(relation for _, relation, _ in ends)
        files, data = self._member("edges", dict), self._member("edge_data", dict, {})
        for kind in (*files, *data):
            if kind not in edge_types:
                raise self._fault("edges" if kind in files else "edge_data", "no such edge type is declared", kind)
        edges = []
        for kind, of_chunks, (source, relation, target) in zip(edge_types, edge_counts, ends, strict=True):
            if kind not in files:
                raise self._fault("edges", "an edge type has no files", kind)
            features = self._features("edge_data", kind, data.get(kind, {}), of_chunks)
            ends_files = self._chunks(f"edges.{kind}", files[kind], of_chunks)
            edges.append(EdgeType(relation if often[relation] == 1 else kind, source, target, ends_files, features))
        given = self._member("node_data", dict, {})
        if strangers := [name for name in given if name not in nodes]:
            raise self._fault("node_data", "no such node type is declared", strangers[0])
        described = {name: self._features("node_data", name, given.get(name, {}), of_nodes[name]) for name in nodes}
        return ChunkedGraph(nodes, described, tuple(edges))

    def _counted(self, types: str, counts: str) -> tuple[list[str], list[tuple[int, ...]]]:
        names, given = self._member(types, list), self._member(counts, list)
        if not names or not all(isinstance(each, str) and each for each in names) or len(set(names)) < len(names):
            raise self._fault(types, "names of types are texts, each there once", names)
        if len(given) != len(names):
            raise self._fault(counts, f"{len(names)} types need as many lists", len(given))
        for each in given:
            if not isinstance(each, list) or not all(type(count) is int and 0 <= count <= _MOST for count in each):
                raise self._fault(counts, "counts are lists of whole numbers from 0", each)
        return names, [tuple(each) for each in given]

    def _ends(self, kind: str, nodes: dict[str, int]) -> tuple[str, str, str]:
        parts = kind.split(":")
        if len(parts) != 3 or not all(parts):
            raise self._fault("edge_type", "an edge type is SOURCE:RELATION:DESTINATION", kind)
        for end in (parts[0], parts[2]):
            if end not in nodes:
                raise self._fault("edge_type", f"{end!r} is no declared node type", kind)
        return parts[0], parts[1], parts[2]

    def _features(self, member: str, kind: str, given: Any, counts: tuple[int, ...]) -> dict[str, Chunks]:
        if not isinstance(given, dict):
            raise self._fault(f"{member}.{kind}", "features are an object by name", given)
        return {name: self._chunks(f"{member}.{kind}.{name}", each, counts) for name, each in given.items()}

    def _chunks(self, name: str, given: Any, counts: tuple[int, ...]) -> Chunks:
        kind = given.get("format") if isinstance(given, dict) else None
        if not isinstance(kind, dict) or kind.get("name") not in FORMATS:
            raise self._fault(f"{name}.format", f"a format has a name, of {', '.join(FORMATS)}", kind)
        delimiter = kind.get("delimiter", ",")
        if not isinstance(delimiter, str) or len(delimiter) != 1 or not delimiter.isascii():
            raise self._fault(f"{name}.format.delimiter", "a delimiter is one character", delimiter)
        files = given.get("data")
        if not isinstance(files, list) or not all(isinstance(each, str) and each for each in files):
            raise self._fault(f"{name}.data", "files are a list of names", files)
        whole = len(files) == 1 and len(counts) > 1
        if len(files) != len(counts) and not whole:
            raise self._fault(f"{name}.data", f"{len(counts)} chunks need as many files", len(files))
        return Chunks(name, kind["name"], delimiter, tuple(files), (sum(counts),) if whole else counts)

    def _member(self, name: str, kind: type, default: Any = None) -> Any:
        document = self._document
        value = document.get(name, default) if isinstance(document, dict) else None
        if not isinstance(value, kind):
            raise self._fault(name, f"a {'list' if kind is list else 'JSON object'} is expected", value)
        return value

    def _fault(self, member: str, what: str, value: Any) -> UserError:
        return UserError(what, where=f"{self._where}, {member}", value=str(value)[:200],
                         remedy="Describe the graph as DGL's chunked format asks for")  # fmt: skip
