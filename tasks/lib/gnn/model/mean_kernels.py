"""Compiled loops of layers that read means: rows and means concatenated in one matrix, and their gradients.

A layer multiplies one matrix with a node's own row and the means of its neighbours by each edge set. These are written
side by side, directly from their source: a table of all nodes, without a copy for the batch, or the rows of the layer
before. All loops are parallel over the rows that they write; each row is written by one thread in the order of the
edges, so the bits do not depend on the threads.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.float16 import value_of
from superworkflow.tasks.lib.kernels.prefetch import AHEAD, prefetch_far, prefetch_row, prefetch_rows
from superworkflow.tasks.lib.kernels.random import GAMMA, mix

_EDGES_AHEAD = 64
"""Entries of the list of edges by which loops prefetch ahead of the one that they read."""


@nb.njit(inline="always")
def _prefetch_at(flat: Any, width: Any, indices: Any, positions: Any, e: Any, count: Any) -> Any:
    """`prefetch_rows` of indices[positions], whose own entries are prefetched still further ahead."""
    if e + (_EDGES_AHEAD - AHEAD) + count <= len(positions):
        for k in range(e + (_EDGES_AHEAD - AHEAD), e + (_EDGES_AHEAD - AHEAD) + count):
            prefetch_far(indices, positions[k])
    if e + count <= len(positions):
        for k in range(e, e + count):
            prefetch_row(flat, np.int64(indices[positions[k]]) * width, width)


@nb.njit(nogil=True)
def add(row: Any, one: Any) -> None:
    for c in range(len(row)):
        row[c] += value_of(one[c])


@nb.njit(nogil=True)
def add_four(row: Any, one: Any, two: Any, three: Any, four: Any) -> None:
    """Four calls of `add` in one pass: the sums are bit-equal."""
    for c in range(len(row)):
        row[c] = (((row[c] + value_of(one[c])) + value_of(two[c])) + value_of(three[c])) + value_of(four[c])


@nb.njit(nogil=True)
def add_masked(row: Any, one: Any, node: Any, dropped: Any, state: Any, words: Any) -> None:
    """Add a node's row after the dropout of `kernels.fill_masks`; `words` is scratch, uint64 [width / 4 rounded up]."""
    scale = np.float32(65536.0 / (65536.0 - dropped))
    own = mix(state + np.uint64(np.int64(node) + 1) * GAMMA)
    for i in range(len(words)):
        words[i] = mix(own + np.uint64(i + 1) * GAMMA)
    lanes = words.view(np.uint16)
    for c in range(len(row)):
        row[c] += value_of(one[c]) * (scale if lanes[c] >= dropped else np.float32(0))


@nb.njit(nogil=True)
def end_mean(row: Any, count: Any) -> None:
    share = np.float32(1) / np.float32(max(1, count))
    for c in range(len(row)):
        row[c] *= share


@nb.njit(parallel=True, cache=True)
def gather_rows(
    table: NDArray[Any], nodes: NDArray[np.int64], dropped: int, state: np.uint64, out: NDArray[np.float32],
    column: int,
) -> None:  # fmt: skip
    """Rows of nodes, after dropout.

    Args:
        table: rows of all nodes [n, d]; see `float16.as_read`.
        nodes: [r].
        dropped, state: as in `kernels.fill_masks`; 0 for no dropout.
        out: [r, at least column + d], filled from `column` on.
        column: first column.
    """
    width, flat = table.shape[1], table.reshape(-1)
    for i in nb.prange(len(nodes)):
        prefetch_rows(flat, width, nodes, i + AHEAD, 1)
        row = out[i, column : column + width]
        row[:] = np.float32(0)
        if dropped:
            add_masked(row, table[nodes[i]], nodes[i], dropped, state, np.empty((width + 3) >> 2, np.uint64))
        else:
            add(row, table[nodes[i]])


@nb.njit(parallel=True, cache=True)
def gather_means(
    table: NDArray[Any], indices: NDArray[Any], positions: NDArray[np.int64], starts: NDArray[np.int64],
    dropped: int, state: np.uint64, out: NDArray[np.float32], column: int,
) -> None:  # fmt: skip
    """Means of the rows of drawn neighbours, each after dropout; 0 of none.

    Args:
        table: rows of all nodes [n, d]; see `float16.as_read`.
        indices: nodes of the edge set.
        positions: positions of the drawn edges [e].
        starts: edge offsets of the receivers [r + 1].
        dropped, state, out, column: as in `gather_rows`.
    """
    width, flat = table.shape[1], table.reshape(-1)
    for i in nb.prange(len(starts) - 1):
        e, last = starts[i], starts[i + 1]
        row = out[i, column : column + width]
        row[:] = np.float32(0)
        if dropped:
            words = np.empty((width + 3) >> 2, np.uint64)
            while e < last:
                _prefetch_at(flat, width, indices, positions, e + AHEAD, 1)
                node = indices[positions[e]]
                add_masked(row, table[node], node, dropped, state, words)
                e += 1
        while e + 4 <= last:
            _prefetch_at(flat, width, indices, positions, e + AHEAD, 4)
            one, two = table[indices[positions[e]]], table[indices[positions[e + 1]]]
            add_four(row, one, two, table[indices[positions[e + 2]]], table[indices[positions[e + 3]]])
            e += 4
        while e < last:
            _prefetch_at(flat, width, indices, positions, e + AHEAD, 1)
            add(row, table[indices[positions[e]]])
            e += 1
        end_mean(row, last - starts[i])


