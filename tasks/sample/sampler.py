"""Subgraphs of a heterograph around seeds, in memory: what the stage stores, and what is sampled on demand."""

from __future__ import annotations

import mmap
import threading
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph, index_dtype
from superworkflow.tasks.lib.kernels.huge_pages import on_huge_pages, small_pages
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.subgraphs.blocks import SubgraphBlock, SubgraphLayout
from superworkflow.tasks.sample.kernel import NO_VALUES, SEED_OP, Out, Program, Seeds, StackedRows, sample
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.spec import READOUT, STRATEGIES, Op, SamplingSpec

load_kernels_fast()

FIRST_ROOM = 1 << 20
"""Nodes, and edges, of a set for which the first call makes room; what is not filled takes no memory."""
MOST_ENTRIES = 1 << 62
WEIGHT, TIMESTAMP = "weight", "timestamp"


class SeedRows(NamedTuple):
    """Rows of seeds, a subgraph each.

    Args:
        ids: of the samples, string [b].
        nodes: numbers in the seeds' set, [b, 1], of links [b, 2].
        times: latest timestamp of what is sampled, int64 [b].
        repeats: which of a seed's samples it is, int64 [b].
    """

    ids: pa.Array
    nodes: NDArray[Any]
    times: NDArray[np.int64]
    repeats: NDArray[np.int64]

    def part(self, first: int, last: int) -> SeedRows:
        """Subgraphs `first` to `last - 1`."""
        return SeedRows(
            self.ids[first:last], self.nodes[first:last], self.times[first:last], self.repeats[first:last]
        )  # fmt: skip

    def take(self, places: NDArray[Any]) -> SeedRows:
        """Subgraphs in another order, or some of them."""
        return SeedRows(
            self.ids.take(pa.array(places)), self.nodes[places], self.times[places], self.repeats[places]
        )  # fmt: skip


