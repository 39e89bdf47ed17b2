"""A heterograph dataset: the platform's typed graph, with several sets of nodes and of edges and their features.

A homogeneous graph has one of each. Nodes of a set are numbered by the bytes of their ids, edges of a set are in the
order of (source, target, row of the table), and an edge's position in that order is its number.

Sets are sorted by name, and so are the features of a set. Names may be any text, so files are named by numbers:

- `graph.json`: the sets, their sizes and features.
- `nodes-<i>-ids.parquet`: column `id`, large_string.
- `edges-<j>-indptr.npy` int64 [nodes of the source set + 1] and `edges-<j>-indices.npy` int32 [edges] (int64 where the
  target set has 2³¹ nodes or more): the rows, by source.
- `edges-<j>-origin.npy` int64 [edges], only of a set that reverses another one: the edge's position there. Its features
  are those of that set.
- `edges-<j>-row.npy` int32 [edges], of every other set: the row of the table where the edge stands, from 0 on through
  all its files; where it is missing, edges are taken to be in the order of their table.
- a feature f of a set or of the context, `nodes-<i>-feature-<f>`, `edges-<j>-feature-<f>` or `context-feature-<f>`:
  `….npy` [items, *shape]; where the first dimension is ragged `…-values.npy` [values, *shape[1:]] and `…-starts.npy`
  int64 [items + 1]; strings `….parquet`, column `value`, large_binary or, where they have a shape, large_list of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import DatasetDamaged, UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.safe_names import reason_of
from superworkflow.tasks.lib.graph.dtypes import DTYPES as DTYPES
from superworkflow.tasks.lib.graph.dtypes import STRING as STRING
from superworkflow.tasks.lib.graph.integrity import check_rows, unfit
from superworkflow.tasks.lib.graph.sparse_rows import entries_of

FORMAT = 1
GRAPH_FILE = "graph.json"
COLUMNS_FILE, SCALING_FILE = "columns.json", "scaling.json"
"""By node set with a matrix `FEATURES`, names and widths of its columns in their order, and how it was scaled."""
PAIRS_FILE = "pairs.npy"
"""Ends of the rows of an edge list without direction, as they are given, each pair once, int32 [pairs, 2]; of graphs
that are made for a network that predicts edges."""


class Feature(NamedTuple):
    """A feature: its type (see `DTYPES`), and its shape, in which None is a ragged dimension (the first only)."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]

    @property
    def is_ragged(self) -> bool:
        return None in self.shape

    @property
    def width(self) -> int:
        """Values of an item; of a ragged feature, of each entry of its first dimension."""
        return math.prod(size for size in self.shape if size is not None)


class NodeSet(NamedTuple):
    """A set of nodes."""

    name: str
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    features: tuple[Feature, ...]


class EdgeSet(NamedTuple):
    """A set of edges from nodes of one set to nodes of another, or the same; `reversed_of` names the set it reverses.

    A set that reverses another one has that set's features.
    """

    name: str
    source: str
    target: str
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    reversed_of: str | None
    features: tuple[Feature, ...]


class CsrRows(NamedTuple):
    """Sparse rows: the targets of node s are ``indices[indptr[s]:indptr[s + 1]]``, ascending."""

    indptr: NDArray[np.int64]
    indices: NDArray[Any]


class Ragged(NamedTuple):
    """Values of items of different lengths: those of item i are ``values[starts[i]:starts[i + 1]]``."""

    values: NDArray[Any]
    starts: NDArray[np.int64]


Values = Any
"""Values of a feature: an array [items, *shape], a `Ragged`, or an Arrow column of strings."""


