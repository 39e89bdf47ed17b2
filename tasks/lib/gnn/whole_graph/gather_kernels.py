"""Compiled loops of GCN over the rows of a whole graph: rows are published once, scaled, and gathered by receivers.

A row of a table is read as often as its node has arcs, so it is stored with its scale, 1 / sqrt(degree + 1), and arcs
have no weights. Every row of a result is made by one call, from its first arc to its last: bits depend neither on
threads nor on the bounds of intervals. No loop is parallel; the tasks of intervals are.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.bfloat16 import as_stored, number_of
from superworkflow.tasks.lib.kernels.float16 import value_of
from superworkflow.tasks.lib.kernels.prefetch import AHEAD, prefetch_rows
from superworkflow.tasks.lib.kernels.random import GAMMA, mix


@nb.njit(nogil=True, cache=True, error_model="numpy")
def publish_rows(rows: NDArray[np.float32], scales: NDArray[np.float32], first: int, table: NDArray[Any]) -> None:
    """Store scaled rows in a table.

    Args:
        rows: [r, d].
        scales: of all nodes [n]; empty for none.
        first: node of the first row.
        table: [n, d], float32 or the bits of bfloat16; rows from `first` on are filled.
    """
    for i in range(len(rows)):
        scale = scales[first + i] if len(scales) else np.float32(1)
        row, to = rows[i], table[first + i]
        for c in range(len(row)):
            to[c] = as_stored(table, row[c] * scale)


@nb.njit(nogil=True)
def _add(row: Any, flat: Any, place: Any) -> None:
    """Add the row of a table that begins at a place, an unsigned number, which compiled code does not wrap around."""
    for c in range(len(row)):
        row[c] += number_of(flat[place + np.uint64(c)])


@nb.njit(nogil=True)
def _add_eight(row: Any, flat: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> None:
    """Eight calls of `_add` in one pass: the sums are bit-equal."""
    for i in range(len(row)):
        k = np.uint64(i)
        low = ((row[i] + number_of(flat[a + k])) + number_of(flat[b + k])) + number_of(flat[c + k])
        low = ((low + number_of(flat[d + k])) + number_of(flat[e + k])) + number_of(flat[f + k])
        row[i] = (low + number_of(flat[g + k])) + number_of(flat[h + k])


@nb.njit(nogil=True, cache=True, error_model="numpy")
def gather_rows(
    table: NDArray[Any], starts: NDArray[np.int64], senders: NDArray[Any], scales: NDArray[np.float32], first: int,
    out: NDArray[np.float32],
) -> None:  # fmt: skip
    """Sum the rows of each node's senders and its own, which comes last, times the node's scale.

    With arcs the other way round it is its own gradient.

    Args:
        table: published rows [n, d].
        starts, senders: arcs by receiver [n + 1], [arcs].
        scales: [n].
        first: node of the first row.
        out: [r, d], filled.
    """
    width, flat = table.shape[1], table.reshape(-1)
    step = np.uint64(width)
    for i in range(len(out)):
        node, row = first + i, out[i]
        e, last = starts[node], starts[node + 1]
        row[:] = np.float32(0)
        while e + 8 <= last:
            prefetch_rows(flat, width, senders, e + AHEAD, 8)
            _add_eight(
                row, flat, step * np.uint64(senders[e]), step * np.uint64(senders[e + 1]),
                step * np.uint64(senders[e + 2]), step * np.uint64(senders[e + 3]), step * np.uint64(senders[e + 4]),
                step * np.uint64(senders[e + 5]), step * np.uint64(senders[e + 6]), step * np.uint64(senders[e + 7]),
            )  # fmt: skip
            e += 8
        while e < last:
            prefetch_rows(flat, width, senders, e + AHEAD, 1)
            _add(row, flat, step * np.uint64(senders[e]))
            e += 1
        _add(row, flat, step * np.uint64(node))
        for c in range(width):
            row[c] *= scales[node]


@nb.njit(parallel=True, cache=True)
def gather_scaled(
    values: NDArray[Any], scales: NDArray[np.float32], starts: NDArray[np.int64], senders: NDArray[Any], first: int,
    out: NDArray[np.float32],
) -> None:  # fmt: skip
    """As `gather_rows`, from rows that are stored without their scales.

    Args:
        values: rows of all nodes [n, d]; see `float16.as_read`.
        scales, starts, senders, first, out: as in `gather_rows`.
    """
    width, flat = values.shape[1], values.reshape(-1)
    for i in nb.prange(len(out)):
        node = first + i
        scale = scales[node]
        for c in range(width):
            out[i, c] = np.float32(0)
        for e in range(starts[node], starts[node + 1]):
            prefetch_rows(flat, width, senders, e + AHEAD, 1)
            sender = senders[e]
            for c in range(width):
                out[i, c] += scales[sender] * value_of(values[sender, c])
        for c in range(width):
            out[i, c] = scale * (out[i, c] + scale * value_of(values[node, c]))


@nb.njit(nogil=True, cache=True)
def drop_rows(
    values: NDArray[Any], first: int, dropped: int, state: np.uint64, words: NDArray[np.uint64],
    out: NDArray[np.float32],
) -> None:  # fmt: skip
    """Rows after the dropout of `sampler.kernels.fill_masks`, by the numbers of their nodes.

    Args:
        values: [r, d]; see `float16.as_read`.
        first: node of the first row.
        dropped, state: as there.
        words: scratch [d / 4 rounded up].
        out: [r, d], filled; may be `values`, unless these are float16.
    """
    scale = np.float32(65536.0 / (65536.0 - dropped))
    for i in range(len(out)):
        _drop(out[i], values[i], first + i, dropped, state, words, scale)


@nb.njit(nogil=True)
def _drop(row: Any, one: Any, node: Any, dropped: Any, state: Any, words: Any, scale: Any) -> None:
    own = mix(state + np.uint64(node + 1) * GAMMA)
    for i in range(len(words)):
        words[i] = mix(own + np.uint64(i + 1) * GAMMA)
    lanes = words.view(np.uint16)
    for c in range(len(row)):
        row[c] = value_of(one[c]) * (scale if lanes[c] >= dropped else np.float32(0))
