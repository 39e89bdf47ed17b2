"""Edges of an index in parts: merged, numbered, trimmed, and sorted into blocks of rows, by the tasks of exchanges.

Ids have two numbers: their rank by label, by which they are merged, and their final one, by degree. Ranks ascend with
labels, so that the smaller of two is the smaller by label too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.tasks.index.row_parts import RowPart
from superworkflow.tasks.index.trim import dropped, edge_rank
from superworkflow.tasks.lib.graph import csr
from superworkflow.tasks.lib.graph.graph_writer import VERTICES
from superworkflow.tasks.lib.in_parts.id_ranges import PartEndpoints, ids_name, numbers_of
from superworkflow.tasks.lib.in_parts.task_outputs import TaskOutputs
from superworkflow.tasks.lib.kernels.arrays import distinct
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()
RULES = {"sum": csr.SUM, "max": csr.MAX, "min": csr.MIN, "error": csr.MAX}
_WEIGHT = np.dtype(np.float32)
Sent = Iterator[tuple[int, Any]]


@dataclass(frozen=True)
class EdgeWork:
    """Settings and files that all tasks know.

    Args:
        kept: what was left.
        directed, weighted: of the graph.
        rule: for the weight of an edge with several rows, of `RULES`.
        tasks: that have edges, by a hash of them.
        bases: rank of the first id of each range, and their number.
        max_degree, seed: of the stage; no limit if None.
    """

    kept: TaskOutputs
    directed: bool
    weighted: bool
    rule: int
    tasks: int
    bases: NDArray[np.int64]
    max_degree: int | None
    seed: int

    def edges(self, task: int) -> csr.Edges:
        """Packed edges that a task has: by ranks, and by final numbers once they were numbered."""
        return self.kept.array(f"edges/{task:06d}", np.uint64)

    def weights(self, task: int) -> csr.Weights | None:
        """Their weights."""
        return self.kept.array(f"edge-weights/{task:06d}", _WEIGHT) if self.weighted else None

    def leave(self, task: int, edges: csr.Edges, weights: csr.Weights | None) -> None:
        """Leave the edges of a task."""
        self.kept.write(f"edges/{task:06d}", edges)
        if weights is not None:
            self.kept.write(f"edge-weights/{task:06d}", weights)

    def by_range(self, ranks: NDArray[np.int64]) -> Iterator[tuple[int, slice]]:
        """(range, places of its ids) of ascending ranks."""
        ends = np.searchsorted(ranks, self.bases)
        for place, (begin, end) in enumerate(itertools.pairwise(ends)):
            if begin < end:
                yield place, slice(begin, end)


def ends_of(edges: csr.Edges) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sources and targets of packed edges."""
    return (edges >> np.uint64(32)).astype(np.int64), (edges & np.uint64(0xFFFFFFFF)).astype(np.int64)


def scattered(to: NDArray[Any], *columns: NDArray[Any] | None) -> Sent:
    """Rows of columns to their tasks, in their order."""
    order = np.argsort(to, kind="stable")
    tasks, begins = np.unique(to[order], return_index=True)
    for task, chosen in zip(tasks.tolist(), np.split(order, begins[1:]), strict=False):  # without rows one is empty
        yield task, tuple(None if each is None else each[chosen] for each in columns)


def gathered(sent: Sequence[Any], *dtypes: Any) -> list[NDArray[Any]]:
    """Columns of rows that were sent, one behind the other."""
    return [
        np.concatenate([np.zeros(0, dtype), *(each[column] for each in sent)]) for column, dtype in enumerate(dtypes)
    ]


def send_rows(work: EdgeWork, items: Sequence[tuple[PartEndpoints, RowPart]], task: int, sent: list[Any]) -> Sent:
    """Rows of a part, whose ids were looked up, to the tasks that have their edges."""
    item, part = items[task]
    source, target = numbers_of(item, sent)
    weights = work.kept.array(part.weights_name, _WEIGHT) if work.weighted else None
    keys = (
        csr.pack(source, target) if work.directed else csr.pack(np.minimum(source, target), np.maximum(source, target))
    )
    yield from scattered(edge_rank(keys, 0) % np.uint64(work.tasks), keys, weights)


class Merged(NamedTuple):
    """Edges of a task, rows that are self-loops, and the first edge whose weight is beyond a float."""

    edges: int
    self_loops: int
    heavy: int | None


def merge_rows(work: EdgeWork, task: int, sent: list[Any]) -> Merged:
    """Merge the rows of equal edges, and leave the edges."""
    keys, *weights = gathered(sent, np.uint64, *([_WEIGHT] if work.weighted else []))
    if not len(keys):
        work.leave(task, keys, weights[0] if weights else None)
        return Merged(0, 0, None)
    ends = np.stack(ends_of(keys), axis=1).astype(np.int32)
    edges, merged, loops, _ = csr.merge_edges(ends, weights[0] if weights else None, work.directed, work.rule, 1)
    heavy = None
    if merged is not None and not np.isfinite(merged).all():
        heavy = int(edges[~np.isfinite(merged)].min())
    work.leave(task, edges, merged)
    return Merged(len(edges), int(loops), heavy)


