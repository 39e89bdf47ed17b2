"""The final order of vertices: by degree from the highest, then by the bytes of the label."""

# mypy: disable-error-code="arg-type,assignment,call-overload,no-any-return,return-value"
# In compiled kernels the scalars of Python and NumPy are one.

from __future__ import annotations

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.index.table import label_byte, label_bytes, label_length, label_lengths

_U = np.uint64
_PREFIX = 15  # bytes of a label that are sorted without looking it up
_PARTS = 64  # sorted by themselves, then merged by pairs


def order_by_degree(degree: NDArray[np.int64], keys: NDArray[np.uint64], arena: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Labels in final order.

    Args:
        degree: [labels].
        keys: [labels, 2] and
        arena: of the labels, see `table.py`.

    Returns:
        Numbers of labels, [vertices].
    """
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
        for at in range(min(length, _PREFIX)):
            byte = _U(label_byte(arena, key0, key1, at))
            if at < 8:
                word0 |= byte << _U(56 - 8 * at)
            else:
                word1 |= byte << _U(56 - 8 * (at - 8))
        out[i, 0] = ~_U(degree[number])
        out[i, 1] = word0
        out[i, 2] = word1 | _U(min(length, _PREFIX + 1))
        out[i, 3] = _U(number)


@nb.njit(cache=True)
def _before(a: NDArray[np.uint64], b: NDArray[np.uint64], keys: NDArray[np.uint64], arena: NDArray[np.uint8]) -> bool:
    for word in range(3):
        if a[word] != b[word]:
            return a[word] < b[word]
    if a[2] & _U(0xFF) <= _U(_PREFIX):
        return False
    key_a, key_b = keys[np.int64(a[3])], keys[np.int64(b[3])]
    length_a, length_b = label_length(arena, key_a[0], key_a[1]), label_length(arena, key_b[0], key_b[1])
    for at in range(_PREFIX, min(length_a, length_b)):
        byte_a, byte_b = label_byte(arena, key_a[0], key_a[1], at), label_byte(arena, key_b[0], key_b[1], at)
        if byte_a != byte_b:
            return byte_a < byte_b
    return length_a < length_b


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
    for at in range(low, high):
        take_right = left == middle or (right < high and _before(here[right], here[left], keys, arena))
        row = right if take_right else left
        for word in range(4):
            there[at, word] = here[row, word]
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
