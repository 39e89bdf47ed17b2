"""Kernels that write serialized tf.train.Example messages in TFRecord frames, straight from arrays.

A block of r records has c columns: features of the Examples, in the order of protobuf's deterministic serialization.
What a column takes in each record is counted first, its *payload*:

- of integers the bytes of their varints, of floats their bytes: what the packed list holds;
- of strings the bytes of all, each with its key and length;
- `ABSENT` where the record lacks the feature.

From these `lay_out` computes all positions, and each column then writes its piece of every record. Indices and sizes
are not checked here: the caller has checked them.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from superworkflow.tasks.lib.formats.crc32c import masked_crc32c
from superworkflow.tasks.lib.formats.tf_example import BYTES
from superworkflow.tasks.lib.kernels.copy_bytes import copy_bytes
from superworkflow.tasks.lib.kernels.prefetch import prefetch_row

ABSENT = -1
"""Payload of a feature that a record lacks."""
FRAME_HEAD, FRAME_TAIL = 12, 4
"""Bytes of a TFRecord's frame before and behind the record: its length with its sum, the record's sum."""
_TWO_BYTES = 1 << 14
"""The least number whose varint has three bytes."""
_AHEAD = 12
"""Rows of a table that are fetched before they are copied."""
_FIRST, _SECOND = np.uint8(1 << 3 | 2), np.uint8(2 << 3 | 2)
"""Keys of fields 1 and 2 whose content has a length."""


@nb.njit(inline="always")
def _size(value: Any) -> Any:
    """Bytes of a number's varint; of one below 0, which counts as 2**64 more, 10."""
    if value < 0:
        return 10
    size, rest = 1, value >> 7
    while rest > 0:
        size, rest = size + 1, rest >> 7
    return size


@nb.njit(inline="always")
def _delimited(length: Any) -> Any:
    """Bytes of a field of this length with its key."""
    return 1 + _size(length) + length


@nb.njit(inline="always")
def _put(out: Any, offset: Any, value: Any) -> Any:
    """Write a varint; the index behind it."""
    rest = np.uint64(value)
    while rest >= np.uint64(0x80):
        out[offset] = np.uint8(rest & np.uint64(0x7F) | np.uint64(0x80))
        rest >>= np.uint64(7)
        offset += 1
    out[offset] = np.uint8(rest)
    return offset + 1


@nb.njit(inline="always")
def _list_length(payload: Any, kind: Any) -> Any:
    return payload if kind == BYTES or payload == 0 else _delimited(payload)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _entry_length(payload: int, kind: int, name_length: int) -> Any:
    return _delimited(name_length) + _delimited(_delimited(_list_length(payload, kind)))


@nb.njit(cache=True, nogil=True, error_model="numpy")
def varint_payload(values: Any, starts: Any, payload: Any) -> None:
    """Payload of lists of integers.

    Args:
        values: int32 or int64.
        starts: int64 [r + 1], where those of each record begin.
        payload: int64 [r], those that are not `ABSENT` are set.
    """
    for r in range(len(payload)):
        if payload[r] != ABSENT:
            own = values[starts[r] : starts[r + 1]]  # a slice, so that many values are read at a time
            size, bits = len(own), values.dtype.type(0)
            for i in range(len(own)):  # as if all had one byte or two, without a branch
                size += own[i] > 127
                bits |= own[i]
            if bits < 0 or bits >= _TWO_BYTES:
                size = 0
                for i in range(len(own)):
                    size += _size(own[i])
            payload[r] = size


@nb.njit(cache=True, nogil=True, error_model="numpy")
def string_payload(rows: Any, starts: Any, list_starts: Any, offsets: Any, payload: Any) -> None:
    """Payload of lists of strings.

    Args:
        rows: int64, items of the records.
        starts: int64 [r + 1], where those of each record begin.
        list_starts: int64 [items + 1], where the strings of each item begin; of length 0 if each has one.
        offsets: int64 [strings + 1], where the bytes of each string begin.
        payload: int64 [r], those that are not `ABSENT` are set.
    """
    for r in range(len(payload)):
        if payload[r] != ABSENT:
            size = 0
            for i in range(starts[r], starts[r + 1]):
                row = rows[i]
                first, last = row, row + 1
                if len(list_starts):
                    first, last = list_starts[row], list_starts[row + 1]
                for s in range(first, last):
                    size += _delimited(offsets[s + 1] - offsets[s])
            payload[r] = size


@nb.njit(cache=True, nogil=True, error_model="numpy")
def record_sizes(payloads: Any, kinds: Any, name_lengths: Any, sizes: Any) -> None:
    """Bytes of whole records.

    Args:
        payloads: int64 [c, r].
        kinds: uint8 [c], of `tasks.lib.formats.tf_example`.
        name_lengths: int64 [c], bytes of the names.
        sizes: int64 [r], is set, frames included.
    """
    for r in range(len(sizes)):
        features = 0
        for c in range(len(kinds)):
            if payloads[c, r] != ABSENT:
                features += _delimited(_entry_length(payloads[c, r], kinds[c], name_lengths[c]))
        sizes[r] = FRAME_HEAD + _delimited(features) + FRAME_TAIL


