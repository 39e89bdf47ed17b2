"""Datasets of stage shard: the parts of a graph, and a contiguous range of them as one partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.safe_names import reason_of
from superworkflow.tasks.lib.distributed.partition import book_of
from superworkflow.tasks.lib.graph.heterograph import CsrRows, index_dtype
from superworkflow.tasks.lib.graph.integrity import check_rows, damaged

FORMAT = 5
SHARDS_FILE = "shards.json"


class ShardedNodes(NamedTuple):
    """A node set: `width` counts the feature values of a node."""

    name: str
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    width: int


class ShardedEdges(NamedTuple):
    """An edge set.

    Args:
        name, source, target, count: the set, the node sets of its ends, and the number of its edges.
        features: names of the features of numbers.
        widths: numbers of an edge, by feature.
        whole: names of the features that are one whole number for each edge.
    """

    name: str
    source: str
    target: str
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    features: tuple[str, ...]
    widths: tuple[int, ...]
    whole: tuple[str, ...]


def folder_of(part: int) -> str:
    """Name of a part's folder."""
    return f"part-{part:04}"


def feature_file(edge_set: int, place: int) -> str:
    """File in a part's folder of the feature at index `place` of `ShardedEdges.features`."""
    return f"edges-{edge_set}-feature-{place}.npy"


def document_of(parts: int, nodes: Sequence[ShardedNodes], edges: Sequence[ShardedEdges]) -> dict[str, Any]:
    """Document in `shards.json`."""
    return {
        "format": FORMAT, "parts": parts,
        "node_sets": [each._asdict() for each in nodes], "edge_sets": [each._asdict() for each in edges],
    }  # fmt: skip


@dataclass(frozen=True)
class LocalPartition:
    """Contiguous parts of a graph. Nodes have new numbers, except in `numbers` and `halo_numbers`.

    Args:
        low, high: by node set, first and end of the owned nodes' numbers.
        numbers: old numbers of the owned nodes.
        halo, halo_numbers: nodes of other parts that rows refer to, ascending, and their old numbers.
        rows: rows of the owned nodes, by number of the edge set.
        first: begin of each row in the whole graph.
        features: float32 [nodes, values], by node set that has any.
    """

    low: dict[str, int]
    high: dict[str, int]
    numbers: dict[str, NDArray[Any]]
    halo: dict[str, NDArray[Any]]
    halo_numbers: dict[str, NDArray[Any]]
    rows: dict[int, CsrRows]
    first: dict[int, NDArray[np.int64]]
    features: dict[str, NDArray[np.float32]]


