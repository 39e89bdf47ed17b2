"""The files of a graph dataset, the same for every stage that makes one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from superworkflow.infra.storage.dataset import DatasetWriter
from superworkflow.infra.storage.digest import SummedStream
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.formats.npy import write_header
from superworkflow.tasks.lib.graph.csr import Edges, EndCounts, Weights, assemble, degrees
from superworkflow.tasks.lib.graph.sparse_rows import row_starts

VERTICES = pa.schema([("node", pa.large_string()), ("degree", pa.int64())])
VERTICES_FORMAT: dict[str, Any] = {"compression": "lz4", "use_dictionary": False}
VERTICES_ROW_GROUP = 1 << 20
"""Schema, options and rows of a group of `vertices.parquet`."""


def write_graph(
    output: DatasetWriter,
    edges: Edges,
    weights: Weights | None,
    counts: EndCounts,
    labels: pa.Array,
    symmetric: bool,
    scratch: Edges | None = None,
) -> dict[str, Stat]:
    """Write a graph with the files that the index stage documents.

    Args:
        output: where to.
        edges: distinct edges [m].
        weights: [m] or None.
        counts: of the ends of these edges in this order.
        labels: Arrow large strings [vertices].
        symmetric: the graph has no direction; each edge is stored in both rows.
        scratch: memory for `assemble`.

    Returns:
        The facts that every graph dataset has: vertices, edges, directed_edges (arcs stored), directed, weighted,
        max_degree (most arcs in a row), isolated_vertices, sinks (vertices without outgoing arcs), bytes.
    """
    before = output.bytes_written
    first, second = degrees(counts)
    degree = first + second
    row_lengths = degree if symmetric else first
    indptr = row_starts(row_lengths)
    output.array("indptr.npy", indptr)
    arcs = int(indptr[-1])
    with ThreadPoolExecutor(1, thread_name_prefix="write") as pool:
        vertices = pool.submit(_write_vertices, output, labels, degree)
        pieces = assemble(edges, weights, indptr, symmetric, counts, scratch)
        _write_rows(output, pool, arcs, weights is not None, pieces)
        vertices.result()
    return {
        "vertices": len(row_lengths),
        "edges": len(edges),
        "directed_edges": arcs,
        "directed": not symmetric,
        "weighted": weights is not None,
        "max_degree": int(row_lengths.max(initial=0)),
        "isolated_vertices": int((degree == 0).sum()),
        "sinks": int((row_lengths == 0).sum()),
        "bytes": output.bytes_written - before,
    }


def _write_vertices(output: DatasetWriter, labels: pa.Array, degree: NDArray[np.int64]) -> None:
    with output.file("vertices.parquet") as path:
        table = pa.table([labels, column(degree)], VERTICES)
        pq.write_table(table, path, **VERTICES_FORMAT, row_group_size=VERTICES_ROW_GROUP)


def _write_rows(
    output: DatasetWriter,
    pool: ThreadPoolExecutor,
    arcs: int,
    weighted: bool,
    pieces: Iterator[tuple[NDArray[np.int32], Weights | None]],
) -> None:
    """Write `indices.npy` and perhaps `weights.npy`; a piece is written while the next is made."""
    with ExitStack() as files:
        streams = []
        for name, dtype in [("indices.npy", np.int32), ("weights.npy", np.float32)][: 1 + weighted]:
            streams.append(files.enter_context(output.stream(name)))
            write_header(streams[-1], (arcs,), np.dtype(dtype))
        written: Future[Any] = pool.submit(int)
        for piece in pieces:
            written.result()
            written = pool.submit(_write_piece, streams, piece)
        written.result()


def _write_piece(streams: list[SummedStream], piece: tuple[NDArray[np.int32], Weights | None]) -> None:
    for stream, array in zip(streams, piece, strict=False):
        stream.write(array)