@nb.njit(cache=True, nogil=True, error_model="numpy")
def lay_out(out: Any, payloads: Any, kinds: Any, names: Any, name_starts: Any, ends: Any, places: Any) -> None:
    """Write frames, names and lengths of all columns of all records, so that the values alone are missing.

    Args:
        out: uint8 [bytes of all records].
        payloads: int64 [c, r].
        kinds: uint8 [c].
        names: uint8; name_starts: int64 [c + 1].
        ends: int64 [r + 1], is set to where each record's frame begins, and at last to where the last one ends.
        places: int64 [c, r], to where the payloads begin.
    """
    offset = np.int64(0)
    for r in range(payloads.shape[1]):
        ends[r] = offset
        features = 0
        for c in range(len(kinds)):
            if payloads[c, r] != ABSENT:
                name_length = name_starts[c + 1] - name_starts[c]
                features += _delimited(_entry_length(payloads[c, r], kinds[c], name_length))
        length = np.uint64(_delimited(features))
        for byte in range(8):
            out[offset + byte] = np.uint8(length >> np.uint64(8 * byte) & np.uint64(0xFF))
        _put_sum(out, offset + 8, masked_crc32c(out, offset, offset + 8))
        offset += FRAME_HEAD
        out[offset] = _FIRST
        offset = _put(out, offset + 1, features)
        for c in range(len(kinds)):
            payload = payloads[c, r]
            if payload == ABSENT:
                places[c, r] = offset
                continue
            name_length = name_starts[c + 1] - name_starts[c]
            out[offset] = _FIRST
            offset = _put(out, offset + 1, _entry_length(payload, kinds[c], name_length))
            out[offset] = _FIRST
            offset = _put(out, offset + 1, name_length)
            copy_bytes(out, offset, names, name_starts[c], name_length)
            offset += name_length
            values = _list_length(payload, kinds[c])
            out[offset] = _SECOND
            offset = _put(out, offset + 1, _delimited(values))
            out[offset] = np.uint8(kinds[c] << 3 | 2)
            offset = _put(out, offset + 1, values)
            if values > payload:
                out[offset] = _FIRST
                offset = _put(out, offset + 1, payload)
            places[c, r] = offset
            offset += payload
        offset += FRAME_TAIL
    ends[payloads.shape[1]] = offset


@nb.njit(inline="always")
def _put_sum(out: Any, offset: Any, value: Any) -> None:
    for byte in range(4):
        out[offset + byte] = np.uint8(value >> np.uint32(8 * byte) & np.uint32(0xFF))


@nb.njit(cache=True, nogil=True, error_model="numpy")
def put_varints(out: Any, places: Any, payload: Any, values: Any, starts: Any) -> None:
    """Write lists of integers; places and payload int64 [r], the others as `varint_payload` takes them."""
    for r in range(len(places)):
        if payload[r] != ABSENT:
            offset, last = places[r], starts[r + 1]
            if payload[r] == last - starts[r]:  # a byte each
                own, to = values[starts[r] : last], out[offset : offset + payload[r]]
                for i in range(len(own)):
                    to[i] = np.uint8(own[i])
                continue
            # A second byte that is none is written over by what follows, but at the end of the list.
            for i in range(starts[r], last - 1):
                value = np.int64(values[i])
                if 0 <= value < _TWO_BYTES:
                    two = np.int64(value > 127)
                    out[offset] = np.uint8(value & 127 | two << 7)
                    out[offset + 1] = np.uint8(value >> 7)
                    offset += 1 + two
                else:
                    offset = _put(out, offset, value)
            if starts[r] < last:
                _put(out, offset, np.int64(values[last - 1]))


@nb.njit(cache=True, nogil=True, error_model="numpy")
def put_rows(out: Any, places: Any, payload: Any, rows: Any, starts: Any, table: Any, width: Any) -> None:
    """Write rows of a table, such as floats.

    Args:
        out, places, payload: as in `put_varints`.
        rows: int64, rows of the table for the records.
        starts: int64 [r + 1], where those of each record begin.
        table: uint8 [n * width], its rows behind each other.
        width: bytes of a row.
    """
    for r in range(len(places)):
        if payload[r] != ABSENT:
            offset = places[r]
            for i in range(starts[r], starts[r + 1]):
                if i + _AHEAD < len(rows):
                    prefetch_row(table, rows[i + _AHEAD] * width, width)
                copy_bytes(out, offset, table, rows[i] * width, width)
                offset += width


@nb.njit(cache=True, nogil=True, error_model="numpy")
def put_bytes(out: Any, places: Any, payload: Any, data: Any, starts: Any) -> None:
    """Write stretches of bytes as they are: data uint8, starts int64 [r + 1] where that of each record begins."""
    for r in range(len(places)):
        if payload[r] != ABSENT:
            copy_bytes(out, places[r], data, starts[r], starts[r + 1] - starts[r])


@nb.njit(cache=True, nogil=True, error_model="numpy")
def put_strings(
    out: Any, places: Any, payload: Any, rows: Any, starts: Any, list_starts: Any, offsets: Any, data: Any
) -> None:
    """Write lists of strings; data uint8 holds their bytes, the others are as `string_payload` takes them."""
    for r in range(len(places)):
        if payload[r] != ABSENT:
            offset = places[r]
            for i in range(starts[r], starts[r + 1]):
                row = rows[i]
                first, last = row, row + 1
                if len(list_starts):
                    first, last = list_starts[row], list_starts[row + 1]
                for s in range(first, last):
                    begin, length = offsets[s], offsets[s + 1] - offsets[s]
                    out[offset] = _FIRST
                    offset = _put(out, offset + 1, length)
                    copy_bytes(out, offset, data, begin, length)
                    offset += length


@nb.njit(cache=True, nogil=True, error_model="numpy")
def put_sums(out: Any, ends: Any) -> None:
    """Write the sum of each record behind it, once all columns are there; ends as `lay_out` has set them."""
    for r in range(len(ends) - 1):
        tail = ends[r + 1] - FRAME_TAIL
        _put_sum(out, tail, masked_crc32c(out, ends[r] + FRAME_HEAD, tail))
