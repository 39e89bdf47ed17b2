"""Compiled order and look-up of the nodes of one subgraph.

A table is an open-addressing hash table of node numbers [2**b], `FREE` in empty slots, with a parallel array of the
nodes' places. Its size depends on the subgraph, not on the graph, so that it stays in the processor's cache.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.random import GAMMA

FREE = -1
_FEW, _MANY = 48, 1500
MOST_DIGITS = 6 << 11
"""Entries that sorting 64 bits needs."""


@nb.njit(inline="always")
def slot_of(table: Any, shift: Any, node: Any) -> Any:
    """Slot of a node, or the free slot that it would take."""
    slot = np.int64((np.uint64(node) * GAMMA) >> shift)
    mask = np.int64((np.uint64(1) << (np.uint64(64) - shift)) - np.uint64(1))
    while table[slot] != node and table[slot] != FREE:
        slot = (slot + 1) & mask
    return slot


@nb.njit(nogil=True)
def bits_for(nodes: Any) -> Any:
    """Bits of a table that `nodes` nodes fill by half at most."""
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
def bits_of(number: Any) -> Any:
    """Bits of a number."""
    bits = 0
    while number >> bits:
        bits += 1
    return bits


@nb.njit(nogil=True)
def sort_pairs(pairs: Any, other: Any, count: Any, low: Any, bits: Any, digits: Any) -> Any:
    """Sort ``pairs[:count]``, uint64, by the `bits` bits from bit `low` on; pairs that are equal there stay in order.

    Args:
        pairs: what to sort; changed.
        other: uint64 [count].
        count, low, bits: see above.
        digits: int64 [MOST_DIGITS].

    Returns:
        (the array in which they are, the other one).
    """
    if count <= _FEW:
        for i in range(1, count):
            pair = pairs[i]
            j = i
            while j > 0 and pairs[j - 1] >> np.uint64(low) > pair >> np.uint64(low):
                pairs[j] = pairs[j - 1]
                j -= 1
            pairs[j] = pair
        return pairs, other
    width = 8 if (bits + 7) // 8 == (bits + 10) // 11 or count < _MANY else 11
    size, mask, passes = 1 << width, np.uint64((1 << width) - 1), (bits + width - 1) // width
    digits[: passes * size] = 0
    one, two = np.uint64(low), np.uint64(low + width)
    if passes == 2:
        for i in range(count):
            digits[(pairs[i] >> one) & mask] += 1
            digits[np.uint64(size) + ((pairs[i] >> two) & mask)] += 1
    else:
        for turn in range(passes):
            shift, begin = np.uint64(low + turn * width), np.uint64(turn * size)
            for i in range(count):
                digits[begin + ((pairs[i] >> shift) & mask)] += 1
    for turn in range(passes):
        shift, begin = np.uint64(low + turn * width), np.uint64(turn * size)
        total = np.int64(0)
        for digit in range(turn * size, (turn + 1) * size):
            here = digits[digit]
            digits[digit] = total
            total += here
        for i in range(count):
            digit = begin + ((pairs[i] >> shift) & mask)
            other[digits[digit]] = pairs[i]
            digits[digit] += 1
        pairs, other = other, pairs
    return pairs, other
