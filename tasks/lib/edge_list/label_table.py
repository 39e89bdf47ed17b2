"""A table of labels that threads fill together: each distinct label gets the next number.

Which number a label gets depends on the threads' timing; `vertex_order.py` puts the vertices in their final order
later.

An entry is two words of `slots`, and four entries share a cache line; a label is looked for in its hash's line, then
in the ones after it. The first word of an entry holds the first eight bytes of the label, padded with zeros. The
second holds, from its highest byte: the length, three more bytes, and in its lower half the label's number; it is 0
where the entry is free, and BUSY while a thread fills it. So a label of up to 11 bytes is found in one cache line.
Of a longer one the length is `LONG` and the other three bytes are of its hash; the first word says where it stands in
`arena`: eight bytes of length, then the bytes. They are compared byte by byte, so that no two labels are ever taken
for one.

`labels_by_number` gives the table's content as `keys` [labels, 2], in the same form without the number.
"""

from __future__ import annotations

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.atomic import (
    exchange_if,
    fetch_add,
    lane_of_pair,
    load_acquire,
    store_release,
    word_at,
)
from superworkflow.tasks.lib.kernels.random import GAMMA, mix

INLINE_BYTES = 11
PADDING = 128
"""Bytes that must be readable after the last byte of a text."""
ENTRY_WORDS = 2
LINE_ENTRIES = 4

Int = int | np.int64
"""A whole number of a kernel, where Python's and NumPy's are one."""

_U = np.uint64
_LONG = np.uint64(0xFF)
_BUSY = _ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_NUMBER = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(0xFFFFFFFF00000000)
_HASH_BYTES = np.uint64(0x00FFFFFF00000000)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

COUNT, ARENA_USED = 0, 1  # places in `counters`


@nb.njit(cache=True, inline="always")
def low_bytes(word: np.uint64, count: np.uint64) -> np.uint64:
    """The lowest `count` < 8 bytes of a word."""
    return word & ((_U(1) << (count << _U(3))) - _U(1))


@nb.njit(cache=True)
def _hash_of_long(text: NDArray[np.uint8], start: Int, length: Int) -> np.uint64:
    hashed = _U(length)
    for offset in range(0, length - 7, 8):
        hashed = mix(hashed ^ word_at(text, start + offset)) + GAMMA
    rest = length & 7
    if rest:
        hashed = mix(hashed ^ low_bytes(word_at(text, start + length - rest), _U(rest)))
    return hashed


@nb.njit(cache=True, inline="always")
def key_of(text: NDArray[np.uint8], start: Int, length: Int) -> tuple[np.uint64, np.uint64]:
    """Both words of a label's entry without its number, in a text with `PADDING` bytes after it.

    Of a long label the first word is its hash, not yet its place.
    """
    if length <= INLINE_BYTES:
        in_first, in_second = min(length, 8), max(length - 8, 0)
        key0 = word_at(text, start) & (_ALL >> _U(64 - 8 * in_first))
        return key0, (low_bytes(word_at(text, start + 8), _U(in_second)) | (_U(length) << _U(24))) << _U(32)
    hashed = _hash_of_long(text, start, length)
    return hashed, (_LONG << _U(56)) | (hashed & _HASH_BYTES)


@nb.njit(cache=True, inline="always")
def line_of(key0: np.uint64, key1: np.uint64, lines: Int) -> Int:
    """First word of the line of `slots` in which a label is first looked for; there are `lines`, a power of two."""
    hashed = key0 * _M1 + key1 * _M2
    hashed = (hashed ^ (hashed >> _U(32))) * _M1
    return np.int64((hashed >> _U(24)) & _U(lines - 1)) * (LINE_ENTRIES * ENTRY_WORDS)


@nb.njit(cache=True, inline="always")
def seen_number(slots: NDArray[np.uint64], line: Int, key0: np.uint64, key1: np.uint64) -> Int:
    """Number of a short label if its own line has it, else -1: it may be elsewhere, or new.

    The line is read at once, and not in order: an entry that is being filled may look as if its first word were 0.
    A label whose first word is that is left to `number_of`.
    """
    lane = np.int64(lane_of_pair(slots, line, key0, key1, _HIGH))
    if lane < 8 and key0 != _U(0) and key1 >> _U(56) != _LONG:
        return np.int64(slots[line + lane + 1] & _NUMBER)
    return -1


@nb.njit(cache=True)
def _same_long(arena: NDArray[np.uint8], place: Int, text: NDArray[np.uint8], start: Int, length: Int) -> bool:
    if np.int64(word_at(arena, place)) != length:
        return False
    differences = 0
    for offset in range(length):
        differences += arena[place + 8 + offset] != text[start + offset]
    return differences == 0


