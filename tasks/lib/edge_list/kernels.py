"""Kernels that turn rows of text, or columns of labels, into pairs of vertex numbers and weights.

Text is scanned 64 bytes at a time by vector instructions, once. Rows are handled in small batches, first all their
keys, then all their look-ups, so that the cache misses of a batch overlap.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.edge_list.label_table import (
    ENTRY_WORDS,
    LINE_ENTRIES,
    Int,
    key_of,
    line_of,
    number_of,
    seen_number,
)
from superworkflow.tasks.lib.kernels.atomic import positions_of
from superworkflow.tasks.lib.kernels.bits import trailing_zeros
from superworkflow.tasks.lib.kernels.prefetch import prefetch

_U = np.uint64
_BATCH = 64  # rows
STRIDE = 64
"""Bytes of text that are looked at together."""

NEWLINE, RETURN, BLANK, TAB, QUOTE = 10, 13, 32, 9, 34

AT, ROWS, NEW, FAULT = 0, 1, 2, 3  # places in a part's state
FEW_COLUMNS, BAD_WEIGHT, HARD_WEIGHT, EMPTY_LABEL, QUOTED = 1, 2, 3, 4, 5


class RowLayout(NamedTuple):
    """Fields of a row of text.

    Args:
        separator, third: byte between fields, and another one: with `blanks` fields are set apart by any run of the
            two; else it is the quote, which is a fault, or the separator again.
        blanks: fields are set apart by white space; lines that begin with # or % are comments.
        source, target, weight: number of each column from 0; weight is -1 when there is none.
    """

    separator: int
    third: int
    blanks: bool
    source: int
    target: int
    weight: int


class LabelTable(NamedTuple):
    """The table of labels, see `label_table.py`."""

    slots: NDArray[np.uint64]
    counters: NDArray[np.int64]
    arena: NDArray[np.uint8]


@nb.njit(cache=True)
def parse_weight(text: NDArray[np.uint8], start: Int, end: Int) -> tuple[np.float32, Int]:
    """A positive decimal number as the nearest float32, and 0 or BAD_WEIGHT or HARD_WEIGHT (rounding undecided)."""
    bad = np.float32(0), BAD_WEIGHT
    while start < end and (text[start] == BLANK or text[start] == TAB):
        start += 1
    while start < end and (text[end - 1] == BLANK or text[end - 1] == TAB):
        end -= 1
    if start < end and text[start] == 43:  # +
        start += 1
    exponent: Int = 0
    mantissa, digits, point, kept = _U(0), 0, False, 0
    place = start
    while place < end:
        byte = text[place]
        if 48 <= byte <= 57:
            digits += 1
            if kept < 18:
                mantissa = mantissa * _U(10) + _U(byte - 48)
                kept += mantissa != _U(0)
                exponent -= point
            else:
                exponent += not point
        elif byte == 46 and not point:
            point = True
        else:
            break
        place += 1
    if digits == 0:
        return bad
    if place < end:
        if text[place] != 69 and text[place] != 101:  # E, e
            return bad
        place += 1
        sign: Int = 1
        if place < end and (text[place] == 43 or text[place] == 45):
            sign = 44 - np.int64(text[place])
            place += 1
        if place == end or end - place > 4:
            return bad
        power: Int = 0
        while place < end:
            if not 48 <= text[place] <= 57:
                return bad
            power = power * 10 + np.int64(text[place] - 48)
            place += 1
        exponent += sign * power
    if mantissa == _U(0):
        return bad
    if -22 <= exponent < 0:
        value = np.float64(mantissa) / 10.0 ** np.float64(-exponent)
    else:
        value = np.float64(mantissa) * 10.0 ** np.float64(exponent)
    single = np.float32(value)
    if not (single > 0 and np.isfinite(single)):
        return bad
    # The double may be off in its last bits: undecided when they matter, that is near the middle of two floats.
    exact = mantissa < _U(1 << 53) and -22 <= exponent <= 22
    if not exact and (np.float32(value * (1 - 4e-16)) != single or np.float32(value * (1 + 4e-16)) != single):
        return single, HARD_WEIGHT
    return single, 0


@nb.njit(cache=True)
def _next_stop(
    text: NDArray[np.uint8], base: Int, stops: np.uint64, stop1: np.uint8, stop2: np.uint8, stop3: np.uint8
) -> tuple[Int, np.uint64]:
    """Advance to the next block of text that has stops left."""
    while stops == _U(0):
        base += STRIDE
        stops = positions_of(text, base, stop1, stop2, stop3)
    return base, stops


@nb.njit(cache=True)
def _encode_part(
    text: NDArray[np.uint8],
    state: NDArray[np.int64],
    layout: RowLayout,
    table: LabelTable,
    quota: Int,
    ends: NDArray[np.int32],
    weights: NDArray[np.float32],
) -> None:
    """One thread's share of `encode_text`: rows from state[AT] to the end of `text` or of the quota of new labels."""
    separator, third, blanks, source, target, weight = layout
    slots, counters, arena = table
    stop1, stop2, stop3 = np.uint8(separator), np.uint8(NEWLINE), np.uint8(third)
    size = np.int64(len(text))
    lines = np.int64(len(slots)) // (LINE_ENTRIES * ENTRY_WORDS)
    last = max(source, target, weight)
    key0, key1 = np.empty(2 * _BATCH, np.uint64), np.empty(2 * _BATCH, np.uint64)
    near = np.empty(2 * _BATCH, np.int64)
    starts, lengths = np.empty(2 * _BATCH, np.int64), np.empty(2 * _BATCH, np.int64)
    place, row = state[AT], state[ROWS]
    # Stops at or after `place`: bit i of `stops` stands for text[base + i], and what comes after is not yet looked at.
    base, stops = place - STRIDE, _U(0)
    while place < size and state[NEW] + 2 * _BATCH <= quota:
        rows = 0
        while rows < _BATCH and place < size:
            line = place
            base, stops = _next_stop(text, base, stops, stop1, stop2, stop3)
            end = base + trailing_zeros(stops)
            if blanks:
                while end == place and text[place] != NEWLINE:
                    place += 1
                    stops &= stops - _U(1)
                    base, stops = _next_stop(text, base, stops, stop1, stop2, stop3)
                    end = base + trailing_zeros(stops)
            comment = blanks and (text[place] == 35 or text[place] == 37)  # # or %
            empty = text[end] == NEWLINE and (end == place or (end == place + 1 and text[place] == RETURN))
            field = 0
            if not (comment or empty):
                while True:
                    start, stop = place, end
                    if text[end] == QUOTE and third == QUOTE:
                        state[FAULT] = QUOTED
                        state[AT] = line
                        return
                    ended = text[end] == NEWLINE
                    if ended and end > start and text[end - 1] == RETURN:
                        stop -= 1
                    if field in (source, target):
                        if stop == start:
                            state[FAULT] = FEW_COLUMNS if blanks else EMPTY_LABEL
                            state[AT] = line
                            return
                        first, second = key_of(text, start, stop - start)
                        for slot in range(2 * rows + (field != source), 2 * rows + 1 + (field == target)):
                            starts[slot], lengths[slot] = start, stop - start
                            key0[slot], key1[slot] = first, second
                            near[slot] = line_of(first, second, lines)
                            prefetch(slots, near[slot])
                    elif field == weight:
                        value, fault = parse_weight(text, start, stop)
                        if fault:
                            state[FAULT] = FEW_COLUMNS if blanks and stop == start else fault
                            state[AT] = line
                            return
                        weights[row + rows] = value
                    if ended:
                        break
                    place = end + 1
                    stops &= stops - _U(1)
                    base, stops = _next_stop(text, base, stops, stop1, stop2, stop3)
                    end = base + trailing_zeros(stops)
                    if blanks:
                        while end == place and text[place] != NEWLINE:
                            place += 1
                            stops &= stops - _U(1)
                            base, stops = _next_stop(text, base, stops, stop1, stop2, stop3)
                            end = base + trailing_zeros(stops)
                        if text[end] == NEWLINE and (end == place or (end == place + 1 and text[place] == RETURN)):
                            break
                    if field == last:
                        break
                    field += 1
                if field < last:
                    state[FAULT] = FEW_COLUMNS
                    state[AT] = line
                    return
                rows += 1
            while text[end] != NEWLINE:
                if text[end] == QUOTE and third == QUOTE:
                    state[FAULT] = QUOTED
                    state[AT] = line
                    return
                stops &= stops - _U(1)
                base, stops = _next_stop(text, base, stops, stop1, stop2, stop3)
                end = base + trailing_zeros(stops)
            stops &= stops - _U(1)
            place = end + 1
        for slot in range(2 * rows):
            number = seen_number(slots, near[slot], key0[slot], key1[slot])
            if number < 0:
                number = number_of(slots, counters, arena, key0[slot], key1[slot], text, starts[slot], lengths[slot])
                if number < 0:
                    number = -1 - number
                    state[NEW] += 1
            ends[2 * row + slot] = number
        row += rows
        state[AT] = place
        state[ROWS] = row


