"""Sparse rows of a set of edges, from one set of nodes to another, with several edges between two nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.graph import csr
from superworkflow.tasks.lib.graph.sparse_rows import row_starts

_PIECE = 1 << 20


class Ordered(NamedTuple):
    """Edges in the order of (source, target, row).

    Args:
        indptr: int64 [sources + 1].
        indices: targets, int32 [edges].
        rows: of the edges in the table, or their positions in the set that these reverse, int32 [edges].
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    rows: NDArray[np.int32]


def pack(sources: NDArray[np.int32], targets: NDArray[np.int32]) -> csr.Edges:
    """Edges of `tasks.lib.graph.csr` from their ends, without copies of a larger type."""
    edges = np.empty(len(sources), "<u8")
    halves = edges.view("<u4").reshape(-1, 2)
    halves[:, 0], halves[:, 1] = targets, sources
    return edges.astype(np.uint64, copy=False)


def renumber(edges: csr.Edges, sources: NDArray[np.int32], targets: NDArray[np.int32]) -> None:
    """Give the ends of packed edges, in place, the numbers that these arrays have for theirs."""
    halves = edges.view("<u4").reshape(-1, 2)
    for begin in range(0, len(halves), _PIECE):
        piece = halves[begin : begin + _PIECE]
        piece[:, 0], piece[:, 1] = targets[piece[:, 0]], sources[piece[:, 1]]


def order_edges(edges: csr.Edges, rows: NDArray[np.int32], sources: int, targets: int, threads: int) -> Ordered:
    """Order edges; those of the same two nodes stay as they come.

    Args:
        edges: packed [edges].
        rows: of each.
        sources, targets: nodes of the sets.
        threads: workers.
    """
    nodes = max(sources, targets)
    counts = csr.count_ends(edges, nodes, threads)
    starts = csr.row_starts(counts[0].sum(axis=0, dtype=np.int64))
    indices, ordered = np.empty(len(edges), np.int32), np.empty(len(edges), np.int32)
    position = 0
    # Rows travel as weights would: the kernels move those 32 bits without looking at them, and keep the order of
    # edges that are equal.
    for piece, moved in csr.assemble(edges, rows.view(np.float32), starts, False, counts):
        assert moved is not None
        end = position + len(piece)
        indices[position:end], ordered[position:end] = piece, moved.view(np.int32)
        position = end
    return Ordered(starts[: sources + 1].copy(), indices, ordered)


def first_of_each(edges: Ordered) -> Ordered:
    """Keep the edge of the first row among those between the same two nodes."""
    repeats = np.zeros(len(edges.indices), bool)
    repeats[1:] = edges.indices[1:] == edges.indices[:-1]
    begins = edges.indptr[:-1][np.diff(edges.indptr) > 0]
    repeats[begins] = False
    before = row_starts(repeats)
    return Ordered(edges.indptr - before[edges.indptr], edges.indices[~repeats], edges.rows[~repeats])


def reverse(edges: Ordered, sources: int, targets: int, threads: int) -> Ordered:
    """The edges the other way round; their `rows` are positions in `edges`.

    Args:
        edges: from one set of nodes to another.
        sources, targets: nodes of these sets, of `edges`.
        threads: workers.
    """
    starts = np.repeat(np.arange(sources, dtype=np.int32), np.diff(edges.indptr))
    positions = np.arange(len(edges.indices), dtype=np.int32)
    return order_edges(pack(edges.indices, starts), positions, targets, sources, threads)