class HeteroGraph:
    """A heterograph dataset, opened; arrays are memory-mapped, and checked before they are handed out.

    Raises:
        DatasetDamaged: what `graph.json` says cannot be.
        UserError: the dataset is none of a heterograph.
    """

    def __init__(self, dataset: Dataset):
        self.dataset = dataset
        self.splits: dict[str, NDArray[np.int8]] = {}
        """By node set, numbers of splits that nodes have instead of those of their feature `split`, -1 for none."""
        if GRAPH_FILE not in dataset:
            raise UserError(
                f"the dataset has no {GRAPH_FILE}: it is no heterograph", where=dataset.uri,
                remedy="Give the output of stage heterograph",
            )  # fmt: skip
        try:
            self.node_sets, self.edge_sets, self.context = parse_graph(dataset.json(GRAPH_FILE))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise unfit(f"{dataset.uri}/{GRAPH_FILE}", reason_of(error)) from None
        self._node_numbers = {name: number for number, name in enumerate(self.node_sets)}
        self._edge_numbers = {name: number for number, name in enumerate(self.edge_sets)}
        self._stored: dict[str, NodeSet] = {}
        self._added: dict[tuple[str, str], HeteroGraph] = {}
        """Node sets as they are in this dataset, and graphs that have further features of theirs."""
        self._rows: dict[str, CsrRows] = {}
        self._origins: dict[str, NDArray[np.int64]] = {}

    @classmethod
    def open(cls, dataset: Dataset, labels: Dataset | None = None) -> HeteroGraph:
        """The graph in a dataset, with the features of nodes that a dataset of stage node_labels adds; see the class.

        Raises:
            UserError: the labels are those of another graph.
        """
        graph = cls(dataset)
        if labels is not None:
            graph._add(cls(labels))
        return graph

    def _add(self, labels: HeteroGraph) -> None:
        for name, added in labels.node_sets.items():
            nodes = self.node_sets.get(name)
            if nodes is None or nodes.count != added.count:
                raise UserError("the labels are those of another graph", where=labels.dataset.uri, value=name,
                                remedy="Give those that stage node_labels made of this graph")  # fmt: skip
            new = {each.name for each in added.features}
            kept = [each for each in nodes.features if each.name not in new]
            features = sorted((*kept, *added.features), key=lambda each: each.name.encode())
            self.node_sets[name] = nodes._replace(features=tuple(features))
            self._stored[name] = nodes
            self._added |= {(name, each.name): labels for each in added.features}

    def node_number(self, name: str) -> int:
        """Number of a node set, by which its files are named.

        Raises:
            UserError: there is no such set.
        """
        return self._number(name, self._node_numbers, "node set")

    def edge_number(self, name: str) -> int:
        """Number of an edge set.

        Raises:
            UserError: there is no such set.
        """
        return self._number(name, self._edge_numbers, "edge set")

    def rows(self, edge_set: str) -> CsrRows:
        """The rows of an edge set, by source.

        Raises:
            DatasetDamaged: they do not fit the sizes of the sets.
        """
        number = self.edge_number(edge_set)
        if edge_set not in self._rows:
            edges = self.edge_sets[edge_set]
            sources, targets = self.node_sets[edges.source].count, self.node_sets[edges.target].count
            prefix = f"edges-{number}-"
            indptr, indices = self._array(f"{prefix}indptr.npy"), self._array(f"{prefix}indices.npy")
            self._check_shape(f"{prefix}indptr.npy", indptr, "<i8", (sources + 1,))
            self._check_shape(f"{prefix}indices.npy", indices, index_dtype(targets).str, (edges.count,))
            check_rows(self.dataset.uri, indptr, indices, None, targets, prefix)
            self._rows[edge_set] = CsrRows(indptr, indices)
        return self._rows[edge_set]

    def origin(self, edge_set: str) -> NDArray[np.int64] | None:
        """Position of each edge in the set that this one reverses, int64 [edges]; None for any other set.

        Raises:
            DatasetDamaged: it is not that.
        """
        name = f"edges-{self.edge_number(edge_set)}-origin.npy"
        edges = self.edge_sets[edge_set]
        if edges.reversed_of is None:
            return None
        if edge_set not in self._origins:
            origin = self._array(name)
            self._check_shape(name, origin, "<i8", (edges.count,))
            if edges.count and not 0 <= int(origin.min()) <= int(origin.max()) < edges.count:
                raise self._unfit(name, f"a position is none of {edges.count} edges", int(origin.max()))
            self._origins[edge_set] = origin
        return self._origins[edge_set]

    def table_rows(self, edge_set: str) -> NDArray[Any]:
        """The row of each edge in its table, int32 or int64 [edges]; of a reversed set, in that of the set it reverses.

        Raises:
            DatasetDamaged: it is not that.
        """
        edges, origin = self.edge_sets[edge_set], self.origin(edge_set)
        name = f"edges-{self._edge_numbers[edges.reversed_of or edge_set]}-row.npy"
        rows: NDArray[Any] = np.arange(edges.count)
        if name in self.dataset:
            rows = self._array(name)
            self._check_shape(name, rows, "<i4", (edges.count,))
            if edges.count and int(rows.min()) < 0:
                raise self._unfit(name, "a row is below 0", int(rows.min()))
        return rows if origin is None else rows[origin]

    def ids(self, node_set: str) -> pa.ChunkedArray:
        """Ids of the nodes of a set by their numbers, large_string [nodes].

        Raises:
            DatasetDamaged: they are not as many as the set has nodes.
        """
        number = self.node_number(node_set)
        return self._column(f"nodes-{number}-ids.parquet", "id", pa.large_string(), self.node_sets[node_set].count)

    def node_feature(self, node_set: str, name: str) -> Values:
        """A feature of the nodes of a set, by their numbers.

        Raises:
            UserError: there is no such feature.
            DatasetDamaged: the file is not what it should be.
        """
        number = self.node_number(node_set)
        if (other := self._added.get((node_set, name))) is not None:
            return other.node_feature(node_set, name)
        nodes = self._stored.get(node_set, self.node_sets[node_set])
        return self._feature("nodes", number, nodes.features, name, nodes.count, node_set)

    def edge_feature(self, edge_set: str, name: str) -> Values:
        """A feature of the edges of a set, by their positions; that of a reversed set is put in its order, in memory.

        Raises:
            UserError: there is no such feature.
            DatasetDamaged: the file is not what it should be.
        """
        origin = self.origin(edge_set)
        stored = self.edge_sets[edge_set].reversed_of or edge_set
        edges = self.edge_sets[stored]
        values = self._feature("edges", self._edge_numbers[stored], edges.features, name, edges.count, edge_set)
        return values if origin is None else take(values, origin)

    def context_feature(self, name: str) -> Values:
        """A feature of the graph as a whole, of one item.

        Raises:
            UserError: there is no such feature.
            DatasetDamaged: the file is not what it should be.
        """
        return self._feature("context", None, self.context, name, 1, "the context")

    def _feature(
        self, kind: str, number: int | None, features: tuple[Feature, ...], name: str, items: int, owner: str
    ) -> Values:
        place = next((place for place, feature in enumerate(features) if feature.name == name), None)
        if place is None:
            names = ", ".join(feature.name for feature in features)
            raise UserError(
                "there is no such feature", where=f"{self.dataset.uri}, {owner}", value=name,
                remedy=f"It has: {names}" if names else "It has none",
            )  # fmt: skip
        feature, stem = features[place], feature_stem(kind, number, place)
        if feature.dtype == STRING:
            column = self._column(f"{stem}.parquet", "value", string_type(feature), items)
            if feature.shape and not feature.is_ragged:
                self._check_lengths(f"{stem}.parquet", column, feature)
            return column
        dtype = DTYPES[feature.dtype]
        if not feature.is_ragged:
            values = self._array(f"{stem}.npy")
            self._check_shape(f"{stem}.npy", values, dtype, (items, *feature.shape))
            return values
        values, starts = self._array(f"{stem}-values.npy"), self._array(f"{stem}-starts.npy")
        self._check_shape(f"{stem}-starts.npy", starts, "<i8", (items + 1,))
        if starts[0] != 0 or not (starts[1:] >= starts[:-1]).all():
            raise self._unfit(f"{stem}-starts.npy", "an item ends before it begins")
        self._check_shape(f"{stem}-values.npy", values, dtype, (int(starts[-1]), *feature.shape[1:]))
        return Ragged(values, starts)

    def _array(self, name: str) -> NDArray[Any]:
        self._check_there(name)
        try:
            return self.dataset.array(name)
        except (ValueError, EOFError) as error:
            raise self._unfit(name, reason_of(error)) from None

    def _column(self, name: str, column: str, kind: pa.DataType, items: int) -> pa.ChunkedArray:
        self._check_there(name)
        try:
            table = self.dataset.table(name)
        except (pa.ArrowException, OSError) as error:
            raise self._unfit(name, reason_of(error)) from None
        if table.column_names != [column] or table.schema.field(0).type != kind:
            raise self._unfit(name, f"one column {column} of {kind}", str(table.schema)[:100])
        if table.num_rows != items or table[column].null_count:
            raise self._unfit(name, f"{items} values", table.num_rows)
        return table[column]

    def _check_lengths(self, name: str, column: pa.ChunkedArray, feature: Feature) -> None:
        ends = pc.min_max(pc.list_value_length(column)).as_py()
        if len(column) and (ends["min"], ends["max"]) != (feature.width, feature.width):
            raise self._unfit(name, f"{feature.width} values an item", f"{ends['min']} to {ends['max']}")

    def _check_there(self, name: str) -> None:
        if name not in self.dataset:
            raise self._unfit(name, "there is no such file")

    def _check_shape(self, name: str, values: NDArray[Any], dtype: str, shape: tuple[int | None, ...]) -> None:
        if values.dtype != np.dtype(dtype) or values.shape != shape:
            wanted = f"{np.dtype(dtype)}{list(shape)}"
            raise self._unfit(name, f"{wanted} by {GRAPH_FILE}", f"{values.dtype}{list(values.shape)}")

    def _unfit(self, name: str, what: str, value: Any = None) -> DatasetDamaged:
        return unfit(f"{self.dataset.uri}/{name}", what, value)

    def _number(self, name: str, numbers: Mapping[str, int], kind: str) -> int:
        if name not in numbers:
            raise UserError(f"the graph has no such {kind}", where=self.dataset.uri, value=name,
                            remedy=f"It has: {', '.join(numbers)}")  # fmt: skip
        return numbers[name]


