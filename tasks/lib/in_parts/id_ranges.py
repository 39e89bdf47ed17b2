"""Ids in parts: read once, cut into ranges by their bytes, numbered there, and looked up there by edges.

A range is one task's: no task holds more than the ids of a range, or of a part of a table.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.tasks.lib.in_parts.task_outputs import TaskOutputs

ROW_BITS = 32
"""Bits of a row's number in its part; the part's number is above. Keys have the order of the table's rows."""
UNKNOWN = -1
"""Number of an id that is none of a set."""
_SAMPLED = 1 << 12
"""Ids per sampled id; ranges are cut by the samples."""
_LEAST_SAMPLED = 32
"""Fewest samples of a batch."""


@dataclass(frozen=True)
class IdPart:
    """Columns of ids of one part of a table, read and left to later tasks.

    Args:
        kept: what was left.
        number: of the part, among all parts of all tables.
    """

    kept: TaskOutputs
    number: int

    @property
    def name(self) -> str:
        """Name of the remaining file."""
        return f"scanned/{self.number:06d}"

    def leave(self, batches: Iterable[Sequence[pa.Array]], columns: int) -> Scanned:
        """Leave the columns, given batch by batch as large strings."""
        parts: list[list[pa.Array]] = [[] for _ in range(columns)]
        samples: list[list[str]] = [[] for _ in range(columns)]
        rows = 0
        for batch in batches:
            for place, ids in enumerate(batch):
                parts[place].append(ids)
                wanted = min(len(ids), len(ids) // _SAMPLED + _LEAST_SAMPLED)
                samples[place] += ids.take(pa.array(np.linspace(0, len(ids) - 1, wanted).astype(np.int64))).to_pylist()
            rows += len(batch[0])
        chunked = [pa.chunked_array(each, pa.large_string()) for each in parts]
        self.kept.write(self.name, pa.table(chunked, [f"c{place}" for place in range(columns)]))
        return Scanned(rows, samples)

    def ids(self) -> list[pa.Array]:
        """The columns, once they were read: large strings."""
        table = self.kept.table(self.name).combine_chunks()
        return [_whole(column, pa.large_string()) for column in table.columns]


class Scanned(NamedTuple):
    """Rows of a part, and samples of each of its columns of ids."""

    rows: int
    samples: list[list[str]]


@dataclass(frozen=True)
class Ranges:
    """Ranges into which the ids of a node set are cut.

    Args:
        number: of the set.
        bounds: ascending; range r has the ids from bound r - 1 on and below bound r.
        first: task of the first range.
        latent: the set has no table.
        keeps_rows: rows of its table are needed later on, for features.
    """

    number: int
    bounds: tuple[str, ...]
    first: int
    latent: bool
    keeps_rows: bool

    def __len__(self) -> int:
        return len(self.bounds) + 1

    def cut(self, ids: pa.Array) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """(range, places in `ids` that belong there, in the order of the ids); equal ids stay in their order."""
        order = pc.sort_indices(ids).to_numpy().astype(np.int64)

        def at(place: int) -> str:
            return str(ids[int(order[place])].as_py())

        # Of text in UTF-8, the order of code points is that of bytes.
        ends = [0, *(bisect_left(range(len(order)), bound, key=at) for bound in self.bounds), len(order)]
        for place in range(len(self)):
            if ends[place] < ends[place + 1]:
                yield place, order[ends[place] : ends[place + 1]]


class Numbered(NamedTuple):
    """Ids of a range, and the first row whose id an earlier one has: its key and the id."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    repeated: tuple[int, str] | None


def bounds_of(samples: Sequence[str], ranges: int) -> tuple[str, ...]:
    """Bounds of at most `ranges` ranges, as even as the samples allow."""
    ordered = sorted(set(samples))
    places = sorted({len(ordered) * place // ranges for place in range(1, ranges)} - {0}) if ordered else []
    return tuple(ordered[place] for place in places)


class IdColumn(NamedTuple):
    """A column of ids of a part that was scanned, and the ranges of the set whose nodes it names."""

    scan: IdPart
    column: int
    ranges: Ranges


def send_ids(item: IdColumn) -> Iterator[tuple[int, Any]]:
    """The ids of a column, to their ranges, with the keys of their rows; those of a latent set each once."""
    ids = item.scan.ids()[item.column]
    if item.ranges.latent:
        ids = pc.unique(ids)
    for place, rows in item.ranges.cut(ids):
        keys = np.zeros(0, np.int64) if item.ranges.latent else row_keys(item.scan.number, rows)
        yield item.ranges.first + place, (ids.take(pa.array(rows)), keys)


def number_ids(kept: TaskOutputs, sets: Sequence[Ranges], task: int, sent: list[Any]) -> Numbered:
    """Sort the ids of a range, and leave them and the keys of their rows."""
    ranges, place = range_of(sets, task)
    ids = pa.concat_arrays([pa.array([], pa.large_string()), *(each for each, _ in sent)])
    order = pc.sort_indices(ids)
    ids = ids.take(order)
    again = np.zeros(len(ids), bool)
    if len(ids):
        again[1:] = pc.equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    repeated = None
    if ranges.latent:
        ids = ids.filter(pa.array(~again))
    else:
        keys = np.concatenate([np.zeros(0, np.int64), *(each for _, each in sent)])[order.to_numpy()]
        if again.any():
            rows = np.flatnonzero(again)
            row = int(rows[np.argmin(keys[rows])])
            repeated = (int(keys[row]), ids[row].as_py())
        if ranges.keeps_rows:
            kept.write(rows_name("nodes", ranges.number, place), keys)
    kept.write(ids_name(ranges.number, place), pa.table({"id": ids}))
    return Numbered(len(ids), repeated)


def range_of(sets: Sequence[Ranges], task: int) -> tuple[Ranges, int]:
    """The set of a task, and which of its ranges it has."""
    ranges = next(each for each in reversed(sets) if each.first <= task)
    return ranges, task - ranges.first


def ids_name(number: int, place: int) -> str:
    """Name of the sorted ids of a range of a node set."""
    return f"ids/{number:06d}-{place:06d}"


def rows_name(kind: str, number: int, place: int) -> str:
    """Name of the keys of the rows of a range of nodes or a block of edges, in their order."""
    return f"rows/{kind}-{number:06d}-{place:06d}"


@dataclass(frozen=True)
class PartEndpoints:
    """The ends of the edges of one part, to be looked up.

    Args:
        scan: of the part, a column for each end.
        item: number of this among all such parts.
        ends: ranges of the node sets of the ends.
    """

    scan: IdPart
    item: int
    ends: tuple[Ranges, ...]

    def names(self) -> Iterator[tuple[int, pa.Array, pa.Array]]:
        """(end, different ids in the order in which they occur, the place of each row's among these)."""
        for end, ids in enumerate(self.scan.ids()):
            coded = pc.dictionary_encode(ids)
            yield end, coded.dictionary, coded.indices


def send_names(item: PartEndpoints) -> Iterator[tuple[int, Any]]:
    """The different ids that edges name, to their ranges, with who asks."""
    for end, names, _ in item.names():
        for place, rows in item.ends[end].cut(names):
            yield item.ends[end].first + place, (item.item, end, place, names.take(pa.array(rows)))


def look_up(
    kept: TaskOutputs, sets: Sequence[Ranges], bases: Sequence[NDArray[np.int64]], task: int, sent: list[Any]
) -> Iterator[tuple[int, Any]]:
    """Node numbers of ids, `UNKNOWN` of those that are none, back to who asks.

    Args:
        kept: what was left.
        sets: by number.
        bases: number of the first node of each range, by set.
        task: of the range.
        sent: see `send_names`.
    """
    if not sent:
        return
    ranges, place = range_of(sets, task)
    ids = _whole(kept.table(ids_name(ranges.number, place)).column(0), pa.large_string())
    base = int(bases[ranges.number][place])
    for item, end, places, names in sent:
        found = pc.fill_null(pc.index_in(names, value_set=ids), -1).to_numpy().astype(np.int64)
        yield item, (end, places, np.where(found < 0, UNKNOWN, found + base).astype(np.int32))


def numbers_of(item: PartEndpoints, sent: Sequence[Any]) -> list[NDArray[np.int32]]:
    """Node numbers of the ends of the edges of a part, from what `look_up` sent."""
    answers = {(end, place): numbers for end, place, numbers in sent}
    ends = []
    for end, names, places in item.names():
        numbers = np.empty(len(names), np.int32)
        for place, rows in item.ends[end].cut(names):
            numbers[rows] = answers[end, place]
        ends.append(numbers[places.to_numpy()])
    return ends


def row_keys(part: int, rows: NDArray[Any]) -> NDArray[np.int64]:
    """Keys of rows of a part."""
    return (np.int64(part) << np.int64(ROW_BITS)) | rows.astype(np.int64)


def _whole(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays([pa.array([], kind), *chunks])
