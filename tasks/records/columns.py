"""Columns of features: sizes and bytes of one feature in the Examples of a block.

A column refers to the values of each record by row number; they are gathered only where encoding needs it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.formats.tf_example import BYTES, FLOATS, INTEGERS
from superworkflow.tasks.records import kernels

Starts = NDArray[np.int64]


class FeatureColumn(ABC):
    """A feature of the Examples of one block.

    Args:
        name: of the feature.
        starts: int64 [r + 1], where the items (or values) of each record begin.
    """

    kind: int

    def __init__(self, name: str, starts: Starts):
        self.name, self.starts = name.encode(), starts

    @abstractmethod
    def payload(self, first: int, last: int, present: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Bytes of the values in the records `first` to `last` - 1, `kernels.ABSENT` where there are none."""

    @abstractmethod
    def put(self, out: NDArray[np.uint8], places: Starts, payload: NDArray[np.int64], first: int) -> None:
        """Write the values of the records from `first` on."""

    def _absent(self, first: int, last: int, present: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.where(present[first:last], 0, kernels.ABSENT)

    def _starts(self, first: int, count: int) -> Starts:
        return self.starts[first : first + count + 1]


class Integers(FeatureColumn):
    """Lists of integers: values int32 or int64."""

    kind = INTEGERS

    def __init__(self, name: str, starts: Starts, values: NDArray[Any]):
        super().__init__(name, starts)
        self.values = values

    def payload(self, first: int, last: int, present: NDArray[np.bool_]) -> NDArray[np.int64]:
        payload = self._absent(first, last, present)
        kernels.varint_payload(self.values, self._starts(first, last - first), payload)
        return payload

    def put(self, out: NDArray[np.uint8], places: Starts, payload: NDArray[np.int64], first: int) -> None:
        kernels.put_varints(out, places, payload, self.values, self._starts(first, len(places)))


class FloatRows(FeatureColumn):
    """Rows of a table of float32 [n, width], by their numbers, int64."""

    kind = FLOATS

    def __init__(self, name: str, starts: Starts, rows: NDArray[np.int64], table: NDArray[np.float32]):
        super().__init__(name, starts)
        self.rows, self.table, self.width = rows, _as_bytes(table), 4 * table.shape[1]

    def payload(self, first: int, last: int, present: NDArray[np.bool_]) -> NDArray[np.int64]:
        sizes = np.diff(self.starts[first : last + 1]) * self.width
        return np.where(present[first:last], sizes, kernels.ABSENT)

    def put(self, out: NDArray[np.uint8], places: Starts, payload: NDArray[np.int64], first: int) -> None:
        starts = self._starts(first, len(places))
        kernels.put_rows(out, places, payload, self.rows, starts, self.table, self.width)


class Floats(FeatureColumn):
    """Lists of floats: values float32."""

    kind = FLOATS

    def __init__(self, name: str, starts: Starts, values: NDArray[np.float32]):
        super().__init__(name, 4 * starts)
        self.data = _as_bytes(values)

    def payload(self, first: int, last: int, present: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.where(present[first:last], np.diff(self.starts[first : last + 1]), kernels.ABSENT)

    def put(self, out: NDArray[np.uint8], places: Starts, payload: NDArray[np.int64], first: int) -> None:
        kernels.put_bytes(out, places, payload, self.data, self._starts(first, len(places)))


class Strings(FeatureColumn):
    """Strings of items by their numbers, int64; see `kernels.string_payload` for what they are."""

    kind = BYTES

    def __init__(
        self, name: str, starts: Starts, rows: NDArray[np.int64], strings: tuple[Starts, Starts, NDArray[np.uint8]]
    ):
        super().__init__(name, starts)
        self.rows = rows
        self.list_starts, self.offsets, self.data = strings

    def payload(self, first: int, last: int, present: NDArray[np.bool_]) -> NDArray[np.int64]:
        payload = self._absent(first, last, present)
        kernels.string_payload(self.rows, self._starts(first, last - first), self.list_starts, self.offsets, payload)
        return payload

    def put(self, out: NDArray[np.uint8], places: Starts, payload: NDArray[np.int64], first: int) -> None:
        kernels.put_strings(
            out, places, payload, self.rows, self._starts(first, len(places)), self.list_starts, self.offsets, self.data
        )


class BlockRecords:
    """Records of one block, of which any consecutive ones can be sized and encoded.

    Args:
        columns: in any order, with whether each record has the feature, bool [r].
    """

    def __init__(self, columns: list[tuple[FeatureColumn, NDArray[np.bool_]]]):
        self._columns = sorted(columns, key=lambda each: _order(each[0].name))
        names = [column.name for column, _ in self._columns]
        self._kinds = np.array([column.kind for column, _ in self._columns], np.uint8)
        self._names = np.frombuffer(b"".join(names), np.uint8)
        self._name_starts = np.cumsum([0, *map(len, names)], dtype=np.int64)
        self._payloads = 0, np.empty((len(names), 0), np.int64)

    def sizes(self, first: int, last: int) -> NDArray[np.int64]:
        """Bytes of each record from `first` to `last` - 1 in its frame."""
        payloads = np.stack([column.payload(first, last, present) for column, present in self._columns])
        sizes = np.empty(last - first, np.int64)
        kernels.record_sizes(payloads, self._kinds, np.diff(self._name_starts), sizes)
        self._payloads = first, payloads
        return sizes

    def encode(self, first: int, last: int, out: NDArray[np.uint8]) -> None:
        """Write the records `first` to `last` - 1 in their frames; `out` has as many bytes as they take.

        They are among the records of the last call of `sizes`.
        """
        begin, payloads_sized = self._payloads
        payloads = np.ascontiguousarray(payloads_sized[:, first - begin : last - begin])
        ends, places = np.empty(last - first + 1, np.int64), np.empty(payloads.shape, np.int64)
        kernels.lay_out(out, payloads, self._kinds, self._names, self._name_starts, ends, places)
        for (column, _), column_places, payload in zip(self._columns, places, payloads, strict=True):
            column.put(out, column_places, payload, first)
        kernels.put_sums(out, ends)


def _order(name: bytes) -> list[int]:
    """Sorts names as Python's protobuf does in deterministic serialization: by bytes, the longer one first of two of
    which one begins with the other (in C++ the shorter one)."""
    return [*name, 256]


def _as_bytes(table: NDArray[np.float32]) -> NDArray[np.uint8]:
    """A table's rows as bytes behind each other, read-only, so that kernels are compiled for one type."""
    rows = np.ascontiguousarray(table).reshape(-1).view(np.uint8)
    rows.flags.writeable = False
    return rows