def feature_stem(kind: str, number: int | None, place: int) -> str:
    """Name of a feature's files without what comes after it; kind `nodes`, `edges` or `context` (number None)."""
    return f"{kind}-feature-{place}" if number is None else f"{kind}-{number}-feature-{place}"


def index_dtype(nodes: int) -> np.dtype[Any]:
    """Integer type that numbers this many nodes."""
    return np.dtype(np.int32 if nodes < 2**31 else np.int64)


def string_type(feature: Feature) -> pa.DataType:
    """Arrow type of a feature of strings."""
    return pa.large_list(pa.large_binary()) if feature.shape else pa.large_binary()


def take(values: Values, order: NDArray[np.int64]) -> Values:
    """Items ``order[0]``, ``order[1]``, … of a feature's values."""
    if isinstance(values, Ragged):
        starts, positions = entries_of(values.starts, order)
        return Ragged(values.values[positions], starts)
    if isinstance(values, np.ndarray):
        return values[order]
    return values.take(pa.array(order))


def parse_graph(document: Any) -> tuple[dict[str, NodeSet], dict[str, EdgeSet], tuple[Feature, ...]]:
    """Node sets, edge sets, and features of the context, from what `graph.json` holds.

    Raises:
        ValueError, KeyError, TypeError: it is none, or sets and sizes do not fit each other.
    """
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']!r}; this version reads {FORMAT}")
    nodes = {
        each["name"]: NodeSet(each["name"], _count(each["count"]), _features(each["features"]))
        for each in document["node_sets"]
    }
    edges = {
        each["name"]: EdgeSet(
            each["name"], each["source"], each["target"], _count(each["count"]), each["reversed_of"],
            _features(each["features"]),
        )
        for each in document["edge_sets"]
    }  # fmt: skip
    _check_names([each["name"] for each in document["node_sets"]])
    _check_names([each["name"] for each in document["edge_sets"]])
    for edge_set in edges.values():
        _check_edge_set(edge_set, nodes, edges)
    return nodes, edges, _features(document["context"]["features"])


