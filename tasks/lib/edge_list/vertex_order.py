"""The final order of vertices: by degree from the highest, then by the bytes of the label."""

from __future__ import annotations

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.tasks.lib.edge_list.label_table import Int, label_byte, label_bytes, label_length, label_lengths

_U = np.uint64
_PREFIX = 15  # bytes of a label that are sorted without looking it up
_MOST_TIES = 64
_PARTS = 64  # sorted by themselves, then merged by pairs


def order_by_degree(degree: NDArray[np.int64], keys: NDArray[np.uint64], arena: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Labels in final order.

    Args:
        degree: [labels].
        keys: [labels, 2] and
        arena: of the labels, see `label_table.py`.

    Returns:
        Numbers of labels, [vertices].
    """
    if not len(degree):
        return np.empty(0, np.int32)
    words = np.empty(len(degree), np.uint64)
    _words_after_prefix(keys, arena, words)
    by_label = np.argsort(words)
    if not _sort_ties(words, keys, arena, by_label):
        return _order_by_merging(degree, keys, arena)
    place = ((degree.max(initial=0) - degree[by_label]).astype(np.uint64) << _U(32)) | np.arange(len(degree), dtype=_U)
    place.sort()
    order: NDArray[np.int32] = by_label[place & _U(0xFFFFFFFF)].astype(np.int32)
    return order


def _order_by_merging(
    degree: NDArray[np.int64], keys: NDArray[np.uint64], arena: NDArray[np.uint8]
) -> NDArray[np.int32]:
    """The same for labels that differ late."""
    used = np.arange(len(degree))
    here = np.empty((len(used), 4), np.uint64)
    _sort_keys(used, degree, keys, arena, here)
    there = np.empty_like(here)
    bounds = np.linspace(0, len(used), _PARTS + 1).astype(np.int64)
    _sort_parts(here, there, bounds, keys, arena)
    while len(bounds) > 2:
        _merge_pairs(here, there, bounds, keys, arena)
        here, there = there, here
        bounds = bounds[::2]
    return here[:, 3].astype(np.int32)


def label_array(order: NDArray[np.int32], keys: NDArray[np.uint64], arena: NDArray[np.uint8]) -> pa.Array:
    """Labels order[0], order[1], … as an Arrow column of strings.

    Raises:
        pa.ArrowInvalid: a label is not UTF-8.
    """
    offsets = np.zeros(len(order) + 1, np.int64)
    np.cumsum(label_lengths(keys, arena, order), out=offsets[1:])
    text = np.empty(int(offsets[-1]), np.uint8)
    label_bytes(keys, arena, order, offsets, text)
    column = pa.LargeStringArray.from_buffers(len(order), pa.py_buffer(offsets), pa.py_buffer(text))
    column.validate(full=True)
    return column


@nb.njit(cache=True, parallel=True)
def _words_after_prefix(keys: NDArray[np.uint64], arena: NDArray[np.uint8], words: NDArray[np.uint64]) -> None:
    """The eight bytes of each label after what all labels begin with, as numbers in the order of bytes."""
    first0, first1 = keys[0, 0], keys[0, 1]
    prefix = label_length(arena, first0, first1)
    for i in nb.prange(len(keys)):
        key0, key1 = keys[i, 0], keys[i, 1]
        most, shared = min(label_length(arena, key0, key1), label_length(arena, first0, first1)), 0
        while shared < most and label_byte(arena, key0, key1, shared) == label_byte(arena, first0, first1, shared):
            shared += 1
        prefix = min(prefix, shared)
    for i in nb.prange(len(keys)):
        word = _U(0)
        length = label_length(arena, keys[i, 0], keys[i, 1])
        for offset in range(prefix, min(length, prefix + 8)):
            word |= _U(label_byte(arena, keys[i, 0], keys[i, 1], offset)) << _U(56 - 8 * (offset - prefix))
        words[i] = word


@nb.njit(cache=True)
def _sort_ties(
    words: NDArray[np.uint64], keys: NDArray[np.uint64], arena: NDArray[np.uint8], order: NDArray[np.int64]
) -> bool:
    """Sort labels with the same word, which stand together in `order`; false, and nothing sorted, if they are many."""
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or words[order[end]] != words[order[start]]:
            if end - start > _MOST_TIES:
                return False
            for i in range(start + 1, end):
                label, place = order[i], i
                while place > start and _label_before(label, order[place - 1], 0, keys, arena):
                    order[place] = order[place - 1]
                    place -= 1
                order[place] = label
            start = end
    return True


@nb.njit(cache=True)
def _label_before(a: Int, b: Int, start: Int, keys: NDArray[np.uint64], arena: NDArray[np.uint8]) -> bool:
    """True if label `a` comes before `b` by their bytes from `start` on."""
    length_a, length_b = label_length(arena, keys[a, 0], keys[a, 1]), label_length(arena, keys[b, 0], keys[b, 1])
    for offset in range(start, min(length_a, length_b)):
        byte_a = label_byte(arena, keys[a, 0], keys[a, 1], offset)
        byte_b = label_byte(arena, keys[b, 0], keys[b, 1], offset)
        if byte_a != byte_b:
            return bool(byte_a < byte_b)
    return bool(length_a < length_b)


@nb.njit(cache=True, parallel=True)
def _sort_keys(
    used: NDArray[np.int64],
    degree: NDArray[np.int64],
    keys: NDArray[np.uint64],
    arena: NDArray[np.uint8],
    out: NDArray[np.uint64],
) -> None:
    """Rows of four words: degree (reversed), 15 bytes of the label and how many it has (16 for more), number."""
    for i in nb.prange(len(used)):
        number = used[i]
        key0, key1 = keys[number, 0], keys[number, 1]
        length = label_length(arena, key0, key1)
        word0, word1 = _U(0), _U(0)
        for offset in range(min(length, _PREFIX)):
            byte = _U(label_byte(arena, key0, key1, offset))
            if offset < 8:
                word0 |= byte << _U(56 - 8 * offset)
            else:
                word1 |= byte << _U(56 - 8 * (offset - 8))
        out[i, 0] = ~_U(degree[number])
        out[i, 1] = word0
        out[i, 2] = word1 | _U(min(length, _PREFIX + 1))
        out[i, 3] = _U(number)


@nb.njit(cache=True)
def _before(a: NDArray[np.uint64], b: NDArray[np.uint64], keys: NDArray[np.uint64], arena: NDArray[np.uint8]) -> bool:
    for word in range(3):
        if a[word] != b[word]:
            return bool(a[word] < b[word])
    if a[2] & _U(0xFF) <= _U(_PREFIX):
        return False
    return _label_before(np.int64(a[3]), np.int64(b[3]), _PREFIX, keys, arena)


@nb.njit(cache=True)
def _merge(
    here: NDArray[np.uint64],
    there: NDArray[np.uint64],
    low: int,
    middle: int,
    high: int,
    keys: NDArray[np.uint64],
    arena: NDArray[np.uint8],
) -> None:
    """Merge the sorted rows here[low:middle] and here[middle:high] into there[low:high]."""
    left, right = low, middle
    for row_out in range(low, high):
        take_right = left == middle or (right < high and _before(here[right], here[left], keys, arena))
        row = right if take_right else left
        for word in range(4):
            there[row_out, word] = here[row, word]
        if take_right:
            right += 1
        else:
            left += 1


@nb.njit(cache=True, parallel=True)
def _sort_parts(
    here: NDArray[np.uint64],
    there: NDArray[np.uint64],
    bounds: NDArray[np.int64],
    keys: NDArray[np.uint64],
    arena: NDArray[np.uint8],
) -> None:
    for part in nb.prange(len(bounds) - 1):
        start, end = bounds[part], bounds[part + 1]
        one, two = here[start:end], there[start:end]
        width, turns = 1, 0
        while width < end - start:
            for low in range(0, end - start, 2 * width):
                _merge(one, two, low, min(low + width, end - start), min(low + 2 * width, end - start), keys, arena)
            one, two = two, one
            width *= 2
            turns += 1
        if turns % 2:
            here[start:end] = there[start:end]


@nb.njit(cache=True, parallel=True)
def _merge_pairs(
    here: NDArray[np.uint64],
    there: NDArray[np.uint64],
    bounds: NDArray[np.int64],
    keys: NDArray[np.uint64],
    arena: NDArray[np.uint8],
) -> None:
    for pair in nb.prange((len(bounds) - 1) // 2):
        _merge(here, there, bounds[2 * pair], bounds[2 * pair + 1], bounds[2 * pair + 2], keys, arena)
