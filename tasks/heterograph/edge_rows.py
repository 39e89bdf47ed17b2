"""Rows of an edge list that stay edges of their own: those with times, and directed ones, as one or two edge sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import StageRun
from superworkflow.tasks.heterograph import EDGE_SET, NODE_SET, REVERSE_EDGE_SET, HeterographParams
from superworkflow.tasks.heterograph.csr import first_of_each, order_edges, pack, reverse
from superworkflow.tasks.lib.edge_list.diagnose import bad_row
from superworkflow.tasks.lib.edge_list.edge_files import EdgeFile, text_rows_of
from superworkflow.tasks.lib.edge_list.encode import Encoder
from superworkflow.tasks.lib.edge_list.missing_ids import drop_missing
from superworkflow.tasks.lib.edge_list.text_rows import BadRow, ParsedRows
from superworkflow.tasks.lib.edge_list.vertex_order import label_array
from superworkflow.tasks.lib.graph import csr
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, Feature, feature_stem
from superworkflow.tasks.lib.graph.heterograph_writer import write_feature, write_rows


def edge_rows(job: StageRun[HeterographParams], files: Sequence[EdgeFile], where: str) -> Iterator[ParsedRows]:
    """Rows of an edge list in batches, by the reader that its format needs.

    Raises:
        UserError: a row is bad; with its line or number.
    """
    try:
        if files[0].dialect.kind != "parquet":
            yield from text_rows_of(files)
            return
        from superworkflow.tasks.lib.edge_list import duckdb_reader

        connection = duckdb_reader.connect(256 << 20, job.threads, job.scratch)
        try:
            yield from duckdb_reader.rows_of(connection, files)
        finally:
            connection.close()
    except BadRow:
        raise bad_row(files, where) from None


class UnmergedRows:
    """The rows of an edge list, with their times if these are kept; rows with the same node twice are left out.

    Args:
        job: the stage's run.
        files: of the edge list.
        where: name of the source.

    Attributes:
        labels: Arrow strings [nodes].
        edges: packed [rows], in the order of the rows.
        weights: float32 [rows], or None.
        times: int64 [rows], or None.
        numbers: of the rows among all of the files, from 0, int64 [rows].
        read: number of all rows of the files.
        rows: number of those that have both ids.
        dropped: that were left out, since they lack an id.
    """

    def __init__(self, job: StageRun[HeterographParams], files: Sequence[EdgeFile], where: str):
        dialect = files[0].dialect
        encoder = Encoder(job.threads, dialect.weighted)
        times: list[NDArray[np.int64]] = []
        numbers: list[NDArray[np.int64]] = []
        self.dropped = first = 0
        for columns, weights in edge_rows(job, files, where):
            ends, when = columns[:2], columns[2] if len(columns) > 2 else None
            places = np.arange(first, first + len(ends[0]))
            first += len(places)
            if dialect.missing == "drop":
                ends, named, dropped = drop_missing(ends)
                self.dropped += dropped
                when = None if when is None else when.filter(pa.array(named))
                places, weights = places[named], None if weights is None else weights[named]
            if len(places):
                encoder.add_columns(ends, weights, 0)
                numbers.append(places)
                if when is not None:
                    times.append(when.to_numpy())
        buffer, self.rows, weights, keys, arena = encoder.result()
        sides = buffer[: 2 * self.rows].reshape(-1, 2)
        kept = sides[:, 0] != sides[:, 1]
        self.edges = pack(*sides[kept].T)
        self.weights = None if weights is None else weights[kept]
        self.times = np.concatenate(times)[kept] if times else None
        self.numbers = np.concatenate([np.empty(0, np.int64), *numbers])[kept]
        self.read = first
        self.labels = label_array(np.arange(len(keys), dtype=np.int32), keys, arena)


def write_edge_sets(
    job: StageRun[HeterographParams],
    edges: csr.Edges,
    values: Mapping[str, tuple[str, NDArray[Any]]],
    nodes: int,
) -> list[EdgeSet]:
    """Write edges in the order of (source, target, row).

    Without direction one set has each edge both ways; else a second one has the reverse of all edges.

    Args:
        job: the stage's run.
        edges: packed [rows].
        values: type and values [rows] of each feature.
        nodes: of the graph.

    Returns:
        The sets as they are in the graph's file.
    """
    directed, rows = job.params.directed, len(edges)
    if not directed:
        edges = np.concatenate([edges, pack(*edges.view("<u4").reshape(-1, 2).T.view(np.int32))])
    ordered = order_edges(edges, np.arange(len(edges), dtype=np.int32), nodes, nodes, job.threads)
    if job.params.parallel_edges == "first":
        ordered = first_of_each(ordered)
    row, count = ordered.rows % np.int32(max(1, rows)), len(ordered.indices)
    write_rows(job.output, 0, ordered.indptr, ordered.indices, table_rows=row)
    features = []
    for number, name in enumerate(sorted(values, key=str.encode)):
        kind, given = values[name]
        features.append(Feature(name, kind, given.shape[1:]))
        write_feature(job.output, feature_stem("edges", 0, number), features[-1], given[row])
    made = [EdgeSet(EDGE_SET, NODE_SET, NODE_SET, count, None, tuple(features))]
    if directed:
        backward = reverse(ordered, nodes, nodes, job.threads)
        write_rows(job.output, 1, backward.indptr, backward.indices, backward.rows.astype(np.int64))
        made.append(made[0]._replace(name=REVERSE_EDGE_SET, reversed_of=EDGE_SET))
    return made
