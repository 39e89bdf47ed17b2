"""Edges in parts: blocks of them by their sources, each sorted by one task, and the same for reversed sets.

A block has the rows of consecutive nodes; a row is never cut. Blocks are cut by how many edges nodes have, which is
counted in buckets of consecutive nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.tasks.lib.in_parts.id_ranges import (
    ROW_BITS,
    UNKNOWN,
    PartEndpoints,
    numbers_of,
    row_keys,
    rows_name,
)
from superworkflow.tasks.lib.in_parts.task_outputs import TaskOutputs

BLOCK_EDGES, BLOCK_NODES = 1 << 22, 1 << 20
"""Most edges of a block, unless one bucket has more."""
_BUCKETS = 1 << 12


class Buckets(NamedTuple):
    """Buckets in which the nodes of a set are counted: `width` consecutive ones each."""

    nodes: int
    width: int

    @classmethod
    def of(cls, nodes: int) -> Buckets:
        """Buckets of a set of that many nodes."""
        return cls(nodes, max(1, -(-nodes // _BUCKETS)))

    def count_of(self, numbers: NDArray[np.int32]) -> NDArray[np.int64]:
        """Count the given nodes in each bucket."""
        return np.bincount(numbers // self.width, minlength=-(-self.nodes // self.width)).astype(np.int64)

    def cut(self, counts: NDArray[np.int64], blocks: int | None) -> NDArray[np.int64]:
        """First node of each block, and the number of nodes.

        Args:
            counts: edges of each bucket.
            blocks: how many there are to be, about; None for as many as keep to `BLOCK_EDGES` and `BLOCK_NODES`.
        """
        starts = np.minimum(np.arange(len(counts) + 1, dtype=np.int64) * self.width, self.nodes)
        load = np.concatenate([[0], np.cumsum(counts / BLOCK_EDGES + np.diff(starts) / BLOCK_NODES)])
        wanted = blocks or int(np.ceil(load[-1]))
        inner = np.searchsorted(load, load[-1] * np.arange(1, wanted) / max(wanted, 1))
        firsts: NDArray[np.int64] = np.unique(np.concatenate([[0], starts[inner], [self.nodes]])).astype(np.int64)
        return firsts


class EdgePartSummary(NamedTuple):
    """Summary of the edges of a part.

    Args:
        dropped: edges with an end that is no node.
        dangling: of the first of these, its row in the part, which end that is (0 or 1), and its id.
        sources, targets: edges by buckets of their ends.
    """

    dropped: int
    dangling: tuple[int, int, str] | None
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]


def keep_edges(
    kept: TaskOutputs, items: Sequence[tuple[PartEndpoints, Buckets, Buckets]], task: int, sent: list[Any]
) -> EdgePartSummary:
    """Leave the edges of a part, as numbers of nodes and keys of rows, less those with an end that is no node."""
    item, source_buckets, target_buckets = items[task]
    sources, targets = numbers_of(item, sent)
    rows = np.arange(len(sources))
    bad = (sources == UNKNOWN) | (targets == UNKNOWN)
    dangling = None
    if bad.any():
        row = int(np.argmax(bad))
        end = 0 if sources[row] == UNKNOWN else 1
        dangling = (row, end, item.scan.ids()[end][row].as_py())
        sources, targets, rows = sources[~bad], targets[~bad], rows[~bad]
    table = pa.table({"source": sources, "target": targets, "row": row_keys(item.scan.number, rows)})
    kept.write(edges_name(item.item), table)
    return EdgePartSummary(
        int(bad.sum()), dangling, source_buckets.count_of(sources), target_buckets.count_of(targets)
    )  # fmt: skip


def edges_name(item: int) -> str:
    """Name of the edges of a part."""
    return f"edges/{item:06d}"


@dataclass(frozen=True)
class EdgeBlocks:
    """The blocks of an edge set.

    Args:
        number: of the set.
        firsts: first source of each block, and the number of sources.
        first: task of the first block.
        keeps_rows: rows of its table are needed later on, for features.
        part, part_rows: number of the first part of its table, and the row of the table with which each part begins.
    """

    number: int
    firsts: NDArray[np.int64]
    first: int
    keeps_rows: bool = False
    part: int = 0
    part_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.firsts) - 1

    def split(self, sources: NDArray[np.int32]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """(block, places in `sources` that belong there, in their order)."""
        block = np.searchsorted(self.firsts, sources, "right") - 1
        order = np.argsort(block, kind="stable")
        ends = np.searchsorted(block[order], np.arange(len(self) + 1))
        for place in range(len(self)):
            if ends[place] < ends[place + 1]:
                yield place, order[ends[place] : ends[place + 1]]


@dataclass(frozen=True)
class SendEdges:
    """Edges of a part that was looked up, to their blocks."""

    kept: TaskOutputs
    item: int
    blocks: EdgeBlocks


def send_edges(task: SendEdges) -> Iterator[tuple[int, Any]]:
    """The edges of a part, to their blocks: source in the block, target, key of the row."""
    table = task.kept.table(edges_name(task.item))
    sources, targets, rows = (table[name].to_numpy() for name in ("source", "target", "row"))
    for place, chosen in task.blocks.split(sources):
        begin = task.blocks.firsts[place]
        yield task.blocks.first + place, ((sources[chosen] - begin).astype(np.int32), targets[chosen], rows[chosen])


class Sorted(NamedTuple):
    """Edges of a block, and how many were left out since an earlier row is between the same nodes."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    merged: int


