"""Features of the Examples of a block of subgraphs, by the names that TF-GNN reads.

    context/seed_id, context/sample_id
    nodes/<set>.#size, nodes/<set>.<feature>
    edges/<set>.#size, edges/<set>.#source, edges/<set>.#target, edges/<set>.<feature>

A set that is empty in a subgraph has none of its features there. Integers and bool become int64, uint64 by its bits;
double and half float32. The lengths of a ragged dimension are a feature of their own, `<feature>.d1`.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.base.errors import DatasetDamaged
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.graph.dtypes import FLOATS
from superworkflow.tasks.lib.graph.heterograph import (
    STRING,
    EdgeSet,
    Feature,
    HeteroGraph,
    NodeSet,
    Ragged,
    Values,
    take,
)
from superworkflow.tasks.lib.kernels.gather import picked
from superworkflow.tasks.lib.kernels.huge_pages import map_whole
from superworkflow.tasks.lib.subgraphs.blocks import DESCRIPTION, SubgraphBlock
from superworkflow.tasks.records.columns import (
    BlockRecords,
    FeatureColumn,
    FloatRows,
    Floats,
    Integers,
    Starts,
    Strings,
)

READOUT = "_readout"
READOUT_ENDS = (f"{READOUT}/source", f"{READOUT}/target")
"""A node set of one node, and the edge sets that lead to it from the two seeds of a link."""

_INTEGER_BYTES = 2.0
"""Bytes of a varint, about."""


class Items(NamedTuple):
    """Items of a set in the subgraphs of a block.

    Args:
        set: whose they are.
        starts: int64 [b + 1], where those of each subgraph begin.
        rows: their numbers in the graph's files, int64 where the set has features, else int32 or int64 as they are
            stored; none of edges whose positions were not read.
    """

    set: NodeSet | EdgeSet
    starts: Starts
    rows: NDArray[Any]


class FeatureSource:
    """The features of a graph, for the subgraphs that were sampled from it.

    Args:
        graph: the graph; files of numbers are memory-mapped, strings are in memory once they are needed.
        seed_sets: names of the node sets of seeds: one, or those of a link's source and target.
    """

    def __init__(self, graph: HeteroGraph, seed_sets: tuple[str, ...]):
        self.graph, self.seed_sets = graph, seed_sets
        self._values: dict[tuple[str, str, str], Any] = {}
        self._whole: set[tuple[str, str]] = set()
        self._guard = threading.RLock()  # a file that two threads map is in memory twice

    def records(self, block: SubgraphBlock) -> BlockRecords:
        """The Examples of a block.

        Raises:
            DatasetDamaged: the block is not of this graph.
        """
        return BlockRecords(list(self._columns(block)))

    def _columns(self, block: SubgraphBlock) -> Iterator[tuple[FeatureColumn, NDArray[np.bool_]]]:
        count = block.subgraphs
        each, all_of_them = np.arange(count + 1), np.ones(count, np.bool_)
        samples = strings_of(pa.chunked_array([block.sample_ids]))
        yield Strings("context/sample_id", each, each[:-1], samples), all_of_them
        for column in self._seeds(block):
            yield column, all_of_them
        for items in self.node_items(block):
            yield from self._set_columns("nodes", items, ())
        for j, items in enumerate(self.edge_items(block, self.featureless())):
            yield from self._set_columns("edges", items, (("#source", block.sources[j]), ("#target", block.targets[j])))

    def _set_columns(
        self, kind: str, items: Items, ends: tuple[tuple[str, NDArray[np.int32]], ...]
    ) -> Iterator[tuple[FeatureColumn, NDArray[np.bool_]]]:
        if not items.starts[-1]:
            return
        sizes = np.diff(items.starts)
        present, prefix = sizes > 0, f"{kind}/{items.set.name}."
        yield Integers(f"{prefix}#size", np.arange(len(sizes) + 1), sizes), present
        for name, values in ends:
            yield Integers(f"{prefix}{name}", items.starts, values), present
        for feature in items.set.features:
            for column in self._feature(kind, items, feature, f"{prefix}{feature.name}"):
                yield column, present

    def _seeds(self, block: SubgraphBlock) -> Iterator[FeatureColumn]:
        """The ids of the seeds; of a link also the set that says where its two ends are."""
        count, ends = block.subgraphs, len(self.seed_sets)
        each = np.arange(count + 1)
        if ends == 1:
            rows = self.seeds(block)[:, 0]
            yield Strings("context/seed_id", each, rows, self._strings("ids", self.seed_sets[0], ""))
            return
        yield Strings("context/seed_id", 2 * each, np.arange(2 * count), strings_of(self.seed_ids(block)))
        places, none = self.seed_places(block).astype(np.int32), np.zeros(count, np.int32)
        yield Integers(f"nodes/{READOUT}.#size", each, none + 1)
        for end, name in enumerate(READOUT_ENDS):
            yield Integers(f"edges/{name}.#size", each, none + 1)
            yield Integers(f"edges/{name}.#source", each, np.ascontiguousarray(places[:, end]))
            yield Integers(f"edges/{name}.#target", each, none)

    def seeds(self, block: SubgraphBlock) -> NDArray[np.int64]:
        """Node numbers of the seeds, [b, 1], or [b, 2] of links."""
        seeds = block.seeds.reshape(block.subgraphs, len(self.seed_sets)).astype(np.int64)
        for end, name in enumerate(self.seed_sets):
            check_numbers(self.graph, f"seeds in {name}", seeds[:, end], self.graph.node_sets[name].count)
        return seeds

    def seed_places(self, block: SubgraphBlock) -> NDArray[np.int64]:
        """Places of the seeds among the nodes of their sets in each subgraph, as `seeds` has their numbers."""
        seeds = self.seeds(block)
        places = np.zeros_like(seeds)
        if len(self.seed_sets) == 2:
            places[:, 1] = (self.seed_sets[0] == self.seed_sets[1]) & (seeds[:, 0] != seeds[:, 1])
        return places

    def seed_ids(self, block: SubgraphBlock) -> pa.Array:
        """Ids of the seeds, large_binary, those of a link behind each other."""
        count, ends = block.subgraphs, len(self.seed_sets)
        seeds = self.seeds(block)
        ids = [self.graph_ids(name).take(pa.array(seeds[:, end])) for end, name in enumerate(self.seed_sets)]
        parts = [part for each in ids for part in each.chunks]
        both = pa.concat_arrays(parts or [pa.array([], pa.large_string())]).cast(pa.large_binary())
        return both.take(pa.array(np.arange(ends * count).reshape(ends, count).T.reshape(-1)))

    def node_items(self, block: SubgraphBlock) -> Iterator[Items]:
        """The nodes of each set, by its number."""
        for i, node_set in enumerate(self.graph.node_sets.values()):
            rows = block.nodes[i]
            check_numbers(self.graph, f"nodes of {node_set.name}", rows, node_set.count)
            self._check_lengths(node_set.name, block.node_starts[i], rows)
            yield Items(node_set, block.node_starts[i], _for_features(node_set, rows))

    def edge_items(self, block: SubgraphBlock, without_positions: Collection[int] = ()) -> Iterator[Items]:
        """The edges of each set, by its number; those of a set that reverses another one by their rows there.

        Args:
            block: some subgraphs.
            without_positions: numbers of the sets whose positions may not have been read; of these there are no rows.
        """
        for j, edge_set in enumerate(self.graph.edge_sets.values()):
            starts, rows = block.edge_starts[j], np.zeros(0, np.int64)
            self._check_lengths(edge_set.name, starts, block.sources[j], block.targets[j])
            if j not in without_positions:
                rows = block.positions[j]
                check_numbers(self.graph, f"edges of {edge_set.name}", rows, edge_set.count)
                self._check_lengths(edge_set.name, starts, rows)
                rows = _for_features(edge_set, rows)
                if edge_set.features and (origin := self.graph.origin(edge_set.name)) is not None:
                    rows = origin[rows]
            yield Items(edge_set, starts, rows)

    def featureless(self) -> frozenset[int]:
        """Numbers of the edge sets without features: positions of their edges are not needed."""
        return frozenset(j for j, edges in enumerate(self.graph.edge_sets.values()) if not edges.features)

    def values(self, kind: str, owner: NodeSet | EdgeSet, feature: str) -> Values:
        """A feature's values, in the order of the rows that `node_items` and `edge_items` give."""
        with self._guard:
            key = kind, owner.name, feature
            if key not in self._values:
                if isinstance(owner, NodeSet):
                    found = self.graph.node_feature(owner.name, feature)
                else:
                    found = self.graph.edge_feature(owner.reversed_of or owner.name, feature)
                if (kind, owner.name) in self._whole:
                    map_whole(found)
                self._values[key] = np.asarray(found) if isinstance(found, np.ndarray) else found
            values: Values = self._values[key]
            return values

    def expect(self, items: Mapping[str, int]) -> None:
        """Announce how much will be read, so that files of which most is needed are mapped in one go.

        Args:
            items: nodes and edges of all subgraphs, by the columns of their lists in shards of `sample`.
        """
        sets = (*self._columns_of("nodes"), *self._columns_of("edges"))
        self._whole = {(kind, owner.name) for column, kind, owner in sets if items.get(column, 0) >= owner.count}

    def item_bytes(self) -> dict[str, float]:
        """About how many bytes of a record a node or an edge takes, by the column of its list in shards of `sample`."""
        return {
            column: 3 * (kind == "edges") + sum(self._bytes(kind, owner, feature) for feature in owner.features)
            for kind in ("nodes", "edges")
            for column, kind, owner in self._columns_of(kind)
        }

    def _columns_of(self, kind: str) -> Iterator[tuple[str, str, NodeSet | EdgeSet]]:
        """Column of each set's list in shards of `sample`, and its kind."""
        sets: Mapping[str, NodeSet | EdgeSet] = self.graph.node_sets if kind == "nodes" else self.graph.edge_sets
        for number, owner in enumerate(sets.values()):
            yield f"{'nodes' if kind == 'nodes' else 'source'}.{number}", kind, owner

    def _bytes(self, kind: str, owner: NodeSet | EdgeSet, feature: Feature) -> float:
        """Bytes of a feature of one item, on average over all."""
        if feature.dtype == STRING:
            lists, offsets, _ = self._strings(kind, owner.name, feature.name, owner)
            return float(offsets[-1] - offsets[0] + 2 * (len(offsets) - 1) + len(lists)) / max(1, owner.count)
        value = 4.0 if feature.dtype in FLOATS else _INTEGER_BYTES
        if not feature.is_ragged:
            return value * feature.width
        values = self.values(kind, owner, feature.name)
        assert isinstance(values, Ragged)
        return 1 + value * values.values.size / max(1, owner.count)

    def graph_ids(self, node_set: str) -> pa.ChunkedArray:
        """Ids of the nodes of a set, kept once read."""
        with self._guard:
            key = "ids", node_set, "array"
            if key not in self._values:
                self._values[key] = self.graph.ids(node_set)
            return self._values[key]

    def _strings(self, kind: str, name: str, feature: str, owner: NodeSet | EdgeSet | None = None) -> Any:
        with self._guard:
            key = f"{kind} strings", name, feature
            if key not in self._values:
                values = self.graph_ids(name) if owner is None else self.values(kind, owner, feature)
                self._values[key] = strings_of(values)
                self._values.pop((kind, name, feature), None)
            return self._values[key]

    def _feature(self, kind: str, items: Items, feature: Feature, name: str) -> Iterator[FeatureColumn]:
        if feature.dtype == STRING:
            strings = self._strings(kind, items.set.name, feature.name, items.set)
            yield Strings(name, items.starts, items.rows, strings)
            if feature.is_ragged:
                lengths = (strings[0][items.rows + 1] - strings[0][items.rows]) // max(1, feature.width)
                yield Integers(f"{name}.d1", items.starts, lengths)
            return
        values = self.values(kind, items.set, feature.name)
        if isinstance(values, Ragged):
            taken = take(values, items.rows)
            assert isinstance(taken, Ragged)
            yield _numbers(name, feature.width * taken.starts[items.starts], taken.values)
            yield Integers(f"{name}.d1", items.starts, np.diff(taken.starts))
            return
        assert isinstance(values, np.ndarray)
        if feature.dtype == "float":
            yield FloatRows(name, items.starts, items.rows, values.reshape(len(values), feature.width))
            return
        yield _numbers(name, feature.width * items.starts, picked(values, items.rows))

    def unfit(self, what: str, value: Any) -> DatasetDamaged:
        """The error for subgraphs that are not of this graph."""
        return _damaged(self.graph, what, value)

    def _check_lengths(self, name: str, starts: Starts, *lists: NDArray[Any]) -> None:
        if any(len(values) != starts[-1] for values in lists) or not (starts[1:] >= starts[:-1]).all():
            raise _damaged(self.graph, f"lists of {name} differ in length", len(lists[0]))


