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

from superworkflow.tasks.lib.kernels.bfloat16 import as_stored
from superworkflow.tasks.lib.kernels.float16 import value_of
from superworkflow.tasks.lib.kernels.lanes import LEAST, bring_row, plus_row, put_row, zeros16, zeros32, zeros64
from superworkflow.tasks.lib.kernels.prefetch import AHEAD, prefetch_rows
from superworkflow.tasks.lib.kernels.random import fill_words
from superworkflow.tasks.lib.kernels.rows_ahead import rows_ahead


@nb.njit(nogil=True, cache=True, error_model="numpy")
def publish_rows(rows: NDArray[np.float32], scales: NDArray[np.float32], first: int, table: NDArray[Any]) -> None:
    """Store scaled rows in a table.

    Args:
        rows: [r, d].
        scales: of all nodes [n]; empty for none.
        first: node of the first row.
        table: [n, d or more], float32 or the bits of bfloat16; d columns of the rows from `first` on are filled.
    """
    for i in range(len(rows)):
        scale = scales[first + i] if len(scales) else np.float32(1)
        row, to = rows[i], table[first + i]
        for c in range(len(row)):
            to[c] = as_stored(table, row[c] * scale)


@nb.njit(nogil=True)
def _gather(
    total: Any, flat: Any, width: Any, column: Any, arcs: Any, senders: Any, node: Any, scale: Any, out: Any, place: Any
) -> None:
    """Sum as many columns as `total` has, zeros that choose the type, and store them times the scale."""
    step, begin = np.uint64(width), np.uint64(column)
    for e in range(arcs[0], arcs[1]):
        if e + rows_ahead() < len(senders):
            bring_row(total, flat, step * np.uint64(senders[np.uint64(e + rows_ahead())]) + begin)
        total = plus_row(total, flat, step * np.uint64(senders[np.uint64(e)]) + begin)
    put_row(plus_row(total, flat, step * np.uint64(node) + begin), scale, out, np.uint64(place))


@nb.njit(nogil=True, cache=True, error_model="numpy")
def gather_rows(
    table: NDArray[Any], starts: NDArray[np.int64], senders: NDArray[Any], scales: NDArray[np.float32],
    nodes: NDArray[np.int32], out: NDArray[np.float32],
) -> None:  # fmt: skip
    """Sum the rows of each node's senders and its own, which comes last, times the node's scale.

    With arcs the other way round it is its own gradient.

    Args:
        table: published rows [n, p], as `lanes.table_of` makes it.
        starts, senders: arcs by receiver [n + 1], [arcs].
        scales: [n].
        nodes: of the result's rows [r].
        out: [r, d] for d at most p, filled.
    """
    padded, width, flat, to = table.shape[1], out.shape[1], table.reshape(-1), out.reshape(-1)
    whole, last = width // LEAST * LEAST, np.empty(LEAST, np.float32)
    for i in range(len(out)):
        node, place, column = np.int64(nodes[i]), i * width, 0
        arcs, scale = (starts[node], starts[node + 1]), scales[node]
        while column + 64 <= whole:
            _gather(zeros64(), flat, padded, column, arcs, senders, node, scale, to, place + column)
            column += 64
        if column + 32 <= whole:
            _gather(zeros32(), flat, padded, column, arcs, senders, node, scale, to, place + column)
            column += 32
        if column + 16 <= whole:
            _gather(zeros16(), flat, padded, column, arcs, senders, node, scale, to, place + column)
            column += 16
        if column < width:
            _gather(zeros16(), flat, padded, column, arcs, senders, node, scale, last, 0)
            for c in range(column, width):
                out[i, c] = last[c - column]


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
    values: NDArray[Any], nodes: NDArray[np.int32], dropped: int, state: np.uint64, words: NDArray[np.uint64],
    out: NDArray[np.float32],
) -> None:  # fmt: skip
    """Rows after the dropout of `sampler.kernels.fill_masks`, by the numbers of their nodes.

    Args:
        values: [r, d]; see `float16.as_read`.
        nodes: of the rows [r].
        dropped, state: as there.
        words: scratch [d / 4 rounded up].
        out: [r, d], filled; may be `values`, unless these are float16.
    """
    scale, lanes, least = np.float32(65536.0 / (65536.0 - dropped)), words.view(np.uint16), np.uint16(dropped)
    for i in range(len(out)):
        fill_words(words, state, nodes[i])
        for c in range(out.shape[1]):
            out[i, c] = value_of(values[i, c]) * (scale if lanes[c] >= least else np.float32(0))
