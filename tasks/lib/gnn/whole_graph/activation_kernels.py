"""Compiled loops over rows in place: bias and activation forwards, dropout and the activation's slope backwards."""

from __future__ import annotations

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.whole_graph.attention_kernels import exp32
from superworkflow.tasks.lib.kernels.random import fill_words

_ONE, _ZERO = np.float32(1), np.float32(0)


@nb.njit(nogil=True, cache=True)
def activate(rows: NDArray[np.float32], bias: NDArray[np.float32], elu: bool) -> None:
    """ELU or ReLU of rows plus a bias.

    Args:
        rows: [r, d], changed.
        bias: [d], or empty for none.
        elu: ELU, to 1e-7, else ReLU.
    """
    for i in range(len(rows)):
        row = rows[i]
        for c in range(len(bias)):
            row[c] += bias[c]
        if elu:
            for c in range(len(row)):
                x = row[c]
                row[c] = x if x > _ZERO else exp32(min(x, _ZERO)) - _ONE
        else:
            for c in range(len(row)):
                row[c] = max(row[c], _ZERO)


@nb.njit(nogil=True, cache=True)
def back_through(
    changes: NDArray[np.float32], values: NDArray[np.float32], elu: bool, nodes: NDArray[np.int32], dropped: int,
    state: np.uint64, words: NDArray[np.uint64],
) -> None:  # fmt: skip
    """Gradients of rows that were activated and then dropped: those of rows before the activation.

    Args:
        changes: gradients after the dropout of `gather_kernels.drop_rows` [r, d], changed.
        values: rows after the activation [r, d].
        elu: the activation was ELU, else ReLU.
        nodes, dropped, state, words: as in `drop_rows`; dropped may be 0.
    """
    scale, least, lanes = np.float32(65536.0 / (65536.0 - dropped)), np.uint16(dropped), words.view(np.uint16)
    for i in range(len(changes)):
        row, value = changes[i], values[i]
        if dropped:
            fill_words(words, state, nodes[i])
            for c in range(len(row)):
                row[c] *= scale if lanes[c] >= least else _ZERO
        if elu:
            for c in range(len(row)):
                row[c] *= _ONE if value[c] > _ZERO else value[c] + _ONE
        else:
            for c in range(len(row)):
                row[c] *= _ONE if value[c] > _ZERO else _ZERO
