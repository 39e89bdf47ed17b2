"""The files of a graph dataset, the same for every stage that makes one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from infra.dataset import DatasetWriter
from infra.manifest import Stat
from tasks._arrow import column
from tasks._csr import Edges, EndCounts, Weights, assemble, degrees, row_starts

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
) -> dict[str, Stat]:
    """Write a graph as the index stage does (see there for the files).

    Args:
        output: where to.
        edges: distinct edges [m].
        weights: [m] or None.
        counts: of the ends of these edges in this order.
        labels: Arrow large strings [vertices].
        symmetric: the graph has no direction; each edge is stored in both rows.

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
    with ExitStack() as files:
        indices = files.enter_context(_array_file(output, "indices.npy", np.int32, arcs))
        arc_weights = None
        if weights is not None:
            arc_weights = files.enter_context(_array_file(output, "weights.npy", np.float32, arcs))
        assemble(edges, weights, indptr, symmetric, indices, arc_weights, counts)
    with output.file("vertices.parquet") as path:
        columns = [labels, column(degree)]
        table = pa.table(columns, VERTICES)
        pq.write_table(table, path, **VERTICES_FORMAT, row_group_size=VERTICES_ROW_GROUP)
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


@contextmanager
def _array_file(output: DatasetWriter, name: str, dtype: Any, length: int) -> Iterator[NDArray[Any]]:
    """A `.npy` file of the dataset as an array to fill; its space is taken first, so that a full disk is an error."""
    with output.file(name) as path:
        with path.open("wb") as stream:
            np.lib.format.write_array_header_1_0(
                stream, {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (length,)}
            )
            offset = stream.tell()
            if length:
                os.posix_fallocate(stream.fileno(), offset, length * np.dtype(dtype).itemsize)
        if not length:
            yield np.empty(0, dtype)
            return
        array = np.memmap(path, dtype, "r+", offset, (length,))
        yield array
        array.flush()