@nb.njit(cache=True, parallel=True)
def encode_text(
    text: NDArray[np.uint8],
    bounds: NDArray[np.int64],
    states: NDArray[np.int64],
    layout: RowLayout,
    table: LabelTable,
    quota: int,
    ends: NDArray[np.int32],
    weights: NDArray[np.float32],
    room: NDArray[np.int64],
) -> None:
    """Encode the rows of a block of text, one thread for each part.

    Args:
        text: bytes [size + PADDING]; every row ends in a newline.
        bounds: part i is text[bounds[i]:bounds[i + 1]], whole lines.
        states: [parts, 4]: where the part is (from its start), rows so far, labels that were new, fault.
        layout: fields of a row.
        table: takes the labels.
        quota: a part stops before it has made more new labels than this.
        ends: [2 * rows]: source and target of each row; part i writes from room[i].
        weights: [rows] or empty.
    """
    for part in nb.prange(len(bounds) - 1):
        own_weights = weights[room[part] :] if layout.weight >= 0 else weights
        own_text = text[bounds[part] : bounds[part + 1]]
        _encode_part(own_text, states[part], layout, table, quota, ends[2 * room[part] :], own_weights)


@nb.njit(cache=True, parallel=True)
def encode_column(
    text: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    slots: NDArray[np.uint64],
    counters: NDArray[np.int64],
    arena: NDArray[np.uint8],
    parts: int,
    ends: NDArray[np.int32],
) -> None:
    """Number the labels text[offsets[i]:offsets[i + 1]] into ends[i]; the table must have room for all to be new."""
    rows = len(offsets) - 1
    for part in nb.prange(parts):
        for row in range(part * rows // parts, (part + 1) * rows // parts):
            start, length = np.int64(offsets[row]), np.int64(offsets[row + 1] - offsets[row])
            key0, key1 = key_of(text, start, length)
            number = number_of(slots, counters, arena, key0, key1, text, start, length)
            ends[row] = -1 - number if number < 0 else number
