"""Kernels that write the values that have changed into a message, and read them.

A message has for each field a byte that says how it gives the positions of the changed values in a list that both ends
have, then these positions, then the values.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()

NONE, ALL, BITS, GAPS, SAME = 0, 1, 2, 3, 4
"""No value has changed; all have; a bit for each; the gaps between those that have; the same as of the field before."""
_GAPS_HEAD = 5


def words_of(values: NDArray[Any]) -> NDArray[Any]:
    """Values [n] or [n, length] as unsigned integers [n, words], the widest that divide a row."""
    size = values.dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64))
    wide = next(width for width in (8, 4, 2, 1) if size % width == 0)
    return values.reshape(-1).view(f"uint{8 * wide}").reshape(len(values), size // wide)


def room_for(words: NDArray[Any], cells: int) -> int:
    """Bytes that a field's part of a message has at most."""
    return int(1 + _GAPS_HEAD + cells // 8 + 1 + cells * words.shape[1] * words.itemsize)


def pack(
    words: NDArray[Any], shadow: NDArray[Any], cells: NDArray[np.int32], low: int, high: int, marks: NDArray[np.uint8],
    out: NDArray[np.uint8], end: int, valued: bool,
) -> tuple[int, int]:  # fmt: skip
    """Write a field's part of a message; returns its end, and how many values have changed.

    Args:
        valued: write the values.
        words, shadow, cells, low, high, marks, out, end: see `_mark`.
    """
    end, count = _mark(words, shadow, cells, low, high, marks, out, end)
    if count and valued:
        values = np.empty((count, words.shape[1]), words.dtype)
        gather(words, cells, low, high, marks, values)
        out[end : end + values.nbytes] = values.reshape(-1).view(np.uint8)
        end += values.nbytes
    return end, count


@nb.njit(nogil=True, cache=True)
def gather(words, cells, low, high, marks, values):  # type: ignore[no-untyped-def]
    """Copy the marked values in a range of a list.

    Args:
        words, cells, low, high: see `_mark`.
        marks: uint8 [list], of the range from 0 on.
        values: [marked, words], becomes the result.
    """
    end = 0
    for i in range(low, high):
        if marks[i - low]:
            for word in range(words.shape[1]):
                values[end, word] = words[cells[i], word]
            end += 1


@nb.njit(nogil=True, cache=True)
def scatter(words, shadow, cells, low, high, marks, values):  # type: ignore[no-untyped-def]
    """Set the marked values in a range of a list; the arguments are as of `gather`, and the shadow gets them too."""
    end = 0
    for i in range(low, high):
        if marks[i - low]:
            for word in range(words.shape[1]):
                words[cells[i], word] = values[end, word]
                shadow[cells[i], word] = values[end, word]
            end += 1


@nb.njit(nogil=True, cache=True)
def _mark(words, shadow, cells, low, high, marks, out, end):  # type: ignore[no-untyped-def]
    """Find what has changed, and write its positions; returns their end, and how many values have changed.

    Args:
        words: [places, words] of the field.
        shadow: the same as the other end has them.
        cells: int32 [list], places of the values.
        low, high: range of the list.
        marks: uint8 [list], those of the field before, from 0 on; becomes this one's if any value has changed.
        out: uint8, the message.
        end: where this part begins.
    """
    count, same = 0, True
    for i in range(low, high):
        cell, changed, before = cells[i], np.uint8(0), marks[i - low]
        for word in range(words.shape[1]):
            changed |= np.uint8(words[cell, word] != shadow[cell, word])
        count += 1 if changed else 0
        same &= changed == before
        marks[i - low] = changed << 1 | before
    for i in range(high - low):  # the new ones are kept if there are any
        marks[i] = marks[i] >> 1 if count else marks[i] & 1
    if count == 0:
        out[end] = NONE
        return end + 1, 0
    gaps, last = 0, -1
    for i in range(high - low if count < high - low and not same else 0):
        if marks[i]:
            gap = i - last - 1
            last = i
            gaps += 1
            while gap > 127:
                gaps += 1
                gap >>= 7
    mode = BITS if (high - low + 7) // 8 <= gaps + _GAPS_HEAD - 1 else GAPS
    mode = ALL if count == high - low else SAME if same else mode
    out[end] = mode
    end += 1
    if mode == BITS:
        out[end : end + (high - low + 7) // 8] = 0
        for i in range(high - low):
            out[end + (i >> 3)] |= marks[i] << (i & 7)
        end += (high - low + 7) // 8
    elif mode == GAPS:
        for byte in range(4):
            out[end + byte] = (count >> (8 * byte)) & 255
        end, last = end + 4, -1
        for i in range(high - low):
            if marks[i]:
                gap = i - last - 1
                last = i
                while gap > 127:
                    out[end] = 128 | (gap & 127)
                    gap >>= 7
                    end += 1
                out[end] = gap
                end += 1
    return end, count


@nb.njit(nogil=True, cache=True)
def settle(words, shadow, cells, low, high):  # type: ignore[no-untyped-def]
    """Take the values in a range of a list for sent; the arguments are as of `pack`."""
    for i in range(low, high):
        for word in range(words.shape[1]):
            shadow[cells[i], word] = words[cells[i], word]


@nb.njit(nogil=True, cache=True)
def positions(message, place, size, marks):  # type: ignore[no-untyped-def]
    """Read which values of a list have changed; returns where their values begin.

    Raises:
        IndexError: the message is not as `pack` writes it.

    Args:
        message: uint8.
        place: where the field's part begins.
        size: of the list.
        marks: uint8 [size], those of the field before; becomes this one's, or stays if none has changed.
    """
    mode = message[place]
    place += 1
    if mode == ALL:
        marks[:size] = 1
    elif mode == BITS:
        if place + (size + 7) // 8 > len(message):
            raise IndexError("the message of a worker is too short")
        for i in range(size):
            marks[i] = (message[place + (i >> 3)] >> (i & 7)) & 1
        place += (size + 7) // 8
    elif mode == GAPS:
        marks[:size] = 0
        if place + 4 > len(message):
            raise IndexError("the message of a worker is too short")
        count, last = np.int64(0), np.int64(-1)
        for byte in range(4):
            count |= np.int64(message[place + byte]) << (8 * byte)
        place += 4
        for _ in range(count):
            gap, shift = np.int64(0), 0
            while place < len(message) and message[place] > 127:
                gap |= np.int64(message[place] & 127) << shift
                shift += 7
                place += 1
            if place >= len(message) or shift > 28:
                raise IndexError("the message of a worker is too short")
            gap |= np.int64(message[place]) << shift
            place += 1
            last += gap + 1
            if last >= size:
                raise IndexError("the message of a worker names values that are not in its list")
            marks[last] = 1
    elif mode != SAME:
        raise IndexError("the message of a worker is no message")
    return place


def unpack(
    words: NDArray[Any], shadow: NDArray[Any], cells: NDArray[np.int32], low: int, high: int, marks: NDArray[np.uint8],
    message: NDArray[np.uint8], place: int,
) -> int:  # fmt: skip
    """Set the values of a field's part of a message; returns its end.

    Args:
        words: [places, words] of the field, which get the values.
        shadow: also gets the values.
        cells: int32 [list], places of the values.
        low, high: range of the list.
        marks: uint8 [list]; see `positions`.
        message: uint8.
        place: where this part begins.

    Raises:
        IndexError: the message is not as `pack` writes it.
    """
    if place >= len(message):
        raise IndexError("the message of a worker is too short")
    if message[place] == NONE:
        return place + 1
    place = positions(message, place, high - low, marks)
    count = int(np.count_nonzero(marks[: high - low]))
    values = np.empty((count, words.shape[1]), words.dtype)
    if place + values.nbytes > len(message):
        raise IndexError("the message of a worker is too short")
    values.reshape(-1).view(np.uint8)[:] = message[place : place + values.nbytes]
    scatter(words, shadow, cells, low, high, marks, values)
    return place + values.nbytes


@nb.njit(nogil=True, cache=True)
def raise_signals(signals, largest, block, cells, marks, message, place, valued, one):  # type: ignore[no-untyped-def]
    """Raise signals that a message has.

    Args:
        signals: int32 [places].
        largest: int32 [places / block, rounded up].
        block: places whose largest signal is known.
        cells: int32 [list], places of the signals.
        marks: uint8 [list], which are raised.
        message: uint8.
        place: where the values begin.
        valued: there are values; else each is `one`.
        one: bits of a signal.
    """
    for i in range(len(cells)):
        if marks[i]:
            signal = np.int32(one)
            if valued:
                bits = np.uint32(0)
                for byte in range(4):
                    bits |= np.uint32(message[place]) << np.uint32(8 * byte)
                    place += 1
                signal = np.int32(bits)
            signals[cells[i]] = max(signals[cells[i]], signal)
            largest[cells[i] // block] = max(largest[cells[i] // block], signal)
