"""A table of labels that threads fill together: each distinct label gets the next number.

Which number a label gets depends on the threads' timing; `rank.py` puts the vertices in their final order later.

A slot is one word of `slots`: 0 when free, BUSY while a thread fills it, else 31 bits of the label's hash above its
number + 1. `keys` [2 * number] has the label itself: key0, key1. Labels of up to 15 bytes are their own keys: their
bytes, padded with zeros, and their length in the highest byte. Longer ones have a 64-bit hash in key0, and in key1
`LONG` in the highest byte and below it where they stand in `arena`: eight bytes of length, then the bytes. They are
compared byte by byte, so that no two labels are ever taken for one.

Numbers are given in the order of first occurrence, more or less, so frequent labels come early and their keys share
cache lines.
"""

# mypy: disable-error-code="arg-type,assignment,var-annotated,call-arg,no-any-return,return-value,operator,unreachable"
# In compiled kernels the scalars of Python and NumPy are one.

from __future__ import annotations

import numba as nb
import numpy as np
from numpy.typing import NDArray

from tasks.index.atomic import exchange_if, fetch_add, load_acquire, store_release, word_at

INLINE_BYTES = 15
PADDING = 64
"""Bytes that must be readable after the last byte of a text."""

_U = np.uint64
_LONG = np.uint64(0xFF)
_BUSY = _ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_NUMBER = np.uint64(0xFFFFFFFF)
_LOW56 = np.uint64((1 << 56) - 1)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

COUNT, ARENA_USED = 0, 1  # places in `counters`


@nb.njit(cache=True, inline="always")
def _mix(value: np.uint64) -> np.uint64:
    value = (value ^ (value >> _U(30))) * _M1
    value = (value ^ (value >> _U(27))) * _M2
    return value ^ (value >> _U(31))


@nb.njit(cache=True, inline="always")
def low_bytes(word: np.uint64, count: np.uint64) -> np.uint64:
    """The lowest `count` < 8 bytes of a word."""
    return word & ((_U(1) << (count << _U(3))) - _U(1))


@nb.njit(cache=True)
def key_of(text: NDArray[np.uint8], start: np.int64, length: np.int64) -> tuple[np.uint64, np.uint64]:
    """Both keys of a label in a text with `PADDING` bytes after it; a long one's key1 has no place yet."""
    if length <= INLINE_BYTES:
        in_first, in_second = min(length, 8), max(length - 8, 0)
        key0 = word_at(text, start) & (_ALL >> _U(64 - 8 * in_first))
        return key0, low_bytes(word_at(text, start + 8), _U(in_second)) | (_U(length) << _U(56))
    hashed = _U(length)
    for at in range(0, length - 7, 8):
        hashed = _mix(hashed ^ word_at(text, start + at)) + _U(0x9E3779B97F4A7C15)
    rest = length & 7
    if rest:
        hashed = _mix(hashed ^ low_bytes(word_at(text, start + length - rest), _U(rest)))
    return hashed, _LONG << _U(56)


@nb.njit(cache=True, inline="always")
def hash_of(key0: np.uint64, key1: np.uint64) -> np.uint64:
    """Hash of a label: the low bits say where to look for it first, the high 31 are kept in its slot."""
    if key1 >> _U(56) == _LONG:
        key1 = _LONG
    return _mix(key0 ^ (key1 * _M2))


@nb.njit(cache=True, inline="always")
def tag_of(hashed: np.uint64) -> np.uint64:
    """The part of a hash that is kept in the slot."""
    return hashed >> _U(33)


@nb.njit(cache=True)
def _same_long(
    arena: NDArray[np.uint8], place: np.int64, text: NDArray[np.uint8], start: np.int64, length: np.int64
) -> bool:
    if np.int64(word_at(arena, place)) != length:
        return False
    differences = 0
    for at in range(length):
        differences += arena[place + 8 + at] != text[start + at]
    return differences == 0