class SpecSampler:
    """Samples subgraphs; threads may share one.

    Args:
        graph: to sample from. Rows of the edge sets in use are copied to memory.
        spec: how.
        params: the other rules.

    Raises:
        UserError: the spec does not fit the graph, or an edge set has no timestamps, or weights that are none.
    """

    def __init__(self, graph: HeteroGraph, spec: SamplingSpec, params: SampleParams):
        self.spec = spec.sized(params.size_factor, params.sizes).fitted(graph.node_sets, graph.edge_sets)
        self._seed = np.uint64(params.seed)
        node_sets, edge_sets = used_sets(graph, self.spec, params.aggregation == "node")
        self.layout = SubgraphLayout(
            len(graph.node_sets), len(graph.edge_sets),
            tuple(map(graph.node_number, node_sets)), tuple(map(graph.edge_number, edge_sets)),
        )  # fmt: skip
        self.rows, edges = _read_rows(graph, self.spec, node_sets, edge_sets)
        self._node_type = self.rows.indices.dtype
        most = max((graph.edge_sets[name].count for name in edge_sets), default=0)
        self._position_type = np.dtype(np.int32 if most < 2**31 else np.int64)
        self.program = _program(graph, self.spec, params, node_sets, edge_sets, edges)
        self._kept = threading.local()

    def block(self, seeds: SeedRows, most: int = MOST_ENTRIES, *, copied: bool = True) -> SubgraphBlock:
        """The subgraphs of these seeds, in their order.

        Args:
            seeds: of this graph.
            most: nodes and edges with which it is enough: the subgraph that reaches this number is the last one.
            copied: False where the block is done with before this thread asks for the next one, which may take its
                memory.

        Raises:
            ValueError: a seed is none of the nodes of its set.
        """
        total = len(seeds.ids)
        nodes_there = int(self.program.counts[self.program.options[0]])
        if seeds.nodes.size and not 0 <= int(seeds.nodes.min()) <= int(seeds.nodes.max()) < nodes_there:
            raise ValueError(f"a seed is none of the {nodes_there} nodes of its set")
        # Copies: for arrays that may not be written to, the kernel would be compiled once more.
        given = Seeds(
            np.array(seeds.nodes, self._node_type, order="C"), np.array(seeds.times), np.array(seeds.repeats)
        )  # fmt: skip
        nodes: list[list[NDArray[Any]]] = [[] for _ in self.layout.used_nodes]
        edges: list[list[tuple[NDArray[Any], ...]]] = [[] for _ in self.layout.used_edges]
        starts = [np.zeros((len(used), total + 1), np.int64) for used in (nodes, edges)]
        done, entries = 0, 0
        while done < total and entries < most:
            out = self._out(total - done)
            count, needed, more = sample(self.rows, self.program, given, done, total, self._seed, most - entries, out)
            for each, sizes in zip(starts, (out.node_starts, out.edge_starts), strict=True):
                each[:, done + 1 : done + count + 1] = each[:, done : done + 1] + sizes[:, 1 : count + 1]
            done, entries = done + count, entries + more
            is_last = done == total or entries >= most
            for i, parts in enumerate(nodes):
                parts.append(_kept(out.nodes[i, : out.node_starts[i, count]], copied or not is_last))
            for j, columns in enumerate(edges):
                ends = (each[j, : out.edge_starts[j, count]] for each in (out.sources, out.targets, out.positions))
                columns.append(tuple(_kept(each, copied or not is_last) for each in ends))
            if needed and not count:
                self._kept.room = max(2 * self._kept.room, 1 << int(needed - 1).bit_length())
        made = seeds.part(0, done)
        return self._block(made, given.nodes[:done], [each[:, : done + 1] for each in starts], nodes, edges)

    def _block(self, seeds: SeedRows, numbers: NDArray[Any], starts: Any, nodes: Any, edges: Any) -> SubgraphBlock:
        none = np.zeros(len(seeds.ids) + 1, np.int64)
        empty = {kind: np.zeros(0, kind) for kind in (self._node_type, self._position_type, np.dtype(np.int32))}
        block = SubgraphBlock(
            seeds.ids, numbers[:, 0] if numbers.shape[1] == 1 else numbers,
            [none] * self.layout.node_sets, [empty[self._node_type]] * self.layout.node_sets,
            [none] * self.layout.edge_sets, [empty[np.dtype(np.int32)]] * self.layout.edge_sets,
            [empty[np.dtype(np.int32)]] * self.layout.edge_sets, [empty[self._position_type]] * self.layout.edge_sets,
        )  # fmt: skip
        for slot, i in enumerate(self.layout.used_nodes):
            block.node_starts[i], block.nodes[i] = starts[0][slot], _joined(nodes[slot], self._node_type)
        for slot, j in enumerate(self.layout.used_edges):
            columns = list(zip(*edges[slot], strict=True)) or [(), (), ()]
            block.edge_starts[j] = starts[1][slot]
            block.sources[j], block.targets[j] = (_joined(parts, np.dtype(np.int32)) for parts in columns[:2])
            block.positions[j] = _joined(columns[2], self._position_type)
        return block

    def _out(self, subgraphs: int) -> Out:
        """Room that this thread keeps for its next call."""
        nodes, edges = len(self.layout.used_nodes), len(self.layout.used_edges)
        kept: Out | None = getattr(self._kept, "out", None)
        room: int = getattr(self._kept, "room", FIRST_ROOM)
        if kept is None or kept.nodes.shape[1] < room:
            with small_pages():  # of which only those that are filled take memory
                columns = [np.empty((edges, room), dtype) for dtype in (np.int32, np.int32, self._position_type)]
                none = np.zeros((0, 0), np.int64)
                kept = Out(none, np.empty((nodes, room), self._node_type), none, *columns)
            self._kept.room, self._kept.out = room, kept
        sizes = (np.zeros((each, subgraphs + 1), np.int64) for each in (nodes, edges))
        return kept._replace(node_starts=next(sizes), edge_starts=next(sizes))