def _numbers(name: str, starts: Starts, values: NDArray[Any]) -> FeatureColumn:
    values = values.reshape(-1)
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):  # as TensorFlow does
            return Floats(name, starts, values.astype(np.float32, copy=False))
    return Integers(name, starts, values if values.dtype == np.int32 else values.astype(np.int64, copy=False))


def seed_sets_of(dataset: Dataset, graph: HeteroGraph) -> tuple[str, ...]:
    """Names of the node sets of the seeds of a `sample` dataset: one, or that of links twice.

    Raises:
        DatasetDamaged: the graph has no such set.
    """
    document, names = dataset.json(DESCRIPTION), list(graph.node_sets)
    try:
        number = document["seed_node_set"]
        if number not in range(len(names)):
            raise ValueError(f"seeds of node set {number!r}")
        return (names[number],) * (1 + ("symmetric_link_seed_op" in document["spec"]))
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(graph, f"{DESCRIPTION} is not of it", str(error)) from None


def strings_of(values: Any) -> tuple[Starts, Starts, NDArray[np.uint8]]:
    """Strings as kernels read them: where the lists of items begin (empty if an item is one string), where strings
    begin, and their bytes."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    lists = np.zeros(0, np.int64)
    if pa.types.is_large_list(array.type):
        offsets = array.offsets.to_numpy()
        lists, array = offsets - offsets[0], array.flatten()
    array = array.cast(pa.large_binary())
    if not len(array):
        return lists, np.zeros(1, np.int64), np.zeros(0, np.uint8)
    _, offsets, data = array.buffers()
    found = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return lists, found, content


def check_numbers(graph: HeteroGraph, what: str, rows: NDArray[Any], count: int) -> None:
    """Refuse numbers of items that a set of the graph does not have.

    Raises:
        DatasetDamaged: names them.
    """
    # One pass: a number below 0 is beyond all that have a sign when it is read without its own.
    beyond = min(count, 1 << (8 * rows.itemsize - 1))
    if len(rows) and int(rows.view(f"u{rows.itemsize}").max()) >= beyond:
        wrong = rows[(rows < 0) | (rows >= count)]
        raise _damaged(graph, f"{what} are beyond the {count} that there are", int(wrong[0]))


def _for_features(owner: NodeSet | EdgeSet, rows: NDArray[Any]) -> NDArray[Any]:
    """Rows as `Items` has them."""
    return rows.astype(np.int64, copy=False) if owner.features else rows


def _damaged(graph: HeteroGraph, what: str, value: Any) -> DatasetDamaged:
    return DatasetDamaged(
        f"the subgraphs are not of this graph: {what}", where=graph.dataset.uri, value=value,
        remedy="Give the graph that they were sampled from",
    )  # fmt: skip
