"""TFRecord files: records framed by their length and masked CRC-32C sums, gzipped or not, and the Examples in them.

A record is its length (uint64, little-endian), the masked CRC-32C of those 8 bytes, its bytes, and their masked
CRC-32C. Files may be anybody's: each sum is held, no length is believed further than the file goes, and memory that is
taken grows with what was really read.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.text_file import GZIP, Gunzip
from superworkflow.tasks.lib.formats import tf_example as kernels
from superworkflow.tasks.lib.formats.crc32c import masked_crc32c
from superworkflow.tasks.lib.kernels.atomic import word_at
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()

FRAME_BYTES = 16
"""Bytes of a record's frame."""
MOST_BYTES = (1 << 31) - 1
"""Most bytes of a record: protobuf reads no longer message."""
_BLOCK_BYTES = 16 << 20
_MOST_RECORDS = 1 << 16
_WHOLE, _BAD_LENGTH, _BAD_DATA, _TOO_LONG = 0, 1, 2, 3
_FAULTS = {
    _BAD_LENGTH: "the CRC of a record's length is wrong",
    _BAD_DATA: "the CRC of a record is wrong",
    _TOO_LONG: f"a record is longer than {MOST_BYTES} bytes",
}
_TYPES = {kernels.BYTES: pa.large_binary(), kernels.FLOATS: pa.float32(), kernels.INTEGERS: pa.int64()}


class RawRecords(NamedTuple):
    """Whole records of a file, behind each other.

    Args:
        first: number of the first one in the file.
        data: uint8; valid until the next ones are read.
        bounds: int64 [records, 2], where each one's bytes begin and end in `data`.
    """

    first: int
    data: NDArray[np.uint8]
    bounds: NDArray[np.int64]