class Shards:
    """A dataset of stage shard; files are checked when they are read.

    Args:
        dataset: the dataset.

    Raises:
        UserError: the dataset is not of stage shard.
        DatasetDamaged: files contradict each other.
    """

    def __init__(self, dataset: Dataset):
        self.dataset = dataset
        if SHARDS_FILE not in dataset:
            raise UserError(f"the dataset has no {SHARDS_FILE}: it is not a graph in parts", where=dataset.uri,
                            remedy="Give the output of stage shard")  # fmt: skip
        try:
            document = dataset.json(SHARDS_FILE)
            if document["format"] != FORMAT:
                raise ValueError(f"format {document['format']!r}; this version reads {FORMAT}")
            self.node_sets = {each["name"]: ShardedNodes(**each) for each in document["node_sets"]}
            self.edge_sets = [
                ShardedEdges(**each | {name: _names(each, name) for name in ("features", "whole")} | _widths(each))
                for each in document["edge_sets"]
            ]
            sizes = [number for each in self.node_sets.values() for number in (each.count, each.width)]
            sizes += [each.count for each in self.edge_sets]
            if not all(isinstance(size, int) and 0 <= size < 2**62 for size in sizes):
                raise ValueError("a size is not a number from 0")
            ends = {end for each in self.edge_sets for end in (each.source, each.target)}
            if not ends <= self.node_sets.keys():
                raise ValueError("an edge set has ends in no node set")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise damaged(dataset, SHARDS_FILE, reason_of(error)) from None
        self.book = book_of(dataset, [each.count for each in self.node_sets.values()])

    @property
    def parts(self) -> int:
        return int(self.book.shape[1]) - 1

    def bounds(self, workers: int) -> NDArray[np.int64]:
        """Bounds of each worker's parts: worker w has ``[w]`` to below ``[w + 1]``.

        Raises:
            UserError: there are more workers than parts.
        """
        if workers > self.parts:
            raise UserError(f"there are more workers than the graph's {self.parts} parts", where="resources.workers",
                            value=workers, remedy="Raise partition.parts, or take fewer workers")  # fmt: skip
        return np.arange(workers + 1) * self.parts // workers

    def orders(self) -> dict[str, NDArray[Any]]:
        """Old number of each new one, of all parts, by node set.

        Raises:
            DatasetDamaged: a node is in two parts, or in none.
        """
        found = {}
        for i, (name, each) in enumerate(self.node_sets.items()):
            book, kind, parts = self.book[i], index_dtype(each.count), []
            for part in range(self.parts):
                file, size = f"{folder_of(part)}/nodes-{i}-numbers.npy", int(book[part + 1] - book[part])
                parts.append(self._array(file, kind, (size,), each.count))
            found[name] = np.concatenate(parts)
            seen = np.zeros(each.count, bool)
            seen[found[name]] = True
            if not seen.all():
                raise damaged(self.dataset, f"nodes-{i}-numbers.npy", "a node is in two parts, or in none")
        return found

    def piece(self, first: int, last: int) -> LocalPartition:
        """The parts from `first` to below `last`.

        Raises:
            DatasetDamaged: files do not fit each other.
        """
        low, high = ({name: int(self.book[i, p]) for i, name in enumerate(self.node_sets)} for p in (first, last))
        numbers, halo, halo_numbers, features = {}, {}, {}, {}
        for i, (name, each) in enumerate(self.node_sets.items()):
            kind, own = index_dtype(each.count), self.book[i]
            parts, others, theirs, values = [], [], [], []
            for part in range(first, last):
                size, stem = int(own[part + 1] - own[part]), f"{folder_of(part)}/nodes-{i}-"
                parts.append(self._array(f"{stem}numbers.npy", kind, (size,), each.count))
                others.append(self._array(f"{stem}halo.npy", kind, None, each.count))
                theirs.append(self._array(f"{stem}halo-numbers.npy", kind, others[-1].shape, each.count))
                if (np.diff(others[-1]) <= 0).any():
                    raise damaged(self.dataset, f"{stem}halo.npy", "numbers do not ascend")
                if each.width:
                    values.append(self._array(f"{stem}features.npy", np.dtype(np.float32), (size, each.width)))
            numbers[name] = np.concatenate(parts)
            new, old = np.concatenate(others), np.concatenate(theirs)
            new, distinct = np.unique(new, return_index=True)
            outside = (new < low[name]) | (new >= high[name])
            halo[name], halo_numbers[name] = new[outside], old[distinct][outside]
            if each.width:
                features[name] = np.concatenate(values)
        rows, firsts = {}, {}
        for j, edges in enumerate(self.edge_sets):
            rows[j], firsts[j] = self._rows(j, edges, first, last)
        return LocalPartition(low, high, numbers, halo, halo_numbers, rows, firsts, features)

    def edge_feature(
        self, edge_set: int, name: str, first: int, last: int, indptr: NDArray[np.int64]
    ) -> NDArray[np.float32]:  # fmt: skip
        """A feature of the edges of the parts from `first` to below `last`; values are not checked.

        Returns float32 [edges, width].

        Args:
            edge_set: number of the edge set.
            name: name of the feature.
            first, last: range of parts.
            indptr: offsets of the rows that `piece` returned for these parts.

        Raises:
            DatasetDamaged: there is no such feature, or files contradict each other.
        """
        return self._values(edge_set, name, first, last, indptr).astype(np.float32, copy=False)

    def times(
        self, edge_set: int, name: str, first: int, last: int, indptr: NDArray[np.int64]
    ) -> NDArray[np.int64]:  # fmt: skip
        """A feature of whole numbers, int64 [edges]; see `edge_feature`.

        Raises:
            DatasetDamaged: there is no such feature, or files contradict each other.
        """
        if name not in self.edge_sets[edge_set].whole:
            raise damaged(self.dataset, SHARDS_FILE, "edges have no such feature of whole numbers", name)
        return self._values(edge_set, name, first, last, indptr)[:, 0]

    def _values(self, edge_set: int, name: str, first: int, last: int, indptr: NDArray[np.int64]) -> NDArray[Any]:
        edges = self.edge_sets[edge_set]
        if name not in edges.features:
            raise damaged(self.dataset, SHARDS_FILE, f"edges of {edges.name} have no such feature", name)
        place, book = edges.features.index(name), self._book_of(edges.source)[first : last + 1]
        file, width = feature_file(edge_set, place), edges.widths[place]
        counts, kind = np.diff(indptr[book - book[0]]).tolist(), np.int64 if name in edges.whole else np.float32
        return np.concatenate([
            self._array(f"{folder_of(part)}/{file}", np.dtype(kind), (count, width))
            for part, count in zip(range(first, last), counts, strict=True)
        ])  # fmt: skip

    def _book_of(self, node_set: str) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self.book[list(self.node_sets).index(node_set)]
        return found

    def _rows(self, j: int, edges: ShardedEdges, first: int, last: int) -> tuple[CsrRows, NDArray[np.int64]]:
        targets = self.node_sets[edges.target].count
        book = self._book_of(edges.source)
        starts, ends, firsts, before = [np.zeros(1, np.int64)], [], [], 0
        for part in range(first, last):
            size, stem = int(book[part + 1] - book[part]), f"{folder_of(part)}/edges-{j}-"
            indptr = self._array(f"{stem}indptr.npy", np.dtype(np.int64), (size + 1,))
            indices = self._array(f"{stem}indices.npy", index_dtype(targets), None)
            check_rows(f"{self.dataset.uri}/{folder_of(part)}", indptr, indices, None, targets, f"edges-{j}-")
            firsts.append(self._array(f"{stem}first.npy", np.dtype(np.int64), (size,), edges.count + 1))
            starts.append(indptr[1:] + before)
            ends.append(indices)
            before += int(indptr[-1])
        return CsrRows(np.concatenate(starts), np.concatenate(ends)), np.concatenate(firsts)

    def _array(
        self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...] | None, below: int | None = None
    ) -> NDArray[Any]:
        """Read a file of this type and shape (None: any length), with numbers from 0 to below `below`."""
        if name not in self.dataset:
            raise damaged(self.dataset, name, "there is no such file")
        try:
            values = self.dataset.array(name)
        except (ValueError, EOFError) as error:
            raise damaged(self.dataset, name, reason_of(error)) from None
        if values.dtype != dtype or (values.ndim != 1 if shape is None else values.shape != shape):
            raise damaged(self.dataset, name, f"{dtype}{list(shape or ('n',))}", f"{values.dtype}{list(values.shape)}")
        if below is not None and len(values) and not 0 <= int(values.min()) <= int(values.max()) < below:
            raise damaged(self.dataset, name, f"a number is outside 0 to {below - 1}", int(values.max()))
        return values


def _names(edges: dict[str, Any], kind: str) -> tuple[str, ...]:
    """Names of features. Raises ValueError unless they are distinct texts."""
    names = edges[kind]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise ValueError("features of edges have no names")
    return tuple(names)


def _widths(edges: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Widths of the features. Raises ValueError unless each feature has one, which is 1 for whole numbers."""
    widths, names = edges["widths"], edges["features"]
    if len(widths) != len(names) or not all(isinstance(width, int) and 0 < width < 2**31 for width in widths):
        raise ValueError("features of edges have no widths")
    width_of = dict(zip(names, widths, strict=True))
    if any(width_of.get(name) != 1 for name in edges["whole"]):
        raise ValueError("whole numbers of edges are not single")
    return {"widths": tuple(widths)}
