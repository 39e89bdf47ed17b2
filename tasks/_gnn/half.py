"""Sums of rows of float16, which compiled code reads as bits and widens."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks._gnn.kernels import AHEAD, ask_rows


@nb.njit(inline="always")
def widened(bits: Any) -> Any:
    """A finite float16 as float32: exponent and mantissa moved in place and scaled, which is exact."""
    word = np.uint32(bits)
    size = np.uint32((word & np.uint32(0x7FFF)) << np.uint32(13)).view(np.float32) * np.float32(2.0**112)
    return -size if word & np.uint32(0x8000) else size


@nb.njit(parallel=True, cache=True)
def sum_half(
    values: NDArray[np.uint16], starts: NDArray[np.int64], senders: NDArray[Any], out: NDArray[np.float32]
) -> None:
    """`kernels.sum_edges` of values [n, d] that are the bits of float16."""
    width, flat = values.shape[1], values.reshape(-1)
    for i in nb.prange(len(starts) - 1):
        for c in range(width):
            out[i, c] = np.float32(0)
        for e in range(starts[i], starts[i + 1]):
            ask_rows(flat, width, senders, e + AHEAD, 1)
            sender = senders[e]
            for c in range(width):
                out[i, c] += widened(values[sender, c])
