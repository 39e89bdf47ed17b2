"""Lists by which workers know which values travel: of each colour, those that each other worker has copies of.

Both ends derive the same lists, in the same order, from owners, colours and numbers, and send none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.vertex.cluster.piece import Piece


class CellsByColour(NamedTuple):
    """Cells by colour.

    Args:
        cells: int32 [list], places of vertices, edges, or directions of edges.
        starts: int64 [colours + 1], where each colour begins.
    """

    cells: NDArray[np.int32]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, cells: NDArray[np.int32], colours: NDArray[np.int32], count: int) -> CellsByColour:
        """Make it of cells whose colours are ascending."""
        return cls(np.ascontiguousarray(cells, np.int32), np.searchsorted(colours, np.arange(count + 1)))


class GhostRoute(NamedTuple):
    """Cells that travel between this worker and another.

    Args:
        leaving: those that this worker sends.
        coming: those that it gets.
    """

    leaving: CellsByColour
    coming: CellsByColour


def vertex_routes(piece: Piece, workers: int) -> list[GhostRoute]:
    """Border vertices and ghosts, by the other worker; empty for this one. Lists are ordered as `Piece.ghosts`."""
    colours, count = piece.division.colours, len(piece.bounds) - 1

    def listed(vertices: NDArray[np.int32]) -> CellsByColour:
        return CellsByColour.of(piece.local[vertices], colours[vertices], count)

    owners, made = piece.division.owners[piece.ghosts], []
    for rank in range(workers):
        to = piece.masks[:, rank >> 6] >> np.uint64(rank & 63) & np.uint64(1)
        leaving = piece.as_owners_have(piece.vertices[to > 0])
        made.append(GhostRoute(listed(leaving), listed(piece.ghosts[owners == rank])))
    return made


class EdgeRoutes(NamedTuple):
    """Routes of edges and of their directions, by the other worker."""

    edges: list[GhostRoute]
    messages: list[GhostRoute]


def edge_routes(piece: Piece, slots: list[NDArray[np.uint32]], workers: int) -> EdgeRoutes:
    """Edges between vertices of this worker and of others.

    Args:
        piece: this worker's.
        slots: of the arcs of each of its `rows`.
        workers: how many.
    """
    owners, colours, count = piece.division.owners, piece.division.colours, len(piece.bounds) - 1
    own, others, ways, found = ([] for _ in range(4))
    for way, (rows, each) in enumerate(zip(piece.rows, slots, strict=True)):
        crossing = owners[rows.indices] != piece.rank
        own.append(np.repeat(piece.vertices, np.diff(rows.indptr))[crossing])
        others.append(rows.indices[crossing])
        ways.append(np.full(int(crossing.sum()), way if len(slots) > 1 else 0, np.int8))
        found.append(each[crossing].astype(np.int64))
    here, there, directions, slot = (np.concatenate(each) for each in (own, others, ways, found))
    back = 1 - directions if len(slots) > 1 else directions
    edges, messages = list[GhostRoute](), list[GhostRoute]()
    for rank in range(workers):
        some = np.flatnonzero(owners[there] == rank)
        leaving = some[np.lexsort((directions[some], there[some], here[some], colours[here[some]]))]
        coming = some[np.lexsort((back[some], here[some], there[some], colours[there[some]]))]
        out_colours, in_colours = colours[here[leaving]], colours[there[coming]]
        for made, out, into in (
            (edges, slot[leaving] >> 1, slot[coming] >> 1),
            (messages, slot[leaving], slot[coming] ^ 1),
        ):
            made.append(
                GhostRoute(CellsByColour.of(out, out_colours, count), CellsByColour.of(into, in_colours, count))
            )
    return EdgeRoutes(edges, messages)