def send_degrees(work: EdgeWork, task: int) -> Sent:
    """Counts of each id as the source and as the target of a task's edges, to the ranges of ids."""
    for end, side in enumerate(ends_of(work.edges(task))):
        ranks, counts = np.unique(side, return_counts=True)
        for place, chosen in work.by_range(ranks):
            yield place, (end, ranks[chosen] - work.bases[place], counts[chosen])


class Degrees(NamedTuple):
    """Different degrees in a range of ids, ascending, how many ids have each; the longest row, rows above the limit."""

    values: NDArray[np.int64]
    counts: NDArray[np.int64]
    longest: int
    above: int


def count_degrees(work: EdgeWork, place: int, sent: list[Any]) -> Degrees:
    """Leave the degrees of the ids of a range."""
    ends = np.zeros((2, int(work.bases[place + 1] - work.bases[place])), np.int64)
    for end, ids, counts in sent:
        ends[end, ids] += counts
    degree = ends.sum(axis=0)
    lengths = ends[0] if work.directed else degree
    limit = work.max_degree if work.max_degree is not None else np.iinfo(np.int64).max
    work.kept.write(f"degrees/{place:06d}", degree)
    work.kept.write(f"hubs/{place:06d}", lengths > limit)
    values, found = np.unique(degree, return_counts=True)
    return Degrees(values, found, int(lengths.max(initial=0)), int((lengths > limit).sum()))


def first_numbers(ranges: Sequence[Degrees]) -> list[NDArray[np.int64]]:
    """Final number of the first id of each degree of each range: by degree from the highest, then by label."""
    values = distinct(np.concatenate([each.values for each in ranges]))
    totals, before = np.zeros(len(values), np.int64), []
    for each in ranges:
        place = np.searchsorted(values, each.values)
        before.append(totals[place])
        totals[place] += each.counts
    firsts = totals.sum() - np.cumsum(totals)
    return [firsts[np.searchsorted(values, each.values)] + there for each, there in zip(ranges, before, strict=True)]


