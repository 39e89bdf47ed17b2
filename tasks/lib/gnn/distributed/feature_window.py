"""Rows that the batches of a window read: own rows from the worker's table, remote rows requested once per window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.distributed.partition_book import PartitionBook
from superworkflow.tasks.lib.gnn.sampler.kernels import compact, leave
from superworkflow.tasks.lib.graph.heterograph import index_dtype
from superworkflow.tasks.lib.kernels.arrays import read_only


class WindowRows:
    """Nodes of one set whose rows the batches of a window read.

    Args:
        book: owners of the nodes.
        rank: rank of this worker.
        node_set: set of the nodes.
        lists: nodes of each batch, int64.
        found: scratch, int32: -1 for each node of the set, before and after.

    `remote` are the distinct nodes of other workers, int64.
    """

    def __init__(
        self,
        book: PartitionBook,
        rank: int,
        node_set: str,
        lists: Sequence[NDArray[np.int64]],
        found: NDArray[np.int32],
    ):
        bounds = book.bounds[node_set]
        self._rows = [book.own(node_set, nodes, rank) for nodes in lists]
        size = int(bounds[rank + 1] - bounds[rank])
        self._elsewhere = [(rows < 0) | (rows >= size) for rows in self._rows]
        elsewhere = [nodes[there] for nodes, there in zip(lists, self._elsewhere, strict=True)]
        nodes = read_only(np.concatenate(elsewhere).astype(index_dtype(len(found))))
        distinct, places = np.empty(len(nodes), np.int64), np.empty(len(nodes), np.int32)
        count = compact(nodes, np.arange(len(nodes)), found, distinct, 0, places)
        self.remote = distinct[:count]
        leave(self.remote, found)
        self._places = np.split(places, np.cumsum([len(each) for each in elsewhere])[:-1])

    def of_batches(self, where: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """`kv_store.RemoteRows.where` of each batch's nodes, from that of the nodes `remote`."""
        for rows, there, places in zip(self._rows, self._elsewhere, self._places, strict=True):
            rows[there] = where[places]
        return self._rows
