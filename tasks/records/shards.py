"""Shards of records: the subgraphs of each file, and the writer of one file."""

from __future__ import annotations

import itertools
import threading
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.digest import SummedStream
from superworkflow.tasks.lib.formats.parquet_lists import new_array
from superworkflow.tasks.lib.subgraphs.blocks import SubgraphBlock, SubgraphLayout, layout_of, shard_names
from superworkflow.tasks.lib.subgraphs.shard_reader import SubgraphShard, damage_named
from superworkflow.tasks.records import MOST_SHARDS, SHARD_BYTES
from superworkflow.tasks.records.features import FeatureSource

CHUNK_BYTES = 4 << 20
"""Records that are encoded and then written together; what was encoded is still in the cache when it is summed."""
GZIP_LEVEL = 6
_RECORD_BYTES = 200
"""Bytes of a record, about: frame, ids of seed and sample, names of features."""


class SubgraphGroup(NamedTuple):
    """Subgraphs that are read together.

    Args:
        file: of the dataset; number: of the row group in it.
        first, last: subgraphs of the split that it holds, the last one excluded.
    """

    file: str
    number: int
    first: int
    last: int


class SplitSubgraphs:
    """The subgraphs of one split, by stretches.

    Args:
        dataset: output of stage `sample`.
        split: `train`, `validation` or `test`.
        kept: of the groups that stretches share, the last ones that stay in memory.
    """

    def __init__(self, dataset: Dataset, split: str, kept: int = 0):
        self.dataset, self.split = dataset, split
        self._kept, self._most, self._guard = (
            dict[tuple[SubgraphGroup, frozenset[int]], SubgraphBlock](),
            kept,
            threading.Lock(),
        )
        self._open = threading.local()
        self.layout: SubgraphLayout = layout_of(dataset)
        self.groups: list[SubgraphGroup] = []
        for name in shard_names(dataset, split):
            with damage_named(f"{dataset.uri}/{name}"), dataset.parquet(name) as file:
                for number in range(file.num_row_groups):
                    first = len(self)
                    self.groups.append(
                        SubgraphGroup(name, number, first, first + file.metadata.row_group(number).num_rows)
                    )

    def __len__(self) -> int:
        return self.groups[-1].last if self.groups else 0

    @cached_property
    def values(self) -> list[dict[str, int]]:
        """For each group, how many values the lists of each column hold: from metadata, no subgraph is read for it."""
        found = []
        for name, groups in itertools.groupby(self.groups, key=lambda group: group.file):
            with self.dataset.parquet(name) as file:
                for group in groups:
                    row_group = file.metadata.row_group(group.number)
                    columns = [row_group.column(i) for i in range(row_group.num_columns)]
                    found.append({each.path_in_schema.split(".list.")[0]: each.num_values for each in columns})
        return found

    def read(
        self, group: SubgraphGroup, without_positions: frozenset[int] = frozenset(),
        new: Callable[[int, np.dtype[Any]], NDArray[Any]] = new_array,
    ) -> SubgraphBlock:  # fmt: skip
        """The block of a group; see `SubgraphShard.read`. A thread keeps the shard open of which it read the last
        one."""
        if getattr(self._open, "name", None) != group.file:
            path, where = self.dataset.local(group.file), f"{self.dataset.uri}/{group.file}"
            self._open.shard, self._open.name = SubgraphShard(path, self.layout, where), group.file
        shard: SubgraphShard = self._open.shard
        return shard.read(group.number, without_positions, new)

    def blocks(
        self, first: int, last: int, without_positions: frozenset[int] = frozenset()
    ) -> Iterator[tuple[SubgraphGroup, SubgraphBlock]]:
        """The groups that hold the subgraphs `first` to `last` - 1; see `read`."""
        index = bisect_right(self.groups, first, key=lambda group: group.last)
        while index < len(self.groups) and self.groups[index].first < last:
            group = self.groups[index]
            shared = group.first < first or last < group.last
            yield group, self._shared(group, without_positions) if shared else self.read(group, without_positions)
            index += 1

    def _shared(self, group: SubgraphGroup, without_positions: frozenset[int]) -> SubgraphBlock:
        """A group that another stretch needs too, at about the same time."""
        key = group, without_positions
        with self._guard:
            block = self._kept.pop(key, None)
        if block is None:
            block = self.read(group, without_positions)
        with self._guard:
            self._kept[key] = block
            while len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]
        return block


