"""Rows that the batches of a window read: a worker's own from its table, those of others' nodes asked for once."""

from __future__ import annotations

from collections.abc import Sequence

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks._gnn.kernels import compact, leave, read_only
from superworkflow.tasks._gnn.owners import Book
from superworkflow.tasks._heterograph import index_dtype


class WindowRows:
    """Nodes of one set whose rows some batches read.

    Args:
        book: who owns them.
        rank: of this worker.
        node_set: of the nodes.
        lists: of each batch, int64.
        found: -1 for each node of the set, int32; left so.

    `asked` are the others' nodes among them, each once, int64.
    """

    def __init__(
        self, book: Book, rank: int, node_set: str, lists: Sequence[NDArray[np.int64]], found: NDArray[np.int32]
    ):
        bounds = book.bounds[node_set]
        self._rows = [book.own(node_set, nodes, rank) for nodes in lists]
        size = int(bounds[rank + 1] - bounds[rank])
        elsewhere = [nodes[(rows < 0) | (rows >= size)] for nodes, rows in zip(lists, self._rows, strict=True)]
        nodes = read_only(np.concatenate(elsewhere).astype(index_dtype(len(found))))
        distinct, places = np.empty(len(nodes), np.int64), np.empty(len(nodes), np.int32)
        count = compact(nodes, np.arange(len(nodes)), found, distinct, 0, places)
        self.asked = distinct[:count]
        leave(self.asked, found)
        self._places = np.split(places, np.cumsum([len(each) for each in elsewhere])[:-1])

    def of_batches(self, own: NDArray[np.float32], others: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Rows of each batch's nodes.

        Args:
            own: of this worker's nodes [nodes, width].
            others: of those that were `asked` for [n, width].
        """
        found = []
        for rows, places in zip(self._rows, self._places, strict=True):
            out = np.empty((len(rows), own.shape[1]), np.float32)
            _merge(read_only(np.ascontiguousarray(own)), read_only(others), rows, places, out)
            found.append(out)
        return found


@nb.njit(nogil=True, cache=True)
def _merge(
    own: NDArray[np.float32], others: NDArray[np.float32], rows: NDArray[np.int64], places: NDArray[np.int32],
    out: NDArray[np.float32],
) -> None:  # fmt: skip
    """Rows of `own`, and for those that are not among them rows of `others`, whose places come in turn."""
    at = 0
    for i in range(len(rows)):
        row = rows[i]
        if 0 <= row < len(own):
            for c in range(own.shape[1]):
                out[i, c] = own[row, c]
        else:
            place = places[at]
            at += 1
            for c in range(own.shape[1]):
                out[i, c] = others[place, c]
