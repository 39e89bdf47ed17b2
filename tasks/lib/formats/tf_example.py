"""Kernels that read serialized tf.train.Example messages of any origin: every length is checked against the end.

An Example holds one field of Features, they hold a map from names to Feature, and that holds one of three lists:

    Example { Features features = 1 }     Features { map<string, Feature> feature = 1 }
    Feature { BytesList bytes_list = 1 | FloatList float_list = 2 | Int64List int64_list = 3 }
    BytesList, FloatList, Int64List { repeated value = 1 }

Numbers may be packed or not. Unknown fields are passed over. What protobuf would merge or overrule (a name twice in one
Example, two lists in one Feature) no writer makes, and is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np
from numpy.typing import NDArray

ABSENT, BYTES, FLOATS, INTEGERS = 0, 1, 2, 3
"""Kinds of lists, by their field number in Feature."""
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_VALUE = np.uint64(1 << 3 | _DELIMITED)


class FeatureNames(NamedTuple):
    """Names of the wanted features: uint8, behind each other, and where each begins, int64 [k + 1]."""

    text: NDArray[np.uint8]
    starts: NDArray[np.int64]


class FoundLists(NamedTuple):
    """Lists of the wanted features in Examples.

    Args:
        kinds: uint8 [n, k], `ABSENT` where there is none.
        spans: int64 [n, k, 2], where the list's values begin and end.
        counts: int64 [n, k], how many values it has.
        sizes: int64 [n, k], bytes of all its values, of lists of bytes.
    """

    kinds: NDArray[np.uint8]
    spans: NDArray[np.int64]
    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def empty(cls, examples: int, features: int) -> FoundLists:
        """Arrays to be filled by `scan_examples`."""
        shape = (examples, features)
        spans, counts, sizes = (np.empty(each, np.int64) for each in ((*shape, 2), shape, shape))
        return cls(np.empty(shape, np.uint8), spans, counts, sizes)

    def feature(self, k: int) -> FoundLists:
        """The lists of one feature, of which each array has a dimension less."""
        return FoundLists._make(np.ascontiguousarray(each[:, k]) for each in self)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def varint(data: Any, position: int, stop: int) -> Any:
    """The varint at an index as (uint64, index behind it); the index is -1 where it does not end in time."""
    value, shift = np.uint64(0), np.uint64(0)
    while position < stop and shift < np.uint64(70):
        byte = np.uint64(data[position])
        value |= (byte & np.uint64(0x7F)) << (shift & np.uint64(63))
        position += 1
        if byte < np.uint64(0x80):
            return value, position
        shift += np.uint64(7)
    return value, np.int64(-1)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _field(data: Any, position: int, stop: int) -> Any:
    """A field's key, where its content begins and ends; the end is -1 where it leads beyond `stop`.

    The content of a delimited field is without its length; that of another one is the value's bytes.
    """
    key, begin = varint(data, position, stop)
    if begin < 0:
        return key, begin, np.int64(-1)
    wire = np.int64(key & np.uint64(7))
    if wire == _DELIMITED:
        length, begin = varint(data, begin, stop)
        if begin < 0 or length > np.uint64(stop - begin):
            return key, begin, np.int64(-1)
        return key, begin, begin + np.int64(length)
    if wire == _VARINT:
        return key, begin, varint(data, begin, stop)[1]
    size = 8 if wire == _FIXED64 else 4 if wire == _FIXED32 else stop + 1
    return key, begin, begin + size if size <= stop - begin else np.int64(-1)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _wanted(data: Any, begin: int, end: int, names: Any) -> int:
    """Index of the name that the bytes equal; -1 for none."""
    for k in range(len(names.starts) - 1):
        first = names.starts[k]
        if names.starts[k + 1] - first == end - begin:
            same = True
            for offset in range(end - begin):
                if data[begin + offset] != names.text[first + offset]:
                    same = False
                    break
            if same:
                return k
    return -1


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _count(data: Any, begin: int, end: int, kind: Any) -> Any:
    """Values of a list, and bytes of those of a list of bytes; -1 values where it is damaged."""
    values, size, position = np.int64(0), np.int64(0), begin
    while position < end:
        key, first, position = _field(data, position, end)
        if position < 0:
            return np.int64(-1), size
        if key >> np.uint64(3) != np.uint64(1):
            continue
        wire = np.int64(key & np.uint64(7))
        if kind == BYTES and wire == _DELIMITED:
            values, size = values + 1, size + position - first
        elif kind == FLOATS and wire == _DELIMITED:
            if (position - first) % 4:
                return np.int64(-1), size
            values += (position - first) // 4
        elif kind == INTEGERS and wire == _DELIMITED:
            place = first
            while place < position:
                place = varint(data, place, position)[1]
                if place < 0:
                    return np.int64(-1), size
                values += 1
        elif (kind == FLOATS and wire == _FIXED32) or (kind == INTEGERS and wire == _VARINT):
            values += 1
        else:
            return np.int64(-1), size
    return values, size


@nb.njit(cache=True, nogil=True, error_model="numpy")
def scan_examples(data: Any, bounds: Any, names: Any, found: Any) -> int:
    """Find the wanted features in Examples.

    Args:
        data: uint8 [bytes].
        bounds: int64 [n, 2], where each Example begins and ends.
        names: `FeatureNames`.
        found: output, `FoundLists`.

    Returns:
        The first Example that is damaged, -1 if none is.
    """
    for i in range(len(bounds)):
        for k in range(len(names.starts) - 1):
            found.kinds[i, k], found.counts[i, k], found.sizes[i, k] = ABSENT, 0, 0
            found.spans[i, k, 0], found.spans[i, k, 1] = 0, 0
        position, stop = bounds[i, 0], bounds[i, 1]
        while position < stop:
            key, first, position = _field(data, position, stop)
            if position < 0:
                return i
            if key == _VALUE and not _scan_features(data, first, position, names, found, i):
                return i
    return -1


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _scan_features(data: Any, position: int, stop: int, names: Any, found: Any, i: int) -> bool:
    """Scan the Features of Example `i` into `found`; False where they are damaged."""
    while position < stop:
        key, first, position = _field(data, position, stop)
        if position < 0:
            return False
        if key != _VALUE:
            continue
        name_begin, name_end, begin, end, place = first, first, first, first, first
        while place < position:
            part, inner, place = _field(data, place, position)
            if place < 0:
                return False
            if part == _VALUE:
                name_begin, name_end = inner, place
            elif part == np.uint64(2 << 3 | _DELIMITED):
                begin, end = inner, place
        k = _wanted(data, name_begin, name_end, names)
        if k < 0:
            continue
        while begin < end:
            part, inner, begin = _field(data, begin, end)
            if begin < 0:
                return False
            kind = np.int64(part >> np.uint64(3))
            if kind < BYTES or kind > INTEGERS or np.int64(part & np.uint64(7)) != _DELIMITED:
                continue
            if found.kinds[i, k] != ABSENT:
                return False
            count, size = _count(data, inner, begin, kind)
            if count < 0:
                return False
            found.kinds[i, k], found.counts[i, k], found.sizes[i, k] = kind, count, size
            found.spans[i, k, 0], found.spans[i, k, 1] = inner, begin
    return True


@nb.njit(cache=True, nogil=True, error_model="numpy")
def read_floats(data: Any, spans: Any, values: Any) -> None:
    """Copy the lists of floats of one feature.

    Args:
        data: uint8 [bytes].
        spans: int64 [n, 2], where the lists' values begin and end, as `scan_examples` found them.
        values: output, uint32 [all counts], the bits of the floats.
    """
    place = 0
    for i in range(len(spans)):
        position, stop = spans[i, 0], spans[i, 1]
        while position < stop:
            key, first, position = _field(data, position, stop)
            if key >> np.uint64(3) != np.uint64(1):
                continue
            for word in range(first, position, 4):
                bits = np.uint32(data[word]) | np.uint32(data[word + 1]) << np.uint32(8)
                bits |= np.uint32(data[word + 2]) << np.uint32(16) | np.uint32(data[word + 3]) << np.uint32(24)
                values[place] = bits
                place += 1


@nb.njit(cache=True, nogil=True, error_model="numpy")
def read_integers(data: Any, spans: Any, values: Any) -> None:
    """Decode the lists of integers of one feature: like `read_floats`; output: `values`, int64 [all counts]."""
    place = 0
    for i in range(len(spans)):
        position, stop = spans[i, 0], spans[i, 1]
        while position < stop:
            key, first, position = _field(data, position, stop)
            if key >> np.uint64(3) != np.uint64(1):
                continue
            while first < position:
                value, first = varint(data, first, position)
                values[place] = np.int64(value)
                place += 1


@nb.njit(cache=True, nogil=True, error_model="numpy")
def read_bytes(data: Any, spans: Any, starts: Any, values: Any) -> None:
    """Copy the lists of bytes of one feature; output: `starts` int64 [all counts + 1], `values` uint8 [all sizes]."""
    place, used = 0, np.int64(0)
    starts[0] = 0
    for i in range(len(spans)):
        position, stop = spans[i, 0], spans[i, 1]
        while position < stop:
            key, first, position = _field(data, position, stop)
            if key >> np.uint64(3) != np.uint64(1):
                continue
            values[used : used + position - first] = data[first:position]
            used += position - first
            place += 1
            starts[place] = used
