"""Products of rows after dropout whose factors are rounded to bfloat16; the dropout is that of `gather_kernels`.

Rows that are bfloat16 already are not rounded again: the scale by which dropout multiplies what it keeps is that of the
other factor or of the product.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.float16 import as_read, value_of
from superworkflow.tasks.lib.kernels.lanes import table_of
from superworkflow.tasks.lib.kernels.matrix_products import (
    TERMS,
    Floats,
    add_products,
    left_room,
    pack_left,
    pack_right,
    pack_turned,
    product_room,
    right_room,
    up,
)
from superworkflow.tasks.lib.kernels.prefetch import prefetch_row
from superworkflow.tasks.lib.kernels.product_words import WORD
from superworkflow.tasks.lib.kernels.random import fill_words
from superworkflow.tasks.lib.kernels.vectors import LANES

_BLOCK = 512
"""Most rows that are packed and multiplied at a time, so that they are in the second-level cache."""
_NO_NODES, _NO_STATE = read_only(np.empty(0, np.int32)), np.uint64(0)


def short_product(
    values: NDArray[Any], matrix: Floats, nodes: NDArray[np.int32] = _NO_NODES, dropped: int = 0,
    state: np.uint64 = _NO_STATE,
) -> Floats:  # fmt: skip
    """Rows after dropout times a matrix.

    Args:
        values: rows, float32, float16 or the bits of bfloat16, int16 [r, k].
        matrix: float32 [k, d].
        nodes, dropped, state: see `gather_kernels.drop_rows`; no nodes if nothing is dropped.
    """
    (terms, columns), rows = matrix.shape, _block(len(values))
    pairs, out = right_room(terms, columns), product_room(len(values), columns)
    _pack_matrix(_read(matrix * _scale(dropped)), _panel(columns, LANES), pairs)
    multiply_dropped(_read(values), nodes, dropped, state, pairs, _panel(terms, TERMS), left_room(rows, terms), out)
    return _bare(out, len(values), columns)


def short_gradient(
    gradient: Floats, values: NDArray[Any], nodes: NDArray[np.int32] = _NO_NODES, dropped: int = 0,
    state: np.uint64 = _NO_STATE,
) -> Floats:  # fmt: skip
    """Transpose of a gradient times rows after dropout: the gradient of a matrix that multiplies them.

    Args:
        gradient: float32 [r, d].
        values, nodes, dropped, state: as in `short_product`.

    Returns:
        float32 [d, k].
    """
    width, columns, terms = values.shape[1], gradient.shape[1], _block(len(values))
    out = product_room(columns, width)
    panels = _panel(columns, LANES), _panel(width, LANES)
    rooms = left_room(columns, terms), right_room(terms, width)
    multiply_gradient(_read(gradient), _read(values), nodes, dropped, state, panels, rooms, out)
    return _bare(out, columns, width) * _scale(dropped)


def _scale(dropped: int) -> np.float32:
    """1 / the share that dropout keeps."""
    return np.float32(65536 / (65536 - dropped))


def _read(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows as kernels get them."""
    return read_only(np.ascontiguousarray(as_read(rows)))


def _block(rows: int) -> int:
    """Rows of each block, nearly even."""
    return up(-(-rows // max(1, -(-rows // _BLOCK))), TERMS)


def _panel(width: int, multiple: int) -> Floats:
    """Room for 16 rows with zeros behind them."""
    return table_of(LANES, up(width, multiple), np.float32)


def _bare(out: Floats, rows: int, columns: int) -> Floats:
    return np.ascontiguousarray(out[:rows, :columns])


@nb.njit(nogil=True)
def _fill_panel(values: Any, nodes: Any, dropped: Any, state: Any, first: Any, words: Any, panel: Any) -> None:
    """Rows from `first` on, after dropout that leaves what it keeps as it is, and zeros behind the last one."""
    width, lanes, least = values.shape[1], words.view(np.uint16), np.uint16(dropped)
    flat = values.reshape(-1)
    for i in range(len(panel)):
        ahead = first + len(panel) + i
        if ahead < len(values):
            prefetch_row(flat, ahead * width, width)
        if first + i >= len(values):
            panel[i, :] = np.float32(0)
        elif dropped:
            fill_words(words, state, nodes[first + i])
            for c in range(width):
                value = value_of(values[first + i, c])
                panel[i, c] = value if lanes[c] >= least else np.float32(0)
        else:
            for c in range(width):
                panel[i, c] = value_of(values[first + i, c])


@nb.njit(nogil=True, cache=True)
def _pack_matrix(matrix: Any, panel: Any, pairs: Any) -> None:
    words = np.empty(0, np.uint64)
    for first in range(0, len(matrix), LANES):
        _fill_panel(matrix, words, 0, np.uint64(0), first, words, panel)
        pack_right(panel, pairs, first)


@nb.njit(nogil=True, cache=True, error_model="numpy")
def multiply_dropped(
    values: NDArray[Any], nodes: NDArray[np.int32], dropped: int, state: np.uint64, pairs: Floats, panel: Floats,
    words: Floats, out: Floats,
) -> None:  # fmt: skip
    """Add the product of rows after dropout, not scaled, and a packed matrix.

    Args:
        values: [r, k]; see `float16.as_read`.
        nodes, dropped, state: see `gather_kernels.drop_rows`; `nodes` are not read if nothing is dropped.
        pairs: the matrix; see `matrix_products.pack_right`.
        panel: scratch [16, k up to a multiple of 32], zeros behind k.
        words: scratch, `left_room` of the rows that are multiplied at a time.
        out: `product_room`, added to.
    """
    block, random = len(words), np.empty((values.shape[1] + 3) >> 2, np.uint64)
    for begin in range(0, len(values), block):
        count = min(block, (len(values) - begin + LANES - 1) // LANES * LANES)
        for first in range(0, count, LANES):
            _fill_panel(values, nodes, dropped, state, begin + first, random, panel)
            pack_left(panel, words, first)
        add_products(words[:count], pairs, out[begin : begin + count])


@nb.njit(nogil=True, cache=True, error_model="numpy")
def multiply_gradient(
    gradient: Floats, values: NDArray[Any], nodes: NDArray[np.int32], dropped: int, state: np.uint64,
    panels: tuple[Floats, Floats], rooms: tuple[Floats, Floats], out: Floats,
) -> None:  # fmt: skip
    """Add the product of the transpose of a gradient and rows after dropout, not scaled.

    Args:
        gradient: [r, d].
        values, nodes, dropped, state: as in `multiply_dropped`.
        panels: scratch [16, d or k up to a multiple of 16], zeros behind d and k.
        rooms: scratch, `left_room` of d rows and `right_room` of k columns, for the terms that are multiplied at a
            time.
        out: `product_room` [d, k], added to.
    """
    (left, right), (words, pairs) = panels, rooms
    random, nothing = np.empty((values.shape[1] + 3) >> 2, np.uint64), np.uint64(0)
    block = len(pairs) * 2 // WORD
    for begin in range(0, len(values), block):
        for first in range(0, block, LANES):
            _fill_panel(gradient, nodes, 0, nothing, begin + first, random, left)
            pack_turned(left, words, first)
            _fill_panel(values, nodes, dropped, state, begin + first, random, right)
            pack_right(right, pairs, first)
        add_products(words, pairs, out)
