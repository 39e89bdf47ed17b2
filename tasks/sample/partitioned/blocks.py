"""Shards from what was drawn for them: the same blocks, in the same row groups, as in process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.storage.manifest import FileEntry
from superworkflow.tasks.lib.subgraphs.blocks import SubgraphBlock, shard_schema, shard_writer
from superworkflow.tasks.lib.subgraphs.shard_layout import GROUP_ENTRIES
from superworkflow.tasks.sample.partitioned.members import ShardNodes, members_of
from superworkflow.tasks.sample.partitioned.plan import SamplePlan, edge_ops
from superworkflow.tasks.sample.partitioned.requester import ShardSeeds, keys_of, subgraphs_of
from superworkflow.tasks.sample.sizes import Sizes


class ShardEdges(NamedTuple):
    """Edges of one set in consecutive subgraphs of a shard: keys of their sources and targets, and positions."""

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    positions: NDArray[np.int64]


def write_shard(plan: SamplePlan, shard: ShardSeeds) -> tuple[tuple[FileEntry, ...], Sizes]:
    """Write the file of a shard."""
    writer, sizes = TaskWriter(plan.kept.output), Sizes(plan.layout)
    members, read = members_of(plan, shard), _Edges(plan, shard)
    with writer.file(shard.name) as path:
        blocks = _grouped(_blocks(plan, shard, members, read))
        block = next(blocks)
        with shard_writer(path, shard_schema(block, plan.layout)) as write:
            while True:
                write(block)
                sizes.add(block)
                if (following := next(blocks, None)) is None:
                    break
                block = following
    return writer.entries, sizes


class _Edges:
    """All edges of a shard that were drawn or found, by edge set, one op after the other."""

    def __init__(self, plan: SamplePlan, shard: ShardSeeds):
        self._of: list[list[ShardEdges]] = []
        for number in range(len(plan.edge_sets)):
            if plan.by_node:
                table = plan.kept.table(shard.kept("joined", number))
                joined = ShardEdges(*(table[name].to_numpy() for name in ("source", "target", "position")))
                order = np.argsort(joined.sources, kind="stable")
                self._of.append([ShardEdges(*(each[order] for each in joined))])
            else:
                self._of.append([self._drawn(plan, shard, op.number) for op in edge_ops(plan, number)])

    @staticmethod
    def _drawn(plan: SamplePlan, shard: ShardSeeds, op: int) -> ShardEdges:
        rows, edges = (plan.kept.table(shard.kept(what, op)) for what in ("rows", "edges"))
        sources = np.repeat(rows["key"].to_numpy(), rows["edges"].to_numpy())
        targets = keys_of(subgraphs_of(sources), edges["target"].to_numpy())
        return ShardEdges(sources, targets, edges["position"].to_numpy().astype(np.int64))

    def counts(self, subgraphs: int) -> NDArray[np.int64]:
        """Counts of each subgraph, of all sets and ops."""
        total = np.zeros(subgraphs, np.int64)
        for parts in self._of:
            for each in parts:
                total += np.bincount(subgraphs_of(each.sources), minlength=subgraphs)
        return total

    def part(self, number: int, first: int, last: int) -> ShardEdges:
        """Those of one set in subgraphs `first` to `last - 1`, each once."""
        parts = []
        for each in self._of[number]:
            a, b = np.searchsorted(each.sources, keys_of(np.array([first, last]), np.zeros(2)))
            parts.append(ShardEdges(*(column[a:b] for column in each)))
        none = np.zeros(0, np.int64)
        joined = ShardEdges(*(np.concatenate([none, *columns]) for columns in zip(*parts, strict=True)))
        if len(parts) < 2:
            return joined
        once = np.unique(keys_of(subgraphs_of(joined.sources), joined.positions), return_index=True)[1]
        return ShardEdges(*(column[once] for column in joined))


def _blocks(plan: SamplePlan, shard: ShardSeeds, members: list[ShardNodes], read: _Edges) -> Iterator[SubgraphBlock]:
    """The subgraphs of a shard in blocks, each of about as many entries as a row group has."""
    subgraphs = len(shard.seeds.nodes)
    before = np.cumsum(read.counts(subgraphs))
    first = 0
    while first < subgraphs:
        done = before[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(before, done + GROUP_ENTRIES, "right")))
        yield _block(plan, shard, members, read, first, last)
        first = last


def _block(
    plan: SamplePlan, shard: ShardSeeds, members: list[ShardNodes], read: _Edges, first: int, last: int
) -> SubgraphBlock:  # fmt: skip
    count, seeds, layout = last - first, shard.seeds.part(first, last), plan.layout
    none, node, place, position = np.zeros(count + 1, np.int64), plan.node_type, np.int32, plan.position_type
    numbers = seeds.nodes.astype(node)
    block = SubgraphBlock(
        seeds.ids, numbers[:, 0] if numbers.shape[1] == 1 else numbers,
        [none] * layout.node_sets, [np.zeros(0, node)] * layout.node_sets,
        [none] * layout.edge_sets, [np.zeros(0, place)] * layout.edge_sets,
        [np.zeros(0, place)] * layout.edge_sets, [np.zeros(0, position)] * layout.edge_sets,
    )  # fmt: skip
    for slot, number in enumerate(layout.used_nodes):
        starts = members[slot].starts[first : last + 1]
        block.node_starts[number] = starts - starts[0]
        block.nodes[number] = members[slot].nodes[starts[0] : starts[-1]]
    for slot, edges in enumerate(plan.edge_sets):
        there = read.part(slot, first, last)
        subgraphs = subgraphs_of(there.sources)
        sources = members[edges.source].places(there.sources)
        targets = members[edges.target].places(there.targets)
        order = np.lexsort((there.positions, targets, keys_of(subgraphs, sources)))
        counts = np.bincount(subgraphs - first, minlength=count)
        block.edge_starts[edges.number] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        block.sources[edges.number] = sources[order].astype(place)
        block.targets[edges.number] = targets[order].astype(place)
        block.positions[edges.number] = there.positions[order].astype(position)
    return block


def _grouped(blocks: Iterator[SubgraphBlock]) -> Iterator[SubgraphBlock]:
    """The same subgraphs in blocks that end with the subgraph with which they have `GROUP_ENTRIES` entries."""
    waiting: SubgraphBlock | None = None
    for block in blocks:
        waiting = block if waiting is None else _joined(waiting, block)
        while (end := _full(waiting)) is not None:
            yield _part(waiting, 0, end)
            waiting = _part(waiting, end, waiting.subgraphs)
    if waiting is not None and waiting.subgraphs:
        yield waiting


def _full(block: SubgraphBlock) -> int | None:
    """The subgraphs with which a row group is full."""
    entries = sum((starts for starts in (*block.node_starts, *block.edge_starts)), np.zeros(1, np.int64))
    end = int(np.searchsorted(entries[1:], GROUP_ENTRIES)) + 1
    return end if end <= block.subgraphs else None


def _part(block: SubgraphBlock, first: int, last: int) -> SubgraphBlock:
    def values(starts: NDArray[np.int64], column: NDArray[Any]) -> NDArray[Any]:
        return column[starts[first] : starts[last]]

    def lists(starts: list[NDArray[np.int64]], columns: list[NDArray[Any]]) -> list[NDArray[Any]]:
        return [values(begin, column) for begin, column in zip(starts, columns, strict=True)]

    def begins(starts: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        return [each[first : last + 1] - each[first] for each in starts]

    return SubgraphBlock(
        block.sample_ids[first:last], block.seeds[first:last], begins(block.node_starts),
        lists(block.node_starts, block.nodes), begins(block.edge_starts), lists(block.edge_starts, block.sources),
        lists(block.edge_starts, block.targets), lists(block.edge_starts, block.positions),
    )  # fmt: skip


def _joined(one: SubgraphBlock, other: SubgraphBlock) -> SubgraphBlock:
    import pyarrow as pa

    def begins(a: list[NDArray[np.int64]], b: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        return [np.concatenate([x, y[1:] + x[-1]]) for x, y in zip(a, b, strict=True)]

    def lists(a: list[NDArray[Any]], b: list[NDArray[Any]]) -> list[NDArray[Any]]:
        return [np.concatenate([x, y]) for x, y in zip(a, b, strict=True)]

    return SubgraphBlock(
        pa.concat_arrays([one.sample_ids, other.sample_ids]), np.concatenate([one.seeds, other.seeds]),
        begins(one.node_starts, other.node_starts), lists(one.nodes, other.nodes),
        begins(one.edge_starts, other.edge_starts), lists(one.sources, other.sources),
        lists(one.targets, other.targets), lists(one.positions, other.positions),
    )  # fmt: skip
