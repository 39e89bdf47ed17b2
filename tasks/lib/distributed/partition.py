"""Datasets of stage partition: the order of the nodes, and the range of each part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.safe_names import reason_of
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph, index_dtype
from superworkflow.tasks.lib.graph.integrity import damaged

FORMAT = 1
PARTITION_FILE, BOOK_FILE = "partition.json", "book.npy"


def order_file(node_set: int) -> str:
    """Name of the file of a node set's order."""
    return f"nodes-{node_set}-order.npy"


@dataclass(frozen=True)
class NodePartition:
    """Assignment of nodes to parts.

    Args:
        orders: old number of each new one, by node set; parts one after the other, ascending within a part.
        book: first new number of each part, int64 [node sets, parts + 1].
    """

    orders: dict[str, NDArray[Any]]
    book: NDArray[np.int64]

    @property
    def count(self) -> int:
        return int(self.book.shape[1]) - 1

    @classmethod
    def open(cls, dataset: Dataset, graph: HeteroGraph) -> NodePartition:
        """Open the partition of a graph.

        Raises:
            UserError: the dataset divides another graph.
            DatasetDamaged: files contradict each other.
        """
        made_of = dataset.manifest.inputs.get("graph")
        if made_of is not None and made_of.digest != graph.dataset.digest:
            raise UserError("these are parts of another graph", where=dataset.uri, value=made_of.digest,
                            remedy="Give the graph that was divided")  # fmt: skip
        counts = [each.count for each in graph.node_sets.values()]
        book = book_of(dataset, counts)
        orders = {}
        for number, name in enumerate(graph.node_sets):
            order = _array(dataset, order_file(number))
            if order.shape != (counts[number],) or order.dtype != index_dtype(counts[number]):
                raise damaged(dataset, order_file(number), f"{counts[number]} numbers", list(order.shape))
            cuts = book[number]
            if len(order) and not 0 <= int(order.min()) <= int(order.max()) < counts[number]:
                raise damaged(dataset, order_file(number), "a number of no node", int(order.max()))
            seen = np.zeros(counts[number], bool)
            seen[order] = True
            falls = np.flatnonzero(order[1:] <= order[:-1]) + 1
            if not seen.all() or not np.isin(falls, cuts).all():
                raise damaged(dataset, order_file(number), "a node is in two parts or none, or not in its place")
            orders[name] = order
        return cls(orders, book)


def book_of(dataset: Dataset, counts: list[int]) -> NDArray[np.int64]:
    """Ranges of the parts in a dataset of stage partition or shard.

    Args:
        dataset: the dataset.
        counts: sizes of the node sets.

    Raises:
        DatasetDamaged: the ranges do not fit these node sets.
    """
    book: NDArray[np.int64] = _array(dataset, BOOK_FILE)
    if book.dtype != np.int64 or book.ndim != 2 or book.shape[0] != len(counts) or book.shape[1] < 2:
        raise damaged(dataset, BOOK_FILE, f"int64 [{len(counts)}, parts + 1]", f"{book.dtype}{list(book.shape)}")
    if (book[:, 0] != 0).any() or (book[:, -1] != counts).any() or (np.diff(book, axis=1) < 0).any():
        raise damaged(dataset, BOOK_FILE, "ranges do not cover the nodes")
    return book


def _array(dataset: Dataset, name: str) -> NDArray[Any]:
    if name not in dataset:
        raise damaged(dataset, name, "there is no such file")
    try:
        return dataset.array(name)
    except (ValueError, EOFError) as error:
        raise damaged(dataset, name, reason_of(error)) from None