def sort_edges(kept: TaskOutputs, sets: Sequence[EdgeBlocks], first_only: bool, task: int, sent: list[Any]) -> Sorted:
    """Sort the edges of a block by (source, target, row), and leave its parts of the files."""
    blocks, place = block_of(sets, task)
    sources, targets, rows = (
        _concatenated([each[column] for each in sent], dtype) for column, dtype in enumerate("iil")
    )  # fmt: skip
    keys = _packed(sources, targets)
    order = np.argsort(keys, kind="stable")  # those of the same two nodes come in the order of their rows
    merged = 0
    if first_only and len(order):
        keys = keys[order]
        again = np.concatenate([[False], keys[1:] == keys[:-1]])
        order, merged = order[~again], int(again.sum())
    _write_block(kept, blocks, place, sources[order], targets[order])
    rows = rows[order]
    if blocks.keeps_rows:
        kept.write(rows_name("edges", blocks.number, place), rows)
    table_rows = blocks.part_rows[(rows >> ROW_BITS) - blocks.part] + (rows & ((1 << ROW_BITS) - 1))
    kept.write(block_name(blocks.number, "row", place), table_rows.astype("<i4"))
    return Sorted(len(order), merged)


@dataclass(frozen=True)
class Reverse:
    """A block of sorted edges, to the blocks of the sets that reverse it.

    Args:
        kept: what was left.
        blocks: of the set.
        place: of the block.
        base: position of its first edge.
        reversed_by: blocks of the other sets.
    """

    kept: TaskOutputs
    blocks: EdgeBlocks
    place: int
    base: int
    reversed_by: tuple[EdgeBlocks, ...]


def send_reversed(task: Reverse) -> Iterator[tuple[int, Any]]:
    """The edges of a block the other way round: source in its block, target, position."""
    number, place = task.blocks.number, task.place
    ends = task.kept.array(block_name(number, "indptr", place), np.int64)
    targets = task.kept.array(block_name(number, "indices", place), np.int32)
    lengths = np.diff(ends, prepend=0)
    sources = np.repeat(np.arange(len(ends), dtype=np.int32) + np.int32(task.blocks.firsts[place]), lengths)
    positions = np.arange(task.base, task.base + len(targets))
    for other in task.reversed_by:
        for block, chosen in other.split(targets):
            begin = other.firsts[block]
            yield other.first + block, ((targets[chosen] - begin).astype(np.int32), sources[chosen], positions[chosen])


def sort_reversed(kept: TaskOutputs, sets: Sequence[EdgeBlocks], task: int, sent: list[Any]) -> int:
    """Sort the edges of a block of a reversed set, and leave its parts of the files; how many they are."""
    blocks, place = block_of(sets, task)
    sources, targets, positions = (
        _concatenated([each[column] for each in sent], dtype) for column, dtype in enumerate("iil")
    )  # fmt: skip
    order = np.argsort(_packed(sources, targets), kind="stable")
    _write_block(kept, blocks, place, sources[order], targets[order])
    kept.write(block_name(blocks.number, "origin", place), positions[order])
    return len(order)


def block_of(sets: Sequence[EdgeBlocks], task: int) -> tuple[EdgeBlocks, int]:
    """The set of a task, and which of its blocks it has."""
    blocks = next(each for each in reversed(sets) if each.first <= task)
    return blocks, task - blocks.first


def block_name(number: int, file: str, place: int) -> str:
    """Name of a block's part of an edge set's file: `indptr` (where rows end there), `indices`, `origin` or `row`."""
    return f"blocks/{number:06d}-{file}-{place:06d}"


def _write_block(
    kept: TaskOutputs, blocks: EdgeBlocks, place: int, sources: NDArray[np.int32], targets: NDArray[np.int32]
) -> None:
    nodes = int(blocks.firsts[place + 1] - blocks.firsts[place])
    ends = np.cumsum(np.bincount(sources, minlength=nodes), dtype=np.int64)
    kept.write(block_name(blocks.number, "indptr", place), ends.astype("<i8"))
    kept.write(block_name(blocks.number, "indices", place), targets.astype("<i4"))


def _packed(sources: NDArray[np.int32], targets: NDArray[np.int32]) -> NDArray[np.uint64]:
    return (sources.astype(np.uint64) << np.uint64(32)) | targets.astype(np.uint64)


def _concatenated(parts: list[NDArray[Any]], dtype: str) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *parts])
