"""Columns of tables as values of features, whatever form the table gives them.

Parquet and TFRecord have values and lists of them. A field of a CSV file is a value, or several numbers with blanks,
commas or semicolons between them, in brackets or not; several strings are a JSON list. A single floating-point number
that is null, or in CSV one of `MISSING` in upper or lower case, is NaN; a single string that is null is empty.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.tasks.lib.graph.dtypes import DTYPES, FLOATS, MISSING, STRING
from superworkflow.tasks.lib.graph.heterograph import Feature, Ragged, Values, string_type

_STRINGS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARIES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
_TRUE, _FALSE = ("true", "t", "yes"), ("false", "f", "no")
TRUTH_VALUES = tuple(form for each in (*_TRUE, *_FALSE) for form in (each, each.capitalize(), each.upper()))
"""Truth values as fields of CSV files, with 1 and 0; PostgreSQL writes t and f."""
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


class BadValue(Exception):
    """A value that is not what the schema says.

    Args:
        row: in the column.
        what: is wrong.
        value: as it was given.
    """

    def __init__(self, row: int, what: str, value: Any):
        super().__init__(what)
        self.row, self.what, self.value = row, what, value


def ids_of(column: pa.Array) -> pa.Array:
    """Ids as text: strings, bytes in UTF-8, or whole numbers, which become their decimal digits.

    Raises:
        BadValue: an id is missing, empty, or of another type.
    """
    values = _single(_plain(column), "id")
    if pa.types.is_integer(values.type):
        values = values.cast(pa.string())
    elif not is_text(values.type):
        raise BadValue(0, "ids are text or whole numbers", str(values.type))
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        row = next(row for row, value in enumerate(values) if not _is_utf8(value.as_py()))
        raise BadValue(row, "an id is not text in UTF-8", values[row].as_py()) from None
    empty = pc.equal(pc.binary_length(texts), 0)
    if len(texts) and pc.any(empty).as_py():
        raise BadValue(pc.index(empty, True).as_py(), "an id is empty", "")
    return texts


def values_of(column: pa.Array, feature: Feature, text: bool = False) -> Values:
    """The values of a feature in a column.

    Args:
        column: Arrow array [rows].
        feature: what it is.
        text: the column is of a CSV file.

    Raises:
        BadValue: a value is missing, of another type or length, or out of range.
    """
    array = _plain(column)
    if text:
        array = _fields(array, feature)
    if not feature.shape:
        single = _single(array, "value", feature.dtype in (*FLOATS, STRING))
        return _strings(single) if feature.dtype == STRING else _numbers(single, feature.dtype, None)
    values, starts = _flat(array, feature)
    lengths, width = np.diff(starts), feature.width
    bad = lengths % width != 0 if feature.is_ragged and width else lengths != width
    if feature.is_ragged and not width:
        bad = lengths != 0
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        wanted = f"a multiple of {width}" if feature.is_ragged else str(width)
        raise BadValue(row, f"feature {feature.name} has {wanted} values, by its shape", int(lengths[row]))
    if feature.dtype == STRING:
        bounds = pa.array(starts)
        return pa.LargeListArray.from_arrays(bounds, _strings(values)).cast(string_type(feature))
    numbers = _numbers(values, feature.dtype, starts)
    if not feature.is_ragged:
        return numbers.reshape(len(array), *feature.shape)
    return Ragged(numbers.reshape(-1, *feature.shape[1:]), starts // max(width, 1))


def _plain(column: Any) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _single(array: pa.Array, what: str, may_be_null: bool = False) -> pa.Array:
    """The one value of each row."""
    if is_list(array.type):
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        wrong = pc.not_equal(lengths, 1)
        if len(array) and pc.any(wrong).as_py():
            row = pc.index(wrong, True).as_py()
            raise BadValue(row, f"one {what} expected", f"{lengths[row].as_py()} values")
        array = array.flatten()
    if not may_be_null:
        _refuse_nulls(array, what)
    return array


def _refuse_nulls(array: pa.Array, what: str, starts: NDArray[np.int64] | None = None) -> None:
    if array.null_count:
        raise BadValue(_row_of(pc.index(array.is_null(), True).as_py(), starts), f"no {what}", None)


def _flat(array: pa.Array, feature: Feature) -> tuple[pa.Array, NDArray[np.int64]]:
    """Values of all rows behind each other, and where those of each begin; a missing list is an empty one."""
    starts = np.arange(len(array) + 1, dtype=np.int64)
    depth = 0
    while is_list(array.type):
        if depth == len(feature.shape):
            raise BadValue(0, f"lists of feature {feature.name} are nested deeper than its shape", str(array.type))
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        if depth and (lengths != feature.shape[depth]).any():
            place = int(np.flatnonzero(lengths != feature.shape[depth])[0])
            what = f"feature {feature.name} has lists of {feature.shape[depth]} in dimension {depth}, by its shape"
            raise BadValue(_row_of(place, starts), what, int(lengths[place]))
        depth += 1
        inner = np.zeros(len(array) + 1, np.int64)
        np.cumsum(lengths, out=inner[1:])
        starts, array = inner[starts], array.flatten()
    if pa.types.is_null(array.type):
        return pa.nulls(0), np.zeros_like(starts)
    return array, starts


def _numbers(array: pa.Array, dtype: str, starts: NDArray[np.int64] | None) -> NDArray[Any]:
    """Values as numbers of a type; what does not fit it is refused, but for digits that a float does not hold."""
    wanted = np.dtype(DTYPES[dtype])
    if not len(array):
        return np.empty(0, wanted)
    if pa.types.is_null(array.type):
        array = array.cast(pa.float64())
    if wanted.kind != "f" or starts is not None:
        _refuse_nulls(array, "value", starts)
    if is_text(array.type):
        raise BadValue(0, f"values are of type {array.type}, by the schema they are {dtype}", array[0].as_py())
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.float64())
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise BadValue(0, f"values are of type {array.type}, by the schema they are {dtype}", str(array[0].as_py()))
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    if wanted.kind == "f" or values.dtype == wanted:
        return values.astype(wanted, copy=False)
    if values.dtype.kind == "f":
        raise BadValue(0, f"values are of type {array.type}, by the schema they are {dtype}", float(values[0]))
    low, high = (0, 1) if wanted.kind == "b" else (int(np.iinfo(wanted).min), int(np.iinfo(wanted).max))
    if int(values.min()) < low or int(values.max()) > high:
        place = int(np.argmin(values)) if int(values.min()) < low else int(np.argmax(values))
        raise BadValue(_row_of(place, starts), f"the value is no {dtype}", int(values[place]))
    return values.astype(wanted)


def _strings(array: pa.Array) -> pa.Array:
    if pa.types.is_null(array.type):
        array = array.cast(pa.large_binary())
    if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
        array = array.cast(pa.large_string())
    if not is_text(array.type):
        raise BadValue(0, f"values are of type {array.type}, by the schema they are string", str(array[0].as_py()))
    return pc.fill_null(array.cast(pa.large_binary()), b"")


def _fields(array: pa.Array, feature: Feature) -> pa.Array:
    """Fields of a CSV file: text as numbers or lists, as far as the feature has them."""
    array = pc.fill_null(array.cast(pa.large_string()), "")
    if feature.dtype == STRING:
        return pa.array([_json_list(row, text.as_py()) for row, text in enumerate(array)]) if feature.shape else array
    kind = pa.from_numpy_dtype(np.dtype(DTYPES[feature.dtype]))
    if not feature.shape:
        single = known(array) if feature.dtype in FLOATS else pc.ascii_trim_whitespace(array)
        return _parsed(single, kind, None)
    separated = pc.ascii_trim_whitespace(pc.replace_substring_regex(array, r"[\[\](),;\s]+", " "))
    parts = pc.split_pattern(separated, " ")
    lengths = pc.list_value_length(parts).to_numpy(zero_copy_only=False).astype(np.int64)
    empty = pc.equal(separated, "").to_numpy(zero_copy_only=False)
    lengths[empty] = 0
    starts = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    texts = parts.flatten()
    return pa.LargeListArray.from_arrays(pa.array(starts), _parsed(texts.filter(pc.not_equal(texts, "")), kind, starts))


def _parsed(texts: pa.Array, kind: pa.DataType, starts: NDArray[np.int64] | None) -> pa.Array:
    """Texts as values of a type; truth values are 0 and 1 of booleans and, if the schema says so, of floats."""
    wide = pa.float32() if kind == pa.float16() else kind
    try:
        return (_digits(texts) if pa.types.is_boolean(kind) else texts).cast(wide)
    except pa.ArrowInvalid:
        texts = _digits(texts) if pa.types.is_floating(kind) else texts
    try:
        return texts.cast(wide)
    except pa.ArrowInvalid:
        for place, text in enumerate(texts):
            try:
                text.cast(wide)
            except pa.ArrowInvalid:
                raise BadValue(_row_of(place, starts), f"the value is no {kind}", text.as_py()[:100]) from None
        raise


def _digits(texts: pa.Array) -> pa.Array:
    """Texts with 1 and 0 in place of truth values."""
    for words, digit in ((_TRUE, "1"), (_FALSE, "0")):
        found = pc.is_in(pc.utf8_lower(texts), value_set=pa.array(words, texts.type))
        texts = pc.if_else(found, pa.scalar(digit, texts.type), texts)
    return texts


def _json_list(row: int, text: str) -> list[str]:
    try:
        values = json.loads(text) if text.strip() else []
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise BadValue(row, "several strings are a JSON list", text[:100])
    return values


def _row_of(place: int, starts: NDArray[np.int64] | None) -> int:
    return place if starts is None else int(np.searchsorted(starts, place, "right")) - 1


def known(texts: Any) -> Any:
    """Texts without blanks around them, in Arrow's strings; null where a value is missing."""
    array = texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts
    trimmed = pc.utf8_trim_whitespace(array.cast(pa.large_string()))
    absent = pc.is_in(pc.utf8_lower(trimmed), value_set=pa.array(MISSING, pa.large_string()), skip_nulls=True)
    return pc.if_else(absent, pa.scalar(None, pa.large_string()), trimmed)


def is_text(kind: pa.DataType) -> bool:
    """True for strings and bytes."""
    return any(test(kind) for test in (*_STRINGS, *_BINARIES))


def is_list(kind: pa.DataType) -> bool:
    """True for lists, of one length or of several."""
    return any(test(kind) for test in _LISTS)


def _is_utf8(value: str | bytes) -> bool:
    try:
        return isinstance(value, str) or value.decode() is not None
    except UnicodeDecodeError:
        return False