def final_numbers(work: EdgeWork, place: int, firsts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Final numbers of the ids of a range, in the order of their labels."""
    degree = work.kept.array(f"degrees/{place:06d}", np.int64)
    _, which, counts = np.unique(degree, return_inverse=True, return_counts=True)
    order = np.argsort(which, kind="stable")
    numbers = np.empty(len(degree), np.int64)
    numbers[order] = np.arange(len(degree)) + np.repeat(firsts - (np.cumsum(counts) - counts), counts)
    return numbers


def send_ranks(work: EdgeWork, task: int) -> Sent:
    """The different ids of a task's edges, to their ranges."""
    ranks = distinct(np.concatenate(ends_of(work.edges(task))))
    for place, chosen in work.by_range(ranks):
        yield place, (task, ranks[chosen] - work.bases[place])


def answer(work: EdgeWork, firsts: Sequence[NDArray[np.int64]], place: int, sent: list[Any]) -> Sent:
    """Final numbers of ids, and whether their rows are above the limit, back to who asks; in the order of ranges."""
    numbers, hubs = final_numbers(work, place, firsts[place]), work.kept.array(f"hubs/{place:06d}", np.bool_)
    for task, ids in sent:
        yield task, (numbers[ids], hubs[ids])


def renumber(work: EdgeWork, task: int, sent: list[Any]) -> int:
    """Leave a task's edges by final numbers; and those of vertices above the limit, as places and their owners."""
    edges = work.edges(task)
    sides = ends_of(edges)
    ranks = distinct(np.concatenate(sides))
    numbers, hubs = gathered(sent, np.int64, np.bool_)
    places = [np.searchsorted(ranks, side) for side in sides]
    first, second = (numbers[place] for place in places)
    if not work.directed:
        first, second = np.minimum(first, second), np.maximum(first, second)
    work.kept.write(f"numbered/{task:06d}", csr.pack(first, second))
    owned = [np.flatnonzero(hubs[place]) for place in places[: 1 if work.directed else 2]]
    owners = [numbers[place[chosen]] for place, chosen in zip(places, owned, strict=False)]
    work.kept.write(f"owned/{task:06d}", np.stack([np.concatenate(owned), np.concatenate(owners)]).astype(np.int64))
    return len(edges)


def numbered(work: EdgeWork, task: int) -> csr.Edges:
    """Edges of a task by final numbers."""
    return work.kept.array(f"numbered/{task:06d}", np.uint64)


def send_owned(work: EdgeWork, task: int) -> Sent:
    """Edges of vertices above the limit, to the tasks that choose for these."""
    places, owners = work.kept.array(f"owned/{task:06d}", np.int64).reshape(2, -1)
    yield from scattered(owners % work.tasks, owners, numbered(work, task)[places], places, np.full(len(places), task))


def choose(work: EdgeWork, task: int, sent: list[Any]) -> Sent:
    """Places of edges that vertices drop, back to the tasks that have them."""
    owners, edges, places, tasks = gathered(sent, np.int64, np.uint64, np.int64, np.int64)
    chosen = dropped(owners, edges, work.max_degree or 0, work.seed)
    yield from scattered(tasks[chosen], places[chosen])


def drop(work: EdgeWork, task: int, sent: list[Any]) -> int:
    """Leave a task's edges without those that are dropped; how many these are."""
    [places] = gathered(sent, np.int64)
    stays = np.ones(len(numbered(work, task)), bool)
    stays[places] = False
    work.kept.write(f"stays/{task:06d}", stays)
    return int((~stays).sum())


@dataclass(frozen=True)
class Blocks:
    """Blocks of rows.

    Args:
        work: of the stage.
        firsts: first vertex of each block, and their number.
        numbers: see `first_numbers`.
        trimmed: some edges are dropped.
    """

    work: EdgeWork
    firsts: NDArray[np.int64]
    numbers: Sequence[NDArray[np.int64]]
    trimmed: bool

    def of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Block of each vertex."""
        return np.searchsorted(self.firsts, numbers, "right") - 1


def cut_blocks(ranges: Sequence[Degrees], most_arcs: int, most_vertices: int) -> NDArray[np.int64]:
    """First vertex of each block, and the number of vertices; a row is never cut, and its length at most the degree."""
    values = distinct(np.concatenate([each.values for each in ranges]))[::-1]
    counts = sum(np.bincount(np.searchsorted(-values, -each.values), each.counts, len(values)) for each in ranges)
    vertices = np.concatenate([[0], np.cumsum(counts)])
    load = np.concatenate([[0], np.cumsum(counts * (values / most_arcs + 1 / most_vertices))])
    inner = np.interp(np.linspace(0, load[-1], int(np.ceil(load[-1])) + 1), load, vertices)
    return np.unique(np.rint(inner).astype(np.int64))


def send_arcs(blocks: Blocks, item: tuple[str, int]) -> Sent:
    """Arcs of a task's edges, and vertices of a range of ids, to their blocks."""
    work, (kind, number) = blocks.work, item
    if kind == "ids":
        ids = work.kept.table(ids_name(0, number)).column(0).combine_chunks()
        vertices = final_numbers(work, number, blocks.numbers[number])
        for block, (chosen,) in scattered(blocks.of(vertices), np.arange(len(vertices))):
            yield block, ("ids", vertices[chosen], ids.take(pa.array(chosen)))
        return
    edges, weights = numbered(work, number), work.weights(number)
    if blocks.trimmed:
        stays = work.kept.array(f"stays/{number:06d}", np.bool_)
        edges, weights = edges[stays], None if weights is None else weights[stays]
    first, second = ends_of(edges)
    for source, target in [(first, second)] if work.directed else [(first, second), (second, first)]:
        for block, columns in scattered(blocks.of(source), csr.pack(source, target), weights):
            yield block, ("arcs", *columns)
    if work.directed:
        targets, counts = np.unique(second, return_counts=True)
        for block, columns in scattered(blocks.of(targets), targets, counts):
            yield block, ("entering", *columns)


class BlockFacts(NamedTuple):
    """Arcs of a block, its longest row, vertices without edges, without arcs, and of the first of two sides."""

    arcs: int
    longest: int
    isolated: int
    sinks: int
    sources: int


def write_block(blocks: Blocks, side: str, place: int, sent: list[Any]) -> BlockFacts:
    """Sort the arcs and the vertices of a block, and leave its parts of the files.

    Args:
        blocks: all of them.
        side: prefix of the first side's labels; empty where there is one side.
        place: of the block.
        sent: see `send_arcs`.
    """
    work, begin = blocks.work, int(blocks.firsts[place])
    by_kind = {kind: [each[1:] for each in sent if each[0] == kind] for kind in ("ids", "arcs", "entering")}
    arcs, *weights = gathered(by_kind["arcs"], np.uint64, *([_WEIGHT] if work.weighted else []))
    order = np.argsort(arcs)
    source, target = ends_of(arcs[order])
    lengths = np.bincount(source - begin, minlength=int(blocks.firsts[place + 1]) - begin)
    degree = lengths.astype(np.int64)
    for vertices, counts in by_kind["entering"]:
        degree[vertices - begin] += counts
    [vertices] = gathered(by_kind["ids"], np.int64)
    labels = pa.concat_arrays([each for _, each in by_kind["ids"]]).take(pa.array(np.argsort(vertices)))
    write = partial(_write, work.kept, place)
    write("indptr", np.cumsum(lengths).astype("<i8"))
    write("indices", target.astype("<i4"))
    if work.weighted:
        write("weights", weights[0][order].astype("<f4"))
    write("vertices", pa.table([labels, degree], VERTICES))
    sources = pc.sum(pc.starts_with(labels, side)).as_py() if side else 0
    return BlockFacts(
        len(arcs), int(lengths.max(initial=0)), int((degree == 0).sum()), int((lengths == 0).sum()), sources
    )  # fmt: skip


def part_name(file: str, place: int) -> str:
    """Name of a block's part of a file."""
    return f"blocks/{file}-{place:06d}"


def _write(kept: TaskOutputs, place: int, file: str, values: Any) -> None:
    kept.write(part_name(file, place), values)