def used_sets(graph: HeteroGraph, spec: SamplingSpec, by_node: bool) -> tuple[list[str], list[str]]:
    """Names of the node sets and edge sets that subgraphs may hold, in the order of their numbers."""
    nodes = {spec.node_set} | {graph.edge_sets[op.edge_set].target for op in spec.ops}
    edges = {op.edge_set for op in spec.ops}
    if by_node:
        edges = {
            each.name
            for each in graph.edge_sets.values()
            if {each.source, each.target} <= nodes and not each.name.startswith(READOUT)
        }
    return [name for name in graph.node_sets if name in nodes], [name for name in graph.edge_sets if name in edges]


def _kept(part: NDArray[Any], copied: bool) -> NDArray[Any]:
    return part.copy() if copied else part


def _joined(parts: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, dtype), *parts])


def _read_rows(
    graph: HeteroGraph, spec: SamplingSpec, node_sets: list[str], edge_sets: list[str]
) -> tuple[StackedRows, NDArray[np.int64]]:
    """Rows of the edge sets in use, and `Program.edges`."""
    used = [graph.edge_sets[name] for name in edge_sets]
    drawn, ranked, timed = (
        {op.edge_set: op for op in spec.ops if op.strategy == strategy}
        for strategy in ("RANDOM_WEIGHTED", "TOP_K", "LATEST_K")
    )
    weights = {name: _weights(graph, name, op) for name, op in drawn.items() if _has(graph, name, WEIGHT)}
    ranks = {name: _ranks(graph, name, op) for name, op in ranked.items()}
    times = {name: _times(graph, spec, name, op) for name, op in timed.items()}
    total = sum(each.count for each in used)
    indptr = np.empty(sum(graph.node_sets[each.source].count + 1 for each in used), np.int64)
    indices = np.empty(total, index_dtype(max(each.count for each in graph.node_sets.values())))
    edges = np.full((len(used), 7), NO_VALUES, np.int64)
    row = first = 0
    taken = [0, 0, 0]
    for number, each in enumerate(used):
        rows = graph.rows(each.name)
        edges[number, :4] = row, first, node_sets.index(each.source), node_sets.index(each.target)
        for place, names in enumerate((weights.keys(), ranks.keys(), times.keys())):
            if each.name in names:
                edges[number, 4 + place] = taken[place] - first
                taken[place] += each.count
        np.add(rows.indptr, first, out=indptr[row : row + len(rows.indptr)])
        indices[first : first + each.count] = rows.indices
        for array in rows:
            _drop_pages(array)
        row, first = row + len(rows.indptr), first + each.count
    for array in (indptr, indices):
        on_huge_pages(array)
    flat = np.concatenate([np.zeros(0, np.float32), *(weights[name] for name in edge_sets if name in weights)])
    order, stamps = (
        np.concatenate([np.zeros(0, np.int64), *(values[name] for name in edge_sets if name in values)])
        for values in (ranks, times)
    )
    return StackedRows(indptr, indices, flat, order, stamps), edges


def _drop_pages(array: NDArray[Any]) -> None:
    """Give back the memory of a mapped file that was read; who reads it again gets it from the file."""
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _program(
    graph: HeteroGraph,
    spec: SamplingSpec,
    params: SampleParams,
    node_sets: list[str],
    edge_sets: list[str],
    edges: NDArray[np.int64],
) -> Program:
    names = [op.name for op in spec.ops]
    ops = [(edge_sets.index(op.edge_set), op.size, STRATEGIES.index(op.strategy)) for op in spec.ops]
    inputs = [[SEED_OP if each == spec.seed_op else names.index(each) for each in op.inputs] for op in spec.ops]
    options = [
        node_sets.index(spec.node_set), params.inputs == "path", params.aggregation == "node", 1 + spec.is_link
    ]  # fmt: skip
    return Program(
        np.array(ops, np.int64).reshape(-1, 3),
        np.cumsum([0, *map(len, inputs)], dtype=np.int64),
        np.array([each for given in inputs for each in given], np.int64),
        edges,
        np.array([graph.node_sets[name].count for name in node_sets], np.int64),
        np.array(options, np.int64),
    )