def record_ends(subgraphs: SplitSubgraphs, source: FeatureSource) -> NDArray[np.float64]:
    """float64 [subgraphs + 1]: about where each one's record would begin if all were in one file, not compressed.

    From how many nodes and edges each row group has.
    """
    widths = source.item_bytes()
    ends = [np.zeros(1)]
    for group, values in zip(subgraphs.groups, subgraphs.values, strict=True):
        count = group.last - group.first
        size = sum(width * values.get(column, 0) for column, width in widths.items()) + _RECORD_BYTES * count
        ends.append(ends[-1][-1] + size / count * np.arange(1, count + 1))
    return np.concatenate(ends)


def values_of(splits: Iterable[SplitSubgraphs]) -> dict[str, int]:
    """Number of values of each column's lists, in total."""
    return dict(sum((Counter(values) for subgraphs in splits for values in subgraphs.values), Counter[str]()))


def shard_spans(ends: NDArray[np.float64], shards: int | None) -> list[tuple[int, int]]:
    """First subgraph of each shard and the one behind its last, so that all have about the same bytes.

    Args:
        ends: see `record_ends`.
        shards: how many; None for as many as have `SHARD_BYTES` each.
    """
    total = float(ends[-1])
    count = min(MOST_SHARDS, max(1, round(total / SHARD_BYTES))) if shards is None else shards
    wanted = [total * shard // count for shard in range(1, count)]
    cuts = [0, *np.searchsorted(ends, wanted).tolist(), len(ends) - 1]
    return list(itertools.pairwise(cuts))


def shard_file(split: str, number: int, count: int, ending: str) -> str:
    """Name of a shard's file."""
    return f"{split}-{number:05d}-of-{count:05d}{ending}"


class Sink(Protocol):
    """Sink of a file's bytes, such as a `SummedStream`."""

    def room(self, size: int) -> memoryview:
        """Memory to put the next `size` bytes into."""

    def filled(self) -> None:
        """Take what was put there."""


def write_records(subgraphs: SplitSubgraphs, source: FeatureSource, first: int, last: int, sink: Sink) -> int:
    """Encode the subgraphs `first` to `last` - 1 and write them in pieces; how many bytes they are."""
    written = 0
    for group, block in subgraphs.blocks(first, last, source.featureless()):
        records = source.records(block)
        begin, end = max(first, group.first) - group.first, min(last, group.last) - group.first
        sizes = records.sizes(begin, end)
        for start, stop in _pieces(sizes):
            size = int(sizes[start:stop].sum())
            records.encode(begin + start, begin + stop, np.frombuffer(sink.room(size), np.uint8))
            sink.filled()
            written += size
    return written


def _pieces(sizes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Stretches of records of at most `CHUNK_BYTES`, or of one record."""
    ends = np.concatenate([[0], np.cumsum(sizes)])
    start = 0
    while start < len(sizes):
        stop = int(np.searchsorted(ends, ends[start] + CHUNK_BYTES, side="right")) - 1
        stop = min(max(stop, start + 1), len(sizes))
        yield start, stop
        start = stop


class Packed:
    """A sink whose bytes a stream gets gzipped; `end` writes the last of them."""

    def __init__(self, stream: SummedStream):
        self._stream, self._memory, self._room = stream, bytearray(), memoryview(b"")
        self._packer = zlib.compressobj(GZIP_LEVEL, wbits=31)  # a gzip header without name and time

    def room(self, size: int) -> memoryview:
        """See `Sink`."""
        if len(self._memory) < size:
            self._memory = bytearray(size)
        self._room = memoryview(self._memory)[:size]
        return self._room

    def filled(self) -> None:
        """See `Sink`."""
        if packed := self._packer.compress(self._room):
            self._stream.write(packed)

    def end(self) -> None:
        """Write what was held back."""
        self._stream.write(self._packer.flush())