@nb.njit(cache=True, inline="always")
def candidate(slots: NDArray[np.uint64], hashed: np.uint64) -> np.int64:
    """Number of the label that is first looked at, if its hash is alike; else -1."""
    slot = load_acquire(slots, np.int64(hashed & _U(len(slots) - 1)))
    return np.int64(slot & _NUMBER) - 1 if slot >> _U(32) == tag_of(hashed) else -1


@nb.njit(cache=True)
def number_of(
    slots: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    counters: NDArray[np.int64],
    arena: NDArray[np.uint8],
    key0: np.uint64,
    key1: np.uint64,
    hashed: np.uint64,
    text: NDArray[np.uint8],
    start: np.int64,
    length: np.int64,
) -> np.int64:
    """Number of a label, given one if it is new; -1 - number when it is. The table must have a free slot."""
    mask = np.int64(len(slots) - 1)
    at = np.int64(hashed) & mask
    tag = tag_of(hashed)
    long = key1 >> _U(56) == _LONG
    while True:
        slot = load_acquire(slots, at)
        if slot == _U(0) and exchange_if(slots, at, _U(0), _BUSY):
            if long:
                place = fetch_add(counters, ARENA_USED, np.int64((length + 15) & ~7))
                for byte in range(8):
                    arena[place + byte] = (length >> (8 * byte)) & 0xFF
                arena[place + 8 : place + 8 + length] = text[start : start + length]
                key1 |= _U(place)
            number = fetch_add(counters, COUNT, np.int64(1))
            keys[2 * number] = key0
            keys[2 * number + 1] = key1
            store_release(slots, at, (tag << _U(32)) | _U(number + 1))
            return -1 - number
        while slot == _U(0) or slot == _BUSY:
            slot = load_acquire(slots, at)
        if slot >> _U(32) == tag:
            number = np.int64(slot & _NUMBER) - 1
            if keys[2 * number] == key0:
                other = keys[2 * number + 1]
                if other == key1 or (
                    long
                    and other >> _U(56) == _LONG
                    and _same_long(arena, np.int64(other & _LOW56), text, start, length)
                ):
                    return number
        at = (at + 1) & mask


@nb.njit(cache=True, parallel=True)
def fill(slots: NDArray[np.uint64], keys: NDArray[np.uint64], labels: int) -> None:
    """Put `labels` distinct labels into an empty table."""
    mask = np.int64(len(slots) - 1)
    for number in nb.prange(labels):
        hashed = hash_of(keys[2 * number], keys[2 * number + 1])
        at = np.int64(hashed) & mask
        while not exchange_if(slots, at, _U(0), (tag_of(hashed) << _U(32)) | _U(number + 1)):
            at = (at + 1) & mask


@nb.njit(cache=True, inline="always")
def label_length(arena: NDArray[np.uint8], key1: np.uint64) -> np.int64:
    """Bytes of a label."""
    kind = key1 >> _U(56)
    return np.int64(word_at(arena, np.int64(key1 & _LOW56))) if kind == _LONG else np.int64(kind)


@nb.njit(cache=True, inline="always")
def label_byte(arena: NDArray[np.uint8], key0: np.uint64, key1: np.uint64, at: np.int64) -> np.uint8:
    """One byte of a label; `at` is within it."""
    if key1 >> _U(56) == _LONG:
        return arena[np.int64(key1 & _LOW56) + 8 + at]
    word = key0 if at < 8 else key1
    return np.uint8((word >> (_U(at & 7) << _U(3))) & _U(0xFF))


@nb.njit(cache=True, parallel=True)
def label_lengths(keys: NDArray[np.uint64], arena: NDArray[np.uint8], order: NDArray[np.int32]) -> NDArray[np.int64]:
    """Bytes of each label, in the order of `order`."""
    lengths = np.empty(len(order), np.int64)
    for i in nb.prange(len(order)):
        lengths[i] = label_length(arena, keys[order[i], 1])
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
        for at in range(offsets[i + 1] - offsets[i]):
            text[offsets[i] + at] = label_byte(arena, key0, key1, at)