def read_records(stream: BinaryIO, where: str, block_bytes: int = _BLOCK_BYTES) -> Iterator[RawRecords]:
    """The records of a TFRecord file that is not compressed (any more).

    Args:
        stream: the file's bytes.
        where: its name for people.
        block_bytes: least room that records are read into.

    Raises:
        UserError: a sum is wrong, or the file ends within a record; names the record, from 0 on.
    """
    room = np.empty(max(block_bytes, FRAME_BYTES), np.uint8)
    bounds = np.empty((min(_MOST_RECORDS, len(room) // FRAME_BYTES), 2), np.int64)
    filled, first, ended = 0, 0, False
    while True:
        while filled < len(room) and not ended:
            count = cast(io.RawIOBase, stream).readinto(cast(Any, room[filled:]))
            filled, ended = filled + (count or 0), not count
        found, used, needed, fault = find_records(room, filled, bounds)
        if found:
            yield RawRecords(first, room, bounds[:found])
        first += found
        if fault:
            raise UserError(_FAULTS[fault], where=f"{where}, record {first}", remedy="Copy or make the file again")
        if used == filled and ended:
            return
        if ended and found < len(bounds):
            raise UserError("the file ends within a record", where=f"{where}, record {first}", value=filled - used,
                            remedy="Copy or make the file again")  # fmt: skip
        left = filled - used
        if needed > len(room):  # twice as much at most, and only when it is full: a length may be a lie
            grown = np.empty(min(needed, 2 * len(room)), np.uint8)
            grown[:left] = room[used:filled]
            room = grown
        else:
            room[:left] = room[used:filled].copy()
        filled = left


@nb.njit(cache=True, nogil=True, error_model="numpy")
def find_records(data: Any, filled: int, bounds: Any) -> Any:
    """Whole records at the begin of a buffer, their sums checked.

    Args:
        data: uint8 [n], of which the first `filled` bytes are of the file.
        bounds: output, int64 [most, 2], where each record's bytes begin and end.

    Returns:
        How many records there are; the bytes that they take; the bytes that the next one takes, as far as is known; and
        what is wrong with it, 0 for nothing.
    """
    found, position = np.int64(0), np.int64(0)
    while found < len(bounds) and filled - position >= 12:
        length = word_at(data, position)
        if np.uint32(word_at(data, position + 4) >> np.uint64(32)) != masked_crc32c(data, position, position + 8):
            return found, position, 0, _BAD_LENGTH
        if length > np.uint64(MOST_BYTES):
            return found, position, 0, _TOO_LONG
        begin, size = position + 12, np.int64(length)
        if filled - begin - 4 < size:
            return found, position, size + FRAME_BYTES, _WHOLE
        end = begin + size
        if np.uint32(word_at(data, end - 4) >> np.uint64(32)) != masked_crc32c(data, begin, end):
            return found, position, 0, _BAD_DATA
        bounds[found, 0], bounds[found, 1] = begin, end
        found, position = found + 1, end + 4
    return found, position, FRAME_BYTES, _WHOLE


def open_records(file: Location | Path | str) -> Iterator[RawRecords]:
    """The records of a TFRecord file, unpacked if its first bytes are those of gzip.

    Raises:
        UserError: as `read_records`, or it cannot be unpacked, or grows too much when it is.
    """
    place = file if isinstance(file, Location) else Location.of(file)
    with ExitStack() as stack:
        raw = stack.enter_context(place.open())
        begin = raw.read(len(GZIP))
        raw.seek(0)
        stream = cast(BinaryIO, Gunzip(raw, place.size() or 0, place.uri)) if begin == GZIP else raw
        yield from read_records(stream, place.uri)


def read_examples(file: Location | Path | str, features: Sequence[str]) -> pa.Table:
    """Features of all tf.train.Example messages in a TFRecord file.

    Args:
        file: by path, URI or location.
        features: their names in the Examples.

    Returns:
        A row for each Example, a column for each feature in the order given: large lists of float32, int64 or
        large_binary, null where an Example lacks it. A feature that none has is a column of type null.

    Raises:
        UserError: as `open_records`; a record is no Example, or a feature is of two types. Names the record.
    """
    where = file.uri if isinstance(file, Location) else str(file)
    chunks: list[list[pa.Array]] = [[] for _ in features]
    types: list[pa.DataType] = [pa.null()] * len(features)
    rows = 0
    for records in open_records(file):
        rows += len(records.bounds)
        for k, column in enumerate(_columns(records, features, where)):
            if not pa.types.is_null(column.type):
                if types[k] not in (pa.null(), column.type):
                    raise UserError(
                        f"feature {features[k]} is {types[k].value_type} before and {column.type.value_type} here",
                        where=f"{where}, records {records.first} to {rows - 1}", remedy="Write one type alone",
                    )  # fmt: skip
                types[k] = column.type
            chunks[k].append(column)
    columns = [
        pa.chunked_array([c if c.type == kind else pa.nulls(len(c), kind) for c in parts], kind)
        for kind, parts in zip(types, chunks, strict=True)
    ]
    return pa.Table.from_arrays(columns, names=list(features))


def _columns(records: RawRecords, features: Sequence[str], where: str) -> list[pa.Array]:
    names = [name.encode() for name in features]
    starts = np.cumsum([0, *map(len, names)])
    found = kernels.FoundLists.empty(len(records.bounds), len(names))
    wanted = kernels.FeatureNames(np.frombuffer(b"".join(names) or b"\0", np.uint8), starts)
    fault = kernels.scan_examples(records.data, records.bounds, wanted, found)
    if fault >= 0:
        raise UserError("not a tf.train.Example", where=f"{where}, record {records.first + fault}",
                        remedy="Give a TFRecord file of serialized tf.train.Example messages")  # fmt: skip
    return [_column(records, name, where, *found.feature(k)) for k, name in enumerate(features)]


def _column(
    records: RawRecords, name: str, where: str, kinds: NDArray[np.uint8], spans: NDArray[np.int64],
    counts: NDArray[np.int64], sizes: NDArray[np.int64],
) -> pa.Array:  # fmt: skip
    present = kinds != kernels.ABSENT
    if not present.any():
        return pa.nulls(len(kinds))
    kind = int(kinds[present][0])
    others = np.flatnonzero(present & (kinds != kind))
    if len(others):
        other = int(kinds[others[0]])
        raise UserError(f"feature {name} is {_TYPES[kind]} before and {_TYPES[other]} here",
                        where=f"{where}, record {records.first + int(others[0])}",
                        remedy="Write one type alone")  # fmt: skip
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    total = int(offsets[-1])
    if kind == kernels.BYTES:
        starts, data = np.empty(total + 1, np.int64), np.empty(int(sizes.sum()), np.uint8)
        kernels.read_bytes(records.data, spans, starts, data)
        values = pa.Array.from_buffers(pa.large_binary(), total, [None, pa.py_buffer(starts), pa.py_buffer(data)])
    else:
        numbers = np.empty(total, np.uint32 if kind == kernels.FLOATS else np.int64)
        (kernels.read_floats if kind == kernels.FLOATS else kernels.read_integers)(records.data, spans, numbers)
        values = pa.Array.from_buffers(_TYPES[kind], total, [None, pa.py_buffer(numbers)])
    validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    kind_of_list = pa.large_list(_TYPES[kind])
    return pa.Array.from_buffers(kind_of_list, len(kinds), [validity, pa.py_buffer(offsets)], children=[values])