def _has(graph: HeteroGraph, edge_set: str, feature: str) -> bool:
    return any(each.name == feature for each in graph.edge_sets[edge_set].features)


def _weights(graph: HeteroGraph, edge_set: str, op: Op) -> NDArray[np.float32]:
    """Weights of an edge set, float32 as in TFRecords."""
    values = graph.edge_feature(edge_set, WEIGHT)
    count = graph.edge_sets[edge_set].count
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu" or values.size != count:
        raise no_weights(op)
    weights: NDArray[np.float32] = values.reshape(-1).astype(np.float32) + np.float32(0)  # no zero is below another one
    fault = bad_weight(weights, 0, weights_of(op))
    if fault is not None:
        raise fault
    return weights


def _ranks(graph: HeteroGraph, edge_set: str, op: Op) -> NDArray[np.int64]:
    """Numbers in the order of weights, all 1 where there are none; of equal ones in that of the rows of the table."""
    rows = graph.table_rows(edge_set)
    if not _has(graph, edge_set, WEIGHT):
        return rows.astype(np.int64)
    # Weights, of which none is negative, are in the order of their bytes; rows are below 2**31.
    ranks: NDArray[np.int64] = _weights(graph, edge_set, op).view(np.int32).astype(np.int64) << 31
    ranks |= rows
    return ranks


def weights_of(op: Op) -> str:
    """The weights by which an op draws, for people."""
    return f"op {op.name}, edge set {op.edge_set}, feature {WEIGHT}"


def no_weights(op: Op) -> UserError:
    """The error for a feature that is none of weights."""
    return UserError(
        "weights are one number for each edge", where=weights_of(op), remedy="Correct the feature in the schema"
    )


def bad_weight(weights: NDArray[np.float32], first: int, where: str) -> UserError | None:
    """The error for the first weight that is none; those given are of the edges from position `first` on."""
    for what, bad in (("a weight is not a number", np.isnan(weights)), ("a weight is negative", weights < 0)):
        if bad.any():
            edge = int(np.argmax(bad))
            return UserError(
                f"{what}, at position {first + edge}", where=where, value=float(weights[edge]),
                remedy="Correct the table, or sample by another strategy",
            )  # fmt: skip
    return None


def no_timestamps(spec: SamplingSpec, op: Op) -> UserError:
    """The error for an edge set without them."""
    return UserError(
        f"edge set {op.edge_set!r} has no feature {TIMESTAMP}, which LATEST_K sorts by",
        where=f"{spec.where}, op {op.name}",
        remedy="Add it to the schema and the table, as int64, or take another strategy",
    )


def bad_timestamps(spec: SamplingSpec, op: Op) -> UserError:
    """The error for a feature that is none of timestamps."""
    return UserError(
        f"timestamps are one integer for each edge, in edge set {op.edge_set!r}",
        where=f"{spec.where}, op {op.name}",
        remedy="Correct the feature in the schema",
    )


def _times(graph: HeteroGraph, spec: SamplingSpec, edge_set: str, op: Op) -> NDArray[np.int64]:
    if not _has(graph, edge_set, TIMESTAMP):
        raise no_timestamps(spec, op)
    values = graph.edge_feature(edge_set, TIMESTAMP)
    count = graph.edge_sets[edge_set].count
    if not isinstance(values, np.ndarray) or values.dtype.kind != "i" or values.size != count:
        raise bad_timestamps(spec, op)
    return values.reshape(-1).astype(np.int64)
