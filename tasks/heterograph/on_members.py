"""The stage heterograph on the members of an engine: the same files.

No task holds more than a part of a table or a range of a set.

1. Each part of a table is read, and its ids are left in the dataset's folder.
2. Ids go to ranges by their bytes, where they are sorted; a node's number is its place in its range and those before.
3. Edges ask the ranges for the numbers of their ends.
4. They go to blocks by their sources, where they are sorted; from there, to blocks of the sets that reverse them.
5. Features go from the parts of tables to the ranges and blocks.
6. A task for each file joins its parts.

The driver holds sizes, bounds of ranges, and samples of ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.task_session import Step, TaskSession, open_tasks
from superworkflow.tasks.heterograph import HeterographParams
from superworkflow.tasks.heterograph.edge_blocks import (
    Buckets,
    EdgeBlocks,
    EdgePartSummary,
    Reverse,
    SendEdges,
    block_name,
    keep_edges,
    send_edges,
    send_reversed,
    sort_edges,
    sort_reversed,
)
from superworkflow.tasks.heterograph.feature_parts import (
    Placed,
    SendFeatures,
    part_name,
    place_features,
    send_features,
)
from superworkflow.tasks.heterograph.features import write_context
from superworkflow.tasks.heterograph.layout import SchemaLayout, layout_of, named_ends, sorted_features
from superworkflow.tasks.heterograph.refusals import (
    DANGLING,
    DUPLICATE,
    MOST_NODES,
    check_rows,
    column_of,
    dangling_end,
    duplicate,
)
from superworkflow.tasks.heterograph.row_spans import RowSpan, look, spans_of
from superworkflow.tasks.heterograph.table_parts import Scan, TablePart, large_pieces, parts_of, scan
from superworkflow.tasks.heterograph.values import BadValue
from superworkflow.tasks.lib.graph.dtypes import DTYPES, STRING
from superworkflow.tasks.lib.graph.heterograph import GRAPH_FILE, EdgeSet, Feature, NodeSet, feature_stem, string_type
from superworkflow.tasks.lib.graph.heterograph_writer import PARQUET, stats_of, write_graph_file
from superworkflow.tasks.lib.graph.schema import EdgeSetSchema, NodeSetSchema
from superworkflow.tasks.lib.importers.dgl_chunked import schema_alone
from superworkflow.tasks.lib.in_parts.id_ranges import (
    ROW_BITS,
    IdColumn,
    PartEndpoints,
    Ranges,
    Scanned,
    bounds_of,
    ids_name,
    look_up,
    number_ids,
    send_ids,
    send_names,
)
from superworkflow.tasks.lib.in_parts.joined_files import ArrayFile, TableFile, join_file
from superworkflow.tasks.lib.in_parts.task_outputs import TaskOutputs

RANGE_NODES, RANGE_BYTES = 1 << 20, 128 << 20
"""Largest range of nodes: ids, and bytes of the table that they come from."""


def run(job: StageRun[HeterographParams]) -> Output:
    """Make a heterograph of a schema's tables; see `tasks.heterograph.run`.

    Raises:
        UserError: as in process; or there is an edge list instead of a schema.
    """
    if "graph" not in job.sources:
        raise UserError("an edge list without a schema is read in process alone", where="heterograph: engine",
                        value=job.engine, remedy="Set the engine to in-process, or give a schema")  # fmt: skip
    with open_tasks(job) as session:
        return make(job, session)


def make(job: StageRun[HeterographParams], session: TaskSession, ranges: int | None = None) -> Output:
    """`run`, in a session that is open.

    Args:
        job: the stage's run.
        session: its open tasks.
        ranges: of each set of nodes and blocks of each set of edges; None for as many as their sizes ask for.
    """
    source = job.sources["graph"]
    text = source.local(job.scratch, source.location.name).read_text(encoding="utf-8")
    maker = _Maker(job, session, layout_of(schema_alone(text, source.uri), source.uri), ranges)
    return maker.make()


@dataclass
class _Maker:
    job: StageRun[HeterographParams]
    session: TaskSession
    layout: SchemaLayout
    wanted: int | None
    spans: dict[str, list[RowSpan]] = field(default_factory=dict)
    """Pieces of large files that are split, by URI."""
    parts: list[TablePart] = field(default_factory=list)
    scans: dict[str, list[Scan]] = field(default_factory=dict)
    """Parts of each node set with a table, as `nodes …`, and of each edge set that has one of its own, as `edges …`."""
    scanned: dict[int, Scanned] = field(default_factory=dict)
    ranges: list[Ranges] = field(default_factory=list)
    bases: list[NDArray[np.int64]] = field(default_factory=list)
    """First node of each range of a node set, and its number of nodes."""
    looked: dict[int, EdgePartSummary] = field(default_factory=dict)
    blocks: dict[int, EdgeBlocks] = field(default_factory=dict)
    edge_bases: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    """First edge of each block of an edge set, and its number of edges."""
    sizes: dict[tuple[str, int], list[list[int]]] = field(default_factory=dict)
    """Entries of ragged features by ranges or blocks."""
    merged: int = 0

    def __post_init__(self) -> None:
        self.kept = TaskOutputs(self.job.output.location.uri)
        self.number = {each.name: number for number, each in enumerate(self.layout.node_sets)}
        edge_sets = enumerate(self.layout.edge_sets)
        self.own = {number: edges for number, edges in edge_sets if edges.name not in self._reversed}

    @property
    def _reversed(self) -> dict[str, str]:
        return self.layout.reversed_of

    def make(self) -> Output:
        job, layout = self.job, self.layout
        job.output.claim([GRAPH_FILE, *self._names()])
        self._scan()
        self._number_nodes()
        self._look_up()
        self._sort_edges()
        self._sort_reversed()
        self._place_features()
        for entry in self.session.run_tasks(join_file, list(self._files())):
            job.output.adopt([entry])
        nodes = [
            NodeSet(each.name, self._nodes(number), sorted_features(each.features))
            for number, each in enumerate(layout.node_sets)
        ]
        edges = [self._edge_set(each) for each in layout.edge_sets]
        context = write_context(job, job.sources["graph"], layout)
        write_graph_file(job.output, nodes, edges, context)
        stats = stats_of(nodes, edges) | {
            "node_sets": len(nodes), "edge_sets": len(edges),
            "dangling_edges": sum(each.dropped for each in self.looked.values()), "parallel_edges": self.merged,
            "bytes": job.output.bytes_written,
        }  # fmt: skip
        return Output(rows=int(stats["nodes"] or 0) + int(stats["edges"] or 0), stats=stats)

    def _nodes(self, number: int) -> int:
        return int(self.bases[number][-1])

    def _edge_set(self, edges: EdgeSetSchema) -> EdgeSet:
        origin = self._reversed.get(edges.name)
        number, stored = next(item for item in self.own.items() if item[1].name == (origin or edges.name))
        count = int(self.edge_bases[number][-1])
        return EdgeSet(edges.name, edges.source, edges.target, count, origin, sorted_features(stored.features))

    def _scan(self) -> None:
        """Read all ids, in the order in which they are read in process, so that the same fault is found first."""
        naming = [edges.name for edges, _ in named_ends(self.layout)]
        own = sorted(self.own.values(), key=lambda each: each.name not in naming)
        self._split()
        named = [each for each in own if each.name in naming]
        self._parts_of("edges", named)
        self._parts_of("nodes", [each for each in self.layout.node_sets if self.layout.table(each)])
        self._parts_of("edges", own[len(named) :])
        items = [each for scans in self.scans.values() for each in scans]
        for item, found in zip(items, self.session.run_tasks(scan, items), strict=True):
            self.scanned[item.part.number] = found
        for each in self.own.values():
            rows = 0
            for item in self.scans[f"edges {each.name}"]:
                rows += self.scanned[item.part.number].rows
                check_rows(rows, each, item.part.uri)

    def _split(self) -> None:
        """Find where rows begin in large files of text and records."""
        sets: list[Any] = [*self.layout.node_sets, *self.own.values()]
        tables = dict.fromkeys(self.layout.table(each) for each in sets if self.layout.table(each))
        pieces = large_pieces(self.job.sources["graph"], tables)
        self.spans = spans_of(pieces, self.session.run_tasks(look, pieces))

    def _parts_of(self, kind: str, sets: list[Any]) -> None:
        for each in sets:
            parts = parts_of(self.job.sources["graph"], self.layout.table(each), len(self.parts), self.spans)
            names = ("id",) if kind == "nodes" else (column_of(each, "source"), column_of(each, "target"))
            self.scans[f"{kind} {each.name}"] = [Scan(self.kept, part.number, part, names) for part in parts]
            self.parts += parts

    def _columns(self, nodes: NodeSetSchema) -> list[tuple[Scan, int]]:
        """Columns of ids that make a node set."""
        if self.layout.table(nodes):
            return [(each, 0) for each in self.scans[f"nodes {nodes.name}"]]
        ends = [(each, end) for each in self.own.values() for end in range(2)]
        return [
            (scanned, end)
            for each, end in ends
            if (each.source, each.target)[end] == nodes.name
            for scanned in self.scans[f"edges {each.name}"]
        ]

    def _number_nodes(self) -> None:
        items: list[IdColumn] = []
        tasks = 0
        for number, nodes in enumerate(self.layout.node_sets):
            columns = self._columns(nodes)
            samples = [one for item, column in columns for one in self.scanned[item.part.number].samples[column]]
            rows = sum(self.scanned[item.part.number].rows for item, _ in columns)
            size = sum({item.part.uri: item.part.bytes for item, _ in columns}.values())
            wanted = self.wanted or max(-(-rows // RANGE_NODES), -(-size // RANGE_BYTES), 1)
            bounds, features = bounds_of(samples, wanted), bool(nodes.features)
            self.ranges.append(Ranges(number, bounds, tasks, not self.layout.table(nodes), features))
            items += [IdColumn(item, column, self.ranges[-1]) for item, column in columns]
            tasks += len(self.ranges[-1])
        made = self.session.exchange(items, send_ids, Step(tasks, partial(number_ids, self.kept, self.ranges)))
        for number, ranges in enumerate(self.ranges):
            found = made[ranges.first : ranges.first + len(ranges)]
            repeated = [each.repeated for each in found if each.repeated is not None]
            if repeated:
                raise self._duplicate(*min(repeated))
            self.bases.append(np.cumsum([0, *(each.count for each in found)]))
            if self._nodes(number) > MOST_NODES:
                raise UserError(
                    f"a node set has at most {MOST_NODES} nodes", where=self.layout.where,
                    value=self.layout.node_sets[number].name, remedy="Split the node set in two",
                )  # fmt: skip
            self.job.progress.log(f"{self.layout.node_sets[number].name}: {self._nodes(number)} nodes")

    def _duplicate(self, key: int, value: str) -> UserError:
        fault = duplicate(key & ((1 << ROW_BITS) - 1), value)
        return self._fault(self.parts[key >> ROW_BITS], fault, DUPLICATE)

    def _fault(self, part: TablePart, fault: BadValue, remedy: str) -> UserError:
        return UserError(fault.what, where=part.where(fault.row), value=fault.value, remedy=remedy)

    def _edge_items(self) -> list[tuple[int, Scan]]:
        """Parts of edges, each with the number of its set, in the order of their numbers as items."""
        return [(number, item) for number, each in self.own.items() for item in self.scans[f"edges {each.name}"]]

    def _buckets(self, node_set: str) -> Buckets:
        return Buckets.of(self._nodes(self.number[node_set]))

    def _look_up(self) -> None:
        items = []
        for place, (number, item) in enumerate(self._edge_items()):
            names = self.own[number].source, self.own[number].target
            ends = self.ranges[self.number[names[0]]], self.ranges[self.number[names[1]]]
            items.append((PartEndpoints(item, place, ends), self._buckets(names[0]), self._buckets(names[1])))
        tasks = sum(map(len, self.ranges))
        found = self.session.exchange(
            [item for item, _, _ in items], send_names,
            Step(tasks, partial(look_up, self.kept, self.ranges, self.bases)),
            Step(len(items), partial(keep_edges, self.kept, items)),
        )  # fmt: skip
        for place, ((number, item), looked) in enumerate(zip(self._edge_items(), found, strict=True)):
            if looked.dangling is not None and self.job.params.dangling == "error":
                row, end, value = looked.dangling
                raise self._fault(item.part, dangling_end(self.own[number], end, row, value), DANGLING)
            self.looked[place] = looked

    def _counts(self, number: int, end: str) -> NDArray[np.int64]:
        """Edges of a set by buckets of one of their ends."""
        edges = self.own[number]
        buckets = self._buckets(getattr(edges, end))
        total = buckets.count_of(np.zeros(0, np.int32))
        for place, (edge_set, _) in enumerate(self._edge_items()):
            if edge_set == number:
                total += getattr(self.looked[place], f"{end}s")
        return total

    def _cut(self, number: int, stored: int, end: str, first: int) -> EdgeBlocks:
        """Blocks of a set whose sources are this end of the edges of the set in which they are stored."""
        edges = self.own[stored]
        buckets = self._buckets(getattr(edges, end))
        cut = buckets.cut(self._counts(stored, end), self.wanted)
        if end != "source":
            return EdgeBlocks(number, cut, first)
        parts = [item.part.number for item in self.scans[f"edges {edges.name}"]]
        rows = np.cumsum([0, *(self.scanned[part].rows for part in parts)], dtype=np.int64)
        return EdgeBlocks(number, cut, first, bool(edges.features), parts[0] if parts else 0, rows[:-1])

    def _sort_edges(self) -> None:
        tasks = 0
        for number in self.own:
            self.blocks[number] = self._cut(number, number, "source", tasks)
            tasks += len(self.blocks[number])
        sets = [self.blocks[number] for number in self.own]
        items = [
            SendEdges(self.kept, place, self.blocks[edge_set]) for place, (edge_set, _) in enumerate(self._edge_items())
        ]
        first = self.job.params.parallel_edges == "first"
        made = self.session.exchange(items, send_edges, Step(tasks, partial(sort_edges, self.kept, sets, first)))
        for number, blocks in self.blocks.items():
            found = made[blocks.first : blocks.first + len(blocks)]
            self.edge_bases[number] = np.cumsum([0, *(each.count for each in found)])
            self.merged += sum(each.merged for each in found)
            self.job.progress.log(f"{self.own[number].name}: {int(self.edge_bases[number][-1])} edges")

    def _sort_reversed(self) -> None:
        tasks, sets = 0, []
        by: dict[int, list[EdgeBlocks]] = defaultdict(list)
        for number, each in enumerate(self.layout.edge_sets):
            if each.name in self._reversed:
                stored = next(edge_set for edge_set, own in self.own.items() if own.name == self._reversed[each.name])
                blocks = self._cut(number, stored, "target", tasks)
                by[stored].append(blocks)
                sets.append(blocks)
                tasks += len(blocks)
        items = [
            Reverse(self.kept, self.blocks[number], place, int(self.edge_bases[number][place]), tuple(others))
            for number, others in by.items()
            for place in range(len(self.blocks[number]))
        ]
        made = self.session.exchange(items, send_reversed, Step(tasks, partial(sort_reversed, self.kept, sets)))
        for blocks in sets:
            self.blocks[blocks.number] = blocks
            self.edge_bases[blocks.number] = np.cumsum([0, *made[blocks.first : blocks.first + len(blocks)]])

    def _place_features(self) -> None:
        tasks, placed, items = 0, [], []
        cuts: list[tuple[str, Any, Ranges | EdgeBlocks]] = [
            ("nodes", each, self.ranges[number]) for number, each in enumerate(self.layout.node_sets)
        ]
        cuts += [("edges", each, self.blocks[number]) for number, each in self.own.items()]
        place = {item.part.number: number for number, (_, item) in enumerate(self._edge_items())}
        for kind, each, cut in cuts:
            if features := sorted_features(each.features):
                placed.append(Placed(kind, tasks, cut, features))
                for item in self.scans[f"{kind} {each.name}"]:
                    items.append(SendFeatures(item, features, cut, place.get(item.part.number, 0), tasks))
                tasks += len(cut)
        made = self.session.exchange(items, send_features, Step(tasks, partial(place_features, self.kept, placed)))
        for each in placed:
            self.sizes[each.kind, each.cut.number] = made[each.first : each.first + len(each.cut)]

    def _names(self) -> Iterator[str]:
        """All files of the dataset but its description."""
        for number, nodes in enumerate(self.layout.node_sets):
            yield f"nodes-{number}-ids.parquet"
            yield from _feature_names("nodes", number, sorted_features(nodes.features))
        for number, edges in enumerate(self.layout.edge_sets):
            yield from (f"edges-{number}-indptr.npy", f"edges-{number}-indices.npy")
            if number in self.own:
                yield f"edges-{number}-row.npy"
                yield from _feature_names("edges", number, sorted_features(edges.features))
            else:
                yield f"edges-{number}-origin.npy"

    def _files(self) -> Iterator[ArrayFile | TableFile]:
        for number, nodes in enumerate(self.layout.node_sets):
            parts = tuple(ids_name(number, place) for place in range(len(self.ranges[number])))
            count = self._nodes(number)
            yield _column_file(self.kept, f"nodes-{number}-ids.parquet", "id", pa.large_string(), count, parts)
            yield from self._feature_files("nodes", number, sorted_features(nodes.features), count)
        for number, edges in enumerate(self.layout.edge_sets):
            blocks, bases = self.blocks[number], self.edge_bases[number]
            count, nodes_there = int(bases[-1]), int(blocks.firsts[-1])
            names = {
                file: tuple(block_name(number, file, place) for place in range(len(blocks)))
                for file in ("indptr", "indices", "origin", "row")
            }
            starts = tuple(map(int, bases[:-1]))
            yield ArrayFile(self.kept, f"edges-{number}-indptr.npy", "<i8", (nodes_there + 1,), names["indptr"], starts)
            yield ArrayFile(self.kept, f"edges-{number}-indices.npy", "<i4", (count,), names["indices"])
            if number in self.own:
                yield ArrayFile(self.kept, f"edges-{number}-row.npy", "<i4", (count,), names["row"])
                yield from self._feature_files("edges", number, sorted_features(edges.features), count)
            else:
                yield ArrayFile(self.kept, f"edges-{number}-origin.npy", "<i8", (count,), names["origin"])

    def _feature_files(
        self, kind: str, number: int, features: tuple[Feature, ...], count: int
    ) -> Iterator[ArrayFile | TableFile]:
        sizes = self.sizes.get((kind, number), [])
        for column, feature in enumerate(features):
            stem = feature_stem(kind, number, column)
            name = [part_name(stem, place) for place in range(len(sizes))]
            if feature.dtype == STRING:
                yield _column_file(self.kept, f"{stem}.parquet", "value", string_type(feature), count, tuple(name))
            elif feature.is_ragged:
                entries = [each[column] for each in sizes]
                inner = tuple(size for size in feature.shape[1:] if size is not None)
                bases = tuple(int(base) for base, _ in pairwise(np.cumsum([0, *entries])))
                values, starts = (
                    tuple(part_name(f"{stem}-{what}", place) for place in range(len(sizes)))
                    for what in ("values", "starts")
                )
                shape = (sum(entries), *inner)
                yield ArrayFile(self.kept, f"{stem}-values.npy", DTYPES[feature.dtype], shape, values)
                yield ArrayFile(self.kept, f"{stem}-starts.npy", "<i8", (count + 1,), starts, bases)
            else:
                shape = (count, *(size for size in feature.shape if size is not None))
                yield ArrayFile(self.kept, f"{stem}.npy", DTYPES[feature.dtype], shape, tuple(name))


def _column_file(
    kept: TaskOutputs, name: str, column: str, kind: pa.DataType, rows: int, parts: tuple[str, ...]
) -> TableFile:
    return TableFile(kept, name, pa.schema([(column, kind)]), PARQUET, rows, parts)


def _feature_names(kind: str, number: int, features: tuple[Feature, ...]) -> Iterator[str]:
    for column, feature in enumerate(features):
        stem = feature_stem(kind, number, column)
        if feature.dtype == STRING:
            yield f"{stem}.parquet"
        elif feature.is_ragged:
            yield from (f"{stem}-values.npy", f"{stem}-starts.npy")
        else:
            yield f"{stem}.npy"