def _check_edge_set(edges: EdgeSet, node_sets: Mapping[str, NodeSet], edge_sets: Mapping[str, EdgeSet]) -> None:
    for end in (edges.source, edges.target):
        if end not in node_sets:
            raise ValueError(f"edge set {edges.name!r} has ends in {end!r}, which is no node set")
        if edges.count and not node_sets[end].count:
            raise ValueError(f"edge set {edges.name!r} has edges, and {end!r} no nodes")
    if edges.reversed_of is None:
        return
    other = edge_sets.get(edges.reversed_of)
    if other is None or other.reversed_of is not None or edges.reversed_of == edges.name:
        raise ValueError(f"edge set {edges.name!r} reverses {edges.reversed_of!r}, which is no set that has a table")
    if (edges.source, edges.target, edges.count, edges.features) != (
        other.target, other.source, other.count, other.features,
    ):  # fmt: skip
        raise ValueError(f"edge set {edges.name!r} is not {edges.reversed_of!r} reversed")


def _features(given: Any) -> tuple[Feature, ...]:
    features = tuple(Feature(each["name"], each["dtype"], tuple(each["shape"])) for each in given)
    _check_names([feature.name for feature in features])
    for feature in features:
        if feature.dtype not in DTYPES and feature.dtype != STRING:
            raise ValueError(f"feature {feature.name!r} has an unknown type {feature.dtype!r}")
        for place, size in enumerate(feature.shape):
            if size is None and place > 0:
                raise ValueError(f"feature {feature.name!r} is ragged in another dimension than its first")
            if size is not None:
                _count(size)
    return features


def _check_names(names: list[Any]) -> None:
    if not all(isinstance(name, str) for name in names):
        raise ValueError("a name is no text")
    if any(one.encode() >= other.encode() for one, other in pairwise(names)):
        raise ValueError("names are not sorted, or one occurs twice")


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        raise ValueError(f"{value!r} is no size")
    return value