@nb.njit(parallel=True, cache=True)
def mean_rows(
    values: NDArray[np.float32], starts: NDArray[np.int64], senders: NDArray[Any], out: NDArray[np.float32], column: int
) -> None:
    """Means of the rows of each receiver's senders; 0 of none.

    Args:
        values: rows of the senders [n, d].
        starts, senders: [r + 1], [e].
        out, column: as in `gather_rows`.
    """
    width, flat = values.shape[1], values.reshape(-1)
    for i in nb.prange(len(starts) - 1):
        e, last = starts[i], starts[i + 1]
        row = out[i, column : column + width]
        row[:] = np.float32(0)
        while e + 4 <= last:
            prefetch_rows(flat, width, senders, e + AHEAD, 4)
            one, two = values[senders[e]], values[senders[e + 1]]
            add_four(row, one, two, values[senders[e + 2]], values[senders[e + 3]])
            e += 4
        while e < last:
            prefetch_rows(flat, width, senders, e + AHEAD, 1)
            add(row, values[senders[e]])
            e += 1
        end_mean(row, last - starts[i])


@nb.njit(nogil=True, cache=True)
def transpose(
    starts: NDArray[np.int64], senders: NDArray[Any], begins: NDArray[np.int64], receivers: NDArray[np.int32]
) -> None:
    """Edges by sender, in their order for each sender.

    Args:
        starts, senders: [r + 1], [e].
        begins: zeros [n + 2], of which the first n + 1 become the edge offsets of the senders.
        receivers: [e], filled.
    """
    for e in range(len(senders)):
        begins[senders[e] + 2] += 1
    for i in range(2, len(begins)):
        begins[i] += begins[i - 1]
    for i in range(len(starts) - 1):
        for e in range(starts[i], starts[i + 1]):
            sender = senders[e]
            receivers[begins[sender + 1]] = np.int32(i)
            begins[sender + 1] += 1


@nb.njit(parallel=True, cache=True)
def spread_back(
    gradients: NDArray[np.float32], own: int, column: int, starts: NDArray[np.int64], begins: NDArray[np.int64],
    receivers: NDArray[np.int32], values: NDArray[np.float32], more: bool, out: NDArray[np.float32],
) -> None:  # fmt: skip
    """Gradients of the senders: of the copied first rows, of `mean_rows`, and of a ReLU before them.

    All in one pass over `out`, which is larger than the cache.

    Args:
        gradients: gradients of the receivers [r, columns].
        own: first column of the copied rows; -1 if none were copied.
        column: first column of the means.
        starts: edge offsets of the means [r + 1].
        begins, receivers: results of `transpose`.
        values: results of the ReLU [n, d]; [0, d] for no ReLU.
        more: add to `out` instead of overwriting it.
        out: gradients of the senders [n, d].
    """
    width, flat, columns = out.shape[1], gradients.reshape(-1), gradients.shape[1]
    for i in nb.prange(len(out)):
        row = out[i]
        if own >= 0 and i < len(gradients):
            one = gradients[i, own : own + width]
            if more:
                add(row, one)
            else:
                row[:] = one
        elif not more:
            row[:] = np.float32(0)
        for e in range(begins[i], begins[i + 1]):
            if e + AHEAD < len(receivers):
                prefetch_row(flat, np.int64(receivers[e + AHEAD]) * columns + column, width)
            receiver = receivers[e]
            share = np.float32(1) / np.float32(starts[receiver + 1] - starts[receiver])
            _add_share(row, gradients[receiver, column : column + width], share)
        if len(values):
            _keep_positive(row, values[i])


@nb.njit(nogil=True)
def _add_share(row: Any, one: Any, share: Any) -> None:
    for c in range(len(row)):
        row[c] += one[c] * share


@nb.njit(nogil=True)
def _keep_positive(row: Any, one: Any) -> None:
    for c in range(len(row)):
        row[c] = row[c] if one[c] > 0 else np.float32(0)
