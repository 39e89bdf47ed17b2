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
from superworkflow.tasks.lib.kernels.prefetch import prefetch_far, prefetch_row
from superworkflow.tasks.lib.kernels.random import fill_words
from superworkflow.tasks.lib.kernels.row_sums import AHEAD, add_scaled_rows, mean_of_rows

_EDGES_AHEAD = 64
"""Entries of the list of edges by which loops prefetch ahead of the one that they read."""
_WRITTEN_AHEAD = 4
"""Rows by which loops prefetch ahead of the one that they write."""
_CHUNK = 128
"""Rows that a thread writes at a time."""
_FIRST = np.zeros(1 + AHEAD, np.int64)
"""Begins of a table's first row alone."""


@nb.njit(inline="always")
def _begin_rows(flat: Any, begins: Any, count: Any, width: Any) -> Any:
    """Prefetch the first of `count` rows, and fill the entries behind the end of the list as `row_sums` has them."""
    for j in range(min(AHEAD, count)):
        prefetch_row(flat, begins[j], width)
    for j in range(count, count + AHEAD):
        begins[j] = begins[count - 1] if count else 0


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
    fill_words(words, state, node)
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
    table: NDArray[Any], nodes: NDArray[np.int64], dropped: int, state: np.uint64, out: NDArray[Any], column: int
) -> None:
    """Rows of nodes, after dropout.

    Args:
        table: rows of all nodes [n, d]; see `float16.as_read`.
        nodes: [r].
        dropped, state: as in `kernels.fill_masks`; 0 for no dropout.
        out: [r, at least column + d], float32 or bits of bfloat16 as int16, filled from `column` on.
        column: first column.
    """
    width, flat, stride, filled = table.shape[1], table.reshape(-1), out.shape[1], out.reshape(-1)
    for chunk in nb.prange((len(nodes) + _CHUNK - 1) // _CHUNK):
        begin = chunk * _CHUNK
        count = min(_CHUNK, len(nodes) - begin)
        begins = np.empty(_CHUNK + AHEAD, np.int64)
        row, words = np.zeros(width, np.float32), np.empty((width + 3) >> 2, np.uint64)
        for i in range(count):
            begins[i] = nodes[begin + i] * width
        _begin_rows(flat, begins, count, width)
        for i in range(count):
            place = (begin + i) * stride + column
            prefetch_row(filled, place + _WRITTEN_AHEAD * stride, width)
            if dropped:
                prefetch_row(flat, begins[i + AHEAD], width)
                row[:] = np.float32(0)
                node = nodes[begin + i]
                add_masked(row, table[node], node, dropped, state, words)
                mean_of_rows(row, _FIRST, 0, 1, width, np.float32(1), filled, place)
            else:
                mean_of_rows(flat, begins, i, i + 1, width, np.float32(1), filled, place)


@nb.njit(parallel=True, cache=True)
def gather_means(
    table: NDArray[Any], indices: NDArray[Any], positions: NDArray[np.int64], starts: NDArray[np.int64],
    dropped: int, state: np.uint64, out: NDArray[Any], column: int,
) -> None:  # fmt: skip
    """Means of the rows of drawn neighbours, each after dropout; 0 of none.

    Args:
        table: rows of all nodes [n, d]; see `float16.as_read`.
        indices: nodes of the edge set.
        positions: positions of the drawn edges [e].
        starts: edge offsets of the receivers [r + 1].
        dropped, state, out, column: as in `gather_rows`.
    """
    width, flat, stride, filled = table.shape[1], table.reshape(-1), out.shape[1], out.reshape(-1)
    for chunk in nb.prange((len(starts) + _CHUNK - 2) // _CHUNK):
        begin = chunk * _CHUNK
        end = min(len(starts) - 1, begin + _CHUNK)
        first = starts[begin]
        count = starts[end] - first
        begins = np.empty(count + AHEAD, np.int64)
        row, words = np.empty(width, np.float32), np.empty((width + 3) >> 2, np.uint64)
        for j in range(count):
            if first + j + _EDGES_AHEAD < len(positions):
                prefetch_far(indices, positions[first + j + _EDGES_AHEAD])
            begins[j] = np.int64(indices[positions[first + j]]) * width
        _begin_rows(flat, begins, count, width)
        for i in range(begin, end):
            low, high, place = starts[i] - first, starts[i + 1] - first, i * stride + column
            prefetch_row(filled, place + _WRITTEN_AHEAD * stride, width)
            share = np.float32(1) / np.float32(max(1, high - low))
            if dropped:
                row[:] = np.float32(0)
                for j in range(low, high):
                    prefetch_row(flat, begins[j + AHEAD], width)
                    node = indices[positions[first + j]]
                    add_masked(row, table[node], node, dropped, state, words)
                mean_of_rows(row, _FIRST, 0, 1, width, share, filled, place)
            else:
                mean_of_rows(flat, begins, low, high, width, share, filled, place)


@nb.njit(parallel=True, cache=True)
def mean_rows(
    values: NDArray[Any], starts: NDArray[np.int64], senders: NDArray[Any], out: NDArray[Any], column: int
) -> None:
    """Means of the rows of each receiver's senders; 0 of none.

    Args:
        values: rows of the senders [n, d], float32 or bits of bfloat16 as int16.
        starts, senders: [r + 1], [e].
        out, column: as in `gather_rows`.
    """
    width, flat, stride, filled = values.shape[1], values.reshape(-1), out.shape[1], out.reshape(-1)
    for chunk in nb.prange((len(starts) + _CHUNK - 2) // _CHUNK):
        begin = chunk * _CHUNK
        end = min(len(starts) - 1, begin + _CHUNK)
        first = starts[begin]
        count = starts[end] - first
        begins = np.empty(count + AHEAD, np.int64)
        for j in range(count):
            begins[j] = np.int64(senders[first + j]) * width
        _begin_rows(flat, begins, count, width)
        for i in range(begin, end):
            low, high = starts[i] - first, starts[i + 1] - first
            share = np.float32(1) / np.float32(max(1, high - low))
            mean_of_rows(flat, begins, low, high, width, share, filled, i * stride + column)


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
    gradients: NDArray[Any], own: int, column: int, starts: NDArray[np.int64], begins: NDArray[np.int64],
    receivers: NDArray[np.int32], values: NDArray[Any], more: bool, out: NDArray[Any],
) -> None:  # fmt: skip
    """Gradients of the senders: of the copied first rows, of `mean_rows`, and of a ReLU before them.

    All in one pass over `out`, which is larger than the cache.

    Args:
        gradients: gradients of the receivers [r, columns], of the type of `values` and `out`: float32 or bits of
            bfloat16 as int16.
        own: first column of the copied rows; -1 if none were copied.
        column: first column of the means.
        starts: edge offsets of the means [r + 1].
        begins, receivers: results of `transpose`.
        values: results of the ReLU [n, d]; [0, d] for no ReLU.
        more: add to `out` instead of overwriting it.
        out: gradients of the senders [n, d].
    """
    width, flat, columns, filled, limits = (
        out.shape[1], gradients.reshape(-1), gradients.shape[1], out.reshape(-1), values.reshape(-1)
    )  # fmt: skip
    for chunk in nb.prange((len(out) + _CHUNK - 1) // _CHUNK):
        begin = chunk * _CHUNK
        end = min(len(out), begin + _CHUNK)
        first, copied = begins[begin], 0
        if own >= 0:
            copied = max(0, min(end, len(gradients)) - begin)
        count = begins[end] - first + copied
        places, shares, n = np.empty(count + AHEAD, np.int64), np.empty(count, np.float32), 0
        for i in range(begin, end):
            if i < begin + copied:
                places[n], shares[n] = i * columns + own, np.float32(1)
                n += 1
            for e in range(begins[i], begins[i + 1]):
                receiver = np.int64(receivers[e])
                places[n] = receiver * columns + column
                shares[n] = np.float32(1) / np.float32(starts[receiver + 1] - starts[receiver])
                n += 1
        _begin_rows(flat, places, count, width)
        low = 0
        for i in range(begin, end):
            high = low + begins[i + 1] - begins[i] + (1 if i < begin + copied else 0)
            prefetch_row(filled, (i + _WRITTEN_AHEAD) * width, width)
            row = np.int64(-1)
            if len(values):
                row = np.int64(i * width)
                prefetch_row(limits, (i + _WRITTEN_AHEAD) * width, width)
            add_scaled_rows(flat, places, shares, low, high, width, limits, row, more, filled, i * width)
            low = high
