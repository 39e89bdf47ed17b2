"""Compiled tables of the nodes of one subgraph: the order in which they were found, by their numbers.

A table is an open-addressing hash table of node numbers [2**b], `FREE` where there is none, with the finding order
beside each. It lives in a cache: it is as large as the subgraph needs, whatever the size of the graph.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from superworkflow.tasks._draw import sort_part
from superworkflow.tasks._random import GAMMA

FREE = -1
_FEW = 40


@nb.njit(inline="always")
def slot_of(table: Any, shift: Any, node: Any) -> Any:
    """Where a node is, or the free slot that it would take."""
    slot = np.int64((np.uint64(node) * GAMMA) >> shift)
    mask = np.int64((np.uint64(1) << (np.uint64(64) - shift)) - np.uint64(1))
    while table[slot] != node and table[slot] != FREE:
        slot = (slot + 1) & mask
    return slot


@nb.njit(nogil=True)
def bits_for(nodes: Any) -> Any:
    """Bits of a table that is at most half full with so many nodes."""
    bits = 4
    while (1 << bits) < 2 * nodes:
        bits += 1
    return bits


@nb.njit(nogil=True)
def grown(values: Any, used: Any, needed: Any) -> Any:
    """An array of at least `needed` entries that begins with those used of this one, which it is where it suffices."""
    if needed <= len(values):
        return values
    more = np.empty(max(needed, 2 * len(values)), values.dtype)
    more[:used] = values[:used]
    return more


@nb.njit(nogil=True)
def sort_nodes(values: Any, count: Any, other: Any) -> None:
    """Sort ``values[:count]``, numbers of at least 0; by digits of 8 bits where they are many (other: [count])."""
    if count <= _FEW:
        sort_part(values, 0, count)
        return
    most: Any = np.int64(0)
    for i in range(count):
        most = max(most, np.int64(values[i]))
    ends = np.empty(256, np.int64)
    shift: Any = np.int64(0)
    while shift == 0 or most >> shift:
        ends[:] = 0
        for i in range(count):
            ends[(np.int64(values[i]) >> shift) & 255] += 1
        total: Any = np.int64(0)
        for digit in range(256):
            here = ends[digit]
            ends[digit] = total
            total += here
        for i in range(count):
            digit = (np.int64(values[i]) >> shift) & 255
            other[ends[digit]] = values[i]
            ends[digit] += 1
        for i in range(count):
            values[i] = other[i]
        shift += 8
