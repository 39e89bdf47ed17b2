"""The work of the stage heterograph; see the package for its rules."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.heterograph import FEATURES, NODE_SET, HeterographParams
from superworkflow.tasks.heterograph.chunked import make_chunked
from superworkflow.tasks.heterograph.csr import Ordered, first_of_each, order_edges, pack, renumber, reverse
from superworkflow.tasks.heterograph.features import FeatureOwner, write_context, write_features
from superworkflow.tasks.heterograph.homogeneous import make_homogeneous, write_labels
from superworkflow.tasks.heterograph.ids import Ids, first_repeated
from superworkflow.tasks.heterograph.layout import SchemaLayout, keeps_ends, layout_of, named_ends, sorted_features
from superworkflow.tasks.heterograph.node_features import NodeFeatures
from superworkflow.tasks.heterograph.refusals import (
    DANGLING,
    DUPLICATE,
    UNKNOWN,
    check_rows,
    column_of,
    dangling_end,
    duplicate,
    text_ids,
)
from superworkflow.tasks.heterograph.sparse_features import features_file
from superworkflow.tasks.heterograph.tables import Table, TableBatch
from superworkflow.tasks.heterograph.triples import write_tables
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, warning_stats
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, Feature, NodeSet
from superworkflow.tasks.lib.graph.heterograph_writer import stats_of, write_graph_file, write_ids, write_rows
from superworkflow.tasks.lib.graph.schema import EdgeSetSchema, NodeSetSchema, read_schema
from superworkflow.tasks.lib.importers.dgl_chunked import is_chunked, read_chunked
from superworkflow.tasks.lib.kernels.huge_pages import small_pages
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()


def run(job: StageRun[HeterographParams]) -> Output:
    """Make a heterograph of a schema's tables.

    Raises:
        UserError: names schema and line, or file and row, the value and the remedy.
    """
    nb.set_num_threads(min(job.threads, nb.get_num_threads()))
    given = [name for name in ("graph", "edges") if name in job.sources]
    if len(given) != 1 or (given == ["graph"] and len(job.sources) > 1):
        raise UserError("a graph comes from a schema, or from an edge list with features and labels",
                        where="heterograph", value=", ".join(sorted(job.sources)) or "nothing",
                        remedy="Give either graph, or edges and perhaps features and labels")  # fmt: skip
    if given == ["edges"] and job.params.format == "triples":
        with tempfile.TemporaryDirectory(dir=job.scratch) as folder:
            source = write_tables(job, Path(folder))
            text = source.local(job.scratch, source.location.name).read_text(encoding="utf-8")
            return _TripleMaker(job, source, layout_of(read_schema(text, source.uri), source.uri)).make()
    if given == ["edges"]:
        with small_pages(job.sources["edges"].total_bytes < 1 << 30):
            return make_homogeneous(job)
    source = job.sources["graph"]
    text = source.local(job.scratch, source.location.name).read_text(encoding="utf-8")
    if is_chunked(text):
        return make_chunked(job, source, read_chunked(text, source.uri))
    layout = layout_of(read_schema(text, source.uri), source.uri)
    with small_pages(source.total_bytes < 1 << 30):
        return _Maker(job, source, layout).make()


@dataclass
class _Maker:
    job: StageRun[HeterographParams]
    source: Source
    layout: SchemaLayout
    ids: dict[str, Ids] = field(default_factory=dict)
    node_sets: list[NodeSet] = field(default_factory=list)
    edge_sets: dict[str, EdgeSet] = field(default_factory=dict)
    kept: dict[str, list[NDArray[np.uint64]]] = field(default_factory=dict)
    """Edges of a set that were read to find the nodes of sets without a table, by numbers of `Ids.add`."""
    dropped: int = 0
    merged: int = 0

    def make(self) -> Output:
        for each in self.layout.node_sets:
            self.ids[each.name] = Ids(self.job.threads)
        self._add_named()
        for number, nodes in enumerate(self.layout.node_sets):
            self._node_set(number, nodes)
            self._update(number + 1)
        for number, edges in enumerate(self.layout.edge_sets):
            if edges.name not in self.layout.reversed_of:
                self._edge_set(number, edges)
            self._update(len(self.node_sets) + number + 1)
        in_order = [self.edge_sets[each.name] for each in self.layout.edge_sets]
        context = write_context(self.job, self.source, self.layout)
        write_graph_file(self.job.output, self.node_sets, in_order, context)
        stats = stats_of(self.node_sets, in_order) | {
            "node_sets": len(self.node_sets), "edge_sets": len(in_order),
            "dangling_edges": self.dropped, "parallel_edges": self.merged, "bytes": self.job.output.bytes_written,
        }  # fmt: skip
        return Output(rows=int(stats["nodes"] or 0) + int(stats["edges"] or 0), stats=stats)

    def _update(self, done: int) -> None:
        self.job.progress.update(done, len(self.layout.node_sets) + len(self.layout.edge_sets), "sets")

    def _table(self, name: str) -> Table:
        return Table(self.source, name, self.job.scratch, self.job.threads)

    def _add_named(self) -> None:
        """Add the nodes of sets without a table: those that edges name."""
        naming = named_ends(self.layout)
        for edges, ends in naming:
            keep = keeps_ends(naming)  # what is read here need not be read again
            table = self._table(self.layout.table(edges))
            for batch in table.batches([column_of(edges, end) for end in ends]):
                ids = text_ids(batch)
                numbers = [self.ids[getattr(edges, end)].add(each) for end, each in zip(ends, ids, strict=True)]
                if keep:
                    self.kept.setdefault(edges.name, []).append(pack(*numbers))
            table.close()

    def _node_set(self, number: int, nodes: NodeSetSchema) -> None:
        ids, name = self.ids[nodes.name], self.layout.table(nodes)
        features = sorted_features(nodes.features)
        parts: list[NDArray[np.int32]] = []
        table = self._table(name) if name else None
        if table is not None:
            batches: list[tuple[int, TableBatch]] = []
            rows = 0
            for batch in table.batches(["id"]):
                parts.append(ids.add(text_ids(batch)[0]))
                batches.append((rows, batch._replace(columns=[])))
                rows += len(parts[-1])
            if ids.count < rows:
                raise self._duplicate(np.concatenate(parts), batches, table)
        rank, sorted_ids = ids.ranked()
        write_ids(self.job.output, number, sorted_ids)
        if table is not None:
            if features:
                place = rank[np.concatenate(parts)] if parts else rank
                write_features(self.job.output, FeatureOwner("nodes", number, len(rank)), features, table, place)
            table.close()
        self.node_sets.append(NodeSet(nodes.name, len(rank), features))
        self.job.progress.log(f"{nodes.name}: {len(rank)} nodes")

    def _edge_set(self, number: int, edges: EdgeSetSchema) -> None:
        table, output = self._table(self.layout.table(edges)), self.job.output
        sources, targets = self.ids[edges.source].count, self.ids[edges.target].count
        dropped = self.dropped
        packed, rows, read = self._ends(edges, table)
        dropped = self.dropped - dropped
        ordered = order_edges(packed, rows, sources, targets, self.job.threads)
        del packed, rows
        if self.job.params.parallel_edges == "first":
            before = len(ordered.indices)
            ordered = first_of_each(ordered)
            self.merged += before - len(ordered.indices)
        features, count = sorted_features(edges.features), len(ordered.indices)
        write_rows(output, number, ordered.indptr, ordered.indices, table_rows=ordered.rows)
        if features:
            place = np.full(read, -1, np.int32)
            place[ordered.rows] = np.arange(count, dtype=np.int32)
            write_features(output, FeatureOwner("edges", number, count), features, table, place)
        table.close()
        self.edge_sets[edges.name] = EdgeSet(edges.name, edges.source, edges.target, count, None, features)
        self.job.progress.log(
            f"{edges.name}: {count} edges" + (f", {dropped} dropped whose ends are no nodes" if dropped else "")
        )
        self._reversed_sets(edges, ordered, sources, targets)

    def _reversed_sets(self, edges: EdgeSetSchema, ordered: Ordered, sources: int, targets: int) -> None:
        for number, other in enumerate(self.layout.edge_sets):
            if self.layout.reversed_of.get(other.name) == edges.name:
                backward = reverse(ordered, sources, targets, self.job.threads)
                origin = backward.rows.astype(np.int64)
                write_rows(self.job.output, number, backward.indptr, backward.indices, origin)
                stored = self.edge_sets[edges.name]
                self.edge_sets[other.name] = EdgeSet(
                    other.name, other.source, other.target, stored.count, edges.name, stored.features
                )

    def _ends(self, edges: EdgeSetSchema, table: Table) -> tuple[NDArray[np.uint64], NDArray[np.int32], int]:
        """Edges packed as `tasks.lib.graph.csr` has them, the row of each, and the number of rows."""
        if edges.name in self.kept:
            packed = _concatenated(self.kept.pop(edges.name), np.uint64)
            renumber(packed, self.ids[edges.source].rank, self.ids[edges.target].rank)
            check_rows(len(packed), edges, table.files[-1])
            return packed, np.arange(len(packed), dtype=np.int32), len(packed)
        parts: list[NDArray[np.uint64]] = []
        kept: list[NDArray[np.int32]] = []
        read = 0
        for batch in table.batches([column_of(edges, "source"), column_of(edges, "target")]):
            given = text_ids(batch)
            ends = [self.ids[name].ranks_of(ids) for name, ids in zip((edges.source, edges.target), given, strict=True)]
            rows = np.arange(read, read + len(given[0]), dtype=np.int32)
            read += len(given[0])
            check_rows(read, edges, batch.where)
            dangling = (ends[0] == UNKNOWN) | (ends[1] == UNKNOWN)
            if dangling.any():
                if self.job.params.dangling == "error":
                    row = int(np.flatnonzero(dangling)[0])
                    end = 0 if ends[0][row] == UNKNOWN else 1
                    raise batch.fault(dangling_end(edges, end, row, given[end][row].as_py()), DANGLING)
                self.dropped += int(dangling.sum())
                ends, rows = [end[~dangling] for end in ends], rows[~dangling]
            parts.append(pack(*ends))
            kept.append(rows)
        return _concatenated(parts, np.uint64), _concatenated(kept, np.int32), read

    def _duplicate(self, numbers: NDArray[np.int32], batches: list[tuple[int, TableBatch]], table: Table) -> UserError:
        """The error for the first row whose id an earlier one has."""
        row = first_repeated(numbers)
        begin, batch = next(each for each in reversed(batches) if each[0] <= row)
        given = next(each for each in table.batches(["id"]) if (each.where, each.row) == (batch.where, batch.row))
        value = text_ids(given)[0][row - begin].as_py()
        fault: UserError = batch.fault(duplicate(row - begin, value), DUPLICATE)
        return fault


def _concatenated(parts: list[Any], dtype: Any) -> NDArray[Any]:
    """The parts behind each other, each given back once it is copied."""
    whole = np.empty(sum(map(len, parts)), dtype)
    end = len(whole)
    while parts:
        part = parts.pop()
        whole[end - len(part) : end] = part
        end -= len(part)
    return whole


@dataclass
class _TripleMaker(_Maker):
    """The maker of a graph of triples, whose nodes may have features and labels in files of their own."""

    features: NodeFeatures | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def make(self) -> Output:
        made = super().make()
        return replace(made, stats={**made.stats, **self.facts})

    def _add_named(self) -> None:
        ids, sources = self.ids[NODE_SET], self.job.sources
        if "features" in sources:
            self.features = features_file(self.job, sources["features"], ids)
        before = ids.count
        super()._add_named()
        if self.features is not None and self.features.lists_nodes and ids.count > before:
            raise UserError("triples name nodes without features", where=sources["features"].uri,
                            value=f"{ids.count - before} nodes", remedy="Give each node a row of features")  # fmt: skip

    def _node_set(self, number: int, nodes: NodeSetSchema) -> None:
        rank, names = self.ids[nodes.name].ranked()
        write_ids(self.job.output, number, names)
        found: list[Feature] = []
        doubts: list[InputWarning] = []
        if self.features is not None:
            self.facts["scaling"], doubts = self.features.write(rank)
            found.append(Feature(FEATURES, self.features.dtype, (self.features.width,)))
        leaks_of = None if self.features is None else self.features.label_leaks
        described, labelled, warnings = write_labels(self.job, names, leaks_of, len(found))
        self.facts |= warning_stats([*doubts, *warnings]) | labelled
        self.node_sets.append(NodeSet(nodes.name, len(rank), (*found, *described)))
        self.job.progress.log(f"{nodes.name}: {len(rank)} nodes")