@nb.njit(cache=True)
def number_of(
    slots: NDArray[np.uint64],
    counters: NDArray[np.int64],
    arena: NDArray[np.uint8],
    key0: np.uint64,
    key1: np.uint64,
    text: NDArray[np.uint8],
    start: Int,
    length: Int,
) -> Int:
    """Number of a label, given one if it is new; -1 - number when it is. The table must have a free entry."""
    slot = line_of(key0, key1, len(slots) // (LINE_ENTRIES * ENTRY_WORDS))
    long = key1 >> _U(56) == _LONG
    while True:
        entry = load_acquire(slots, slot + 1)
        if entry == _U(0) and exchange_if(slots, slot + 1, _U(0), _BUSY):
            if long:
                place = fetch_add(counters, ARENA_USED, np.int64((length + 15) & ~7))
                for byte in range(8):
                    arena[place + byte] = (length >> (8 * byte)) & 0xFF
                arena[place + 8 : place + 8 + length] = text[start : start + length]
                key0 = _U(place)
            number = np.int64(fetch_add(counters, COUNT, np.int64(1)))
            store_release(slots, slot, key0)
            store_release(slots, slot + 1, key1 | _U(number))
            return -1 - number
        while entry == _U(0) or entry == _BUSY:
            entry = load_acquire(slots, slot + 1)
        if (entry & _HIGH) == key1:
            held = slots[slot]
            if _same_long(arena, np.int64(held), text, start, length) if long else held == key0:
                return np.int64(entry & _NUMBER)
        slot = (slot + ENTRY_WORDS) & (len(slots) - 1)


@nb.njit(cache=True, parallel=True)
def refill(old: NDArray[np.uint64], slots: NDArray[np.uint64], arena: NDArray[np.uint8]) -> None:
    """Put the entries of a table into an empty, larger one."""
    for entry in nb.prange(len(old) // ENTRY_WORDS):
        key0, key1 = old[ENTRY_WORDS * entry], old[ENTRY_WORDS * entry + 1]
        if key1 != _U(0):
            first = key0
            if key1 >> _U(56) == _LONG:
                place = np.int64(key0)
                first = _hash_of_long(arena, place + 8, np.int64(word_at(arena, place)))
            slot = line_of(first, key1 & _HIGH, len(slots) // (LINE_ENTRIES * ENTRY_WORDS))
            while not exchange_if(slots, slot + 1, _U(0), key1):
                slot = (slot + ENTRY_WORDS) & (len(slots) - 1)
            slots[slot] = key0


@nb.njit(cache=True, parallel=True)
def labels_by_number(slots: NDArray[np.uint64], keys: NDArray[np.uint64]) -> None:
    """Write the labels of a table to `keys` [labels, 2]."""
    for entry in nb.prange(len(slots) // ENTRY_WORDS):
        key1 = slots[ENTRY_WORDS * entry + 1]
        if key1 != _U(0):
            number = np.int64(key1 & _NUMBER)
            keys[number, 0] = slots[ENTRY_WORDS * entry]
            keys[number, 1] = key1 & _HIGH


@nb.njit(cache=True, inline="always")
def label_length(arena: NDArray[np.uint8], key0: np.uint64, key1: np.uint64) -> Int:
    """Bytes of a label."""
    kind = key1 >> _U(56)
    return np.int64(word_at(arena, np.int64(key0))) if kind == _LONG else np.int64(kind)


@nb.njit(cache=True, inline="always")
def label_byte(arena: NDArray[np.uint8], key0: np.uint64, key1: np.uint64, offset: Int) -> np.uint8:
    """One byte of a label; `offset` is within it."""
    if key1 >> _U(56) == _LONG:
        return np.uint8(arena[np.int64(key0) + 8 + offset])
    word = key0 if offset < 8 else key1 >> _U(32)
    return np.uint8((word >> (_U(offset & 7) << _U(3))) & _U(0xFF))


@nb.njit(cache=True, parallel=True)
def label_lengths(keys: NDArray[np.uint64], arena: NDArray[np.uint8], order: NDArray[np.int32]) -> NDArray[np.int64]:
    """Bytes of each label, in the order of `order`."""
    lengths = np.empty(len(order), np.int64)
    for i in nb.prange(len(order)):
        lengths[i] = label_length(arena, keys[order[i], 0], keys[order[i], 1])
    return lengths


@nb.njit(cache=True, parallel=True)
def label_bytes(
    keys: NDArray[np.uint64],
    arena: NDArray[np.uint8],
    order: NDArray[np.int32],
    offsets: NDArray[np.int64],
    text: NDArray[np.uint8],
) -> None:
    """Write label `order[i]` to `text[offsets[i]:offsets[i + 1]]`."""
    for i in nb.prange(len(order)):
        key0, key1 = keys[order[i], 0], keys[order[i], 1]
        for offset in range(offsets[i + 1] - offsets[i]):
            text[offsets[i] + offset] = label_byte(arena, key0, key1, offset)
