"""A worker's piece of a coloured graph: the vertices that it owns with all their edges, and ghosts of their neighbours.

Places begin with the worker's own vertices: by colour, of each colour first those that other workers have ghosts of
(the border), then by degree; blocks stay together. Ghosts follow from a multiple of 64 on, so that no 64 places of
signals have vertices of both kinds; the places between have no edges. Ghosts are ordered by owner, then by colour and
degree: values of a colour arrive at places that follow each other, and those of high degree share cache lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.vertex.cluster.piece_kernels import (
    conflict_among,
    count_higher,
    count_targets,
    divide,
    mark_workers,
    pair_directed_arcs,
    pair_own_arcs,
    take_in_rows,
    take_rows,
)
from superworkflow.tasks.lib.vertex.colours import by_colour
from superworkflow.tasks.lib.vertex.renumber import Numbering
from superworkflow.tasks.lib.vertex.run import Coloured
from superworkflow.tasks.lib.vertex.scheduler import BLOCK

MOST_WORKERS = 1 << 14
SMALL = 1 << 18
"""Edges of a colour that one worker updates sooner than all could exchange its values."""


class Rows(NamedTuple):
    """Edges of one direction of the vertices that a worker owns, in the order of their numbers.

    Args:
        indptr: int64 [own + 1].
        indices: int32 [arcs], numbers of vertices.
        weights: float32 [arcs] or [0].
        degrees: int64 [vertices of the graph].
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32]
    degrees: NDArray[np.int64]


class Division(NamedTuple):
    """Owners of all vertices.

    Args:
        owners: int16 [vertices].
        colours: int32 [vertices].
        degrees: int64 [vertices] of out-edges, and of in-edges of a directed graph.
        blocks: int32 [vertices], the block of each, which has one owner; [0] if each vertex is one.
    """

    owners: NDArray[np.int16]
    colours: NDArray[np.int32]
    degrees: list[NDArray[np.int64]]
    blocks: NDArray[np.int32]

    @classmethod
    def of(
        cls, graph: Coloured, workers: int, owners: NDArray[np.int16] | None = None, small: int = SMALL
    ) -> Division:  # fmt: skip
        """Owners for some workers: ranges of each colour, if none are given.

        Args:
            graph: whose vertices.
            workers: how many.
            owners: int16 [vertices].
            small: see `divide`.

        Raises:
            UserError: there are more workers than vertices.
        """
        vertices = len(graph.indptr) - 1
        if workers > min(vertices, MOST_WORKERS):
            raise UserError("there are more workers than vertices", where="resources.workers.count", value=workers,
                            remedy=f"Give {vertices} workers at most, or run in process")  # fmt: skip
        degrees: list[NDArray[np.int64]] = [np.diff(graph.indptr)]
        if graph.directed:
            degrees.append(np.zeros(vertices, np.int64))
            count_targets(graph.indices, degrees[1])
        if owners is None:
            owners = np.empty(vertices, np.int16)
            divide(graph.order, graph.bounds, sum(degrees), workers, small, owners)
        colours = np.empty(vertices, np.int32)
        colours[graph.order] = np.repeat(np.arange(len(graph.bounds) - 1, dtype=np.int32), np.diff(graph.bounds))
        blocks = np.empty(0, np.int32)
        if graph.blocks is not None:
            lengths, blocks = np.diff(graph.blocks), np.empty(vertices, np.int32)
            blocks[graph.order] = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
            owners = owners[graph.order[graph.blocks[:-1]]][blocks]
        return cls(owners, colours, degrees, blocks)


class Piece:
    """See the module.

    Args:
        graph: of all vertices.
        division: owners of the vertices.
        rank: of the worker.

    Attributes:
        vertices: int32 [own], numbers of its vertices, ascending.
        ghosts: int32 [ghosts], by owner, colour, degree from the largest down, and number.
        base: place of the first ghost.
        numbers: int32 [places], number of the vertex at each place; -1 between.
        local: int32 [vertices of the graph], place of each own vertex and ghost.
        bounds: int64 [colours + 1], where each colour begins among the own places.
        blocks: int64 [blocks + 1], where each block begins among them; None if each vertex is one.
        borders: int64 [colours], where the border of each ends.
        degrees: int64 [own places].
        rows: out-edges; and in-edges of a directed graph.
        masks: uint64 [own, workers / 64, rounded up]: other workers that have a ghost of each of its vertices.
    """

    def __init__(self, graph: Coloured, division: Division, rank: int):
        self.graph, self.division, self.rank = graph, division, rank
        owners, total = division.owners, len(division.owners)
        self.vertices = np.flatnonzero(owners == rank).astype(np.int32)
        own = len(self.vertices)
        self._row = np.full(total, -1, np.int32)
        self._row[self.vertices] = np.arange(own, dtype=np.int32)
        self.rows = self._cut()
        words = (int(owners.max(initial=0)) >> 6) + 1
        self.masks, met = np.zeros((own, words), np.uint64), np.zeros(total, np.bool_)
        for each in self.rows:
            mark_workers(each.indptr, each.indices, owners, rank, self.masks, met)
        self.ghosts = self.as_owners_have(np.flatnonzero(met).astype(np.int32))
        colours = len(graph.bounds) - 1
        border, self.blocks = self.masks.any(axis=1), None
        if graph.blocks is not None:  # a block is on the border as a whole
            block = division.blocks[self.vertices]
            border = np.bincount(block, border, len(graph.blocks) - 1)[block] > 0
        classes = (2 * division.colours[self.vertices] + ~border).astype(np.int32)
        order, bounds = np.empty(own, np.int32), np.zeros(2 * colours + 1, np.int64)
        by_colour(classes, 2 * colours, order, bounds)
        if graph.blocks is not None:  # in which they stay as the graph has them
            listed = self._row[graph.order[owners[graph.order] == rank]]
            order = listed[np.argsort(classes[listed], kind="stable")]
            starts = np.flatnonzero(np.diff(block[order], prepend=-1))
            self.blocks = np.append(starts, own).astype(np.int64)
        degrees: NDArray[np.int64] = np.sum([each.degrees[self.vertices] for each in self.rows], axis=0)
        self.numbering = Numbering(order, bounds, degrees, graph.blocks is not None)
        self.bounds, self.borders = bounds[::2].copy(), bounds[1::2].copy()
        self.degrees = self.numbering.by_place(degrees)
        self.base = -(-own // BLOCK) * BLOCK
        between = np.full(self.base - own, -1, np.int32)
        self.numbers = np.concatenate([self.vertices[self.numbering.numbers], between, self.ghosts])
        self.local = np.full(total, -1, np.int32)
        there = self.numbers >= 0
        self.local[self.numbers[there]] = np.flatnonzero(there).astype(np.int32)

    def as_owners_have(self, vertices: NDArray[np.int32]) -> NDArray[np.int32]:
        """Ascending vertices in the order of `ghosts`, in which their owners have the border of each colour."""
        degrees = np.sum([each[vertices] for each in self.division.degrees], axis=0)
        owners, colours = self.division.owners[vertices], self.division.colours[vertices]
        return vertices[np.lexsort((-degrees, colours, owners))]

    def _cut(self) -> list[Rows]:
        graph, own = self.graph, self.vertices
        weights = np.empty(0, np.float32) if graph.weights is None else graph.weights
        made = []
        for number, degrees in enumerate(self.division.degrees):
            indptr = np.concatenate([[0], np.cumsum(degrees[own])])
            indices = np.empty(indptr[-1], np.int32)
            taken = np.empty(indptr[-1] if len(weights) else 0, np.float32)
            if number == 0:
                take_rows(graph.indptr, graph.indices, own, indices)
                if len(weights):
                    take_rows(graph.indptr, weights, own, taken)
            else:
                take_in_rows(graph.indptr, graph.indices, weights, self.division.owners, self.rank, self._row,
                             indptr[:-1].copy(), indices, taken)  # fmt: skip
            made.append(Rows(indptr, indices, taken, degrees))
        return made

    def conflict(self, distance: int) -> int:
        """A vertex that has one colour with another within a distance, around this worker's; -1 for none."""
        first, last, colours = self.rows[0], self.rows[-1], self.division.colours
        if self.graph.idle is not None:
            colours = np.where(self.graph.idle, np.int32(-1), colours)
        return int(
            conflict_among(
                *first[:2], *last[:2], self.vertices, distance, colours, len(self.bounds) - 1, self.division.blocks
            )
        )

    def arcs(self) -> list[NDArray[Any]]:
        """The six arrays of arcs of `scope.State`, by place; ghosts have their degrees, and no edges."""
        made: list[NDArray[Any]] = []
        between = np.zeros(self.base - len(self.vertices), np.int64)
        for each in self.rows:
            indptr, indices = self.numbering.rows(each.indptr, each.indices, self.local)
            further = np.cumsum(np.concatenate([between, each.degrees[self.ghosts]]))
            made += [np.concatenate([indptr, indptr[-1] + further]), indices]
            made.append(self.numbering.of_arcs(each.indptr, each.weights))
        return made * (2 // len(self.rows))

    def slots(self) -> tuple[int, list[NDArray[np.uint32]]]:
        """Edges, and slots of the arcs of each of `rows`, in their order.

        Raises:
            UserError: an undirected edge is in the row of one end only.
        """
        owners = self.division.owners
        made = [np.empty(len(each.indices), np.uint32) for each in self.rows]
        first, last = self.rows[0], self.rows[-1]
        if len(self.rows) > 1:
            edges = pair_directed_arcs(
                *first[:2], *last[:2], owners, self.rank, self._row, last.indptr[:-1].copy(), *made
            )
        else:
            edges = pair_own_arcs(
                *first[:2], owners, self.rank, self.vertices, self._row, first.indptr[:-1].copy(), *made
            )
        if edges < 0:
            raise UserError("an edge of an undirected graph is in the row of one end only",
                            remedy="Delete the graph's dataset and run again")  # fmt: skip
        return int(edges), made

    def ends(self, edges: int, slots: list[NDArray[np.uint32]]) -> NDArray[np.int64]:
        """int64 [edges, 2], the vertices at the ends of each edge; that of an even slot is the first.

        Args:
            edges, slots: as `slots` returns them.
        """
        made = np.empty((edges, 2), np.int64)
        for rows, each in zip(self.rows, slots, strict=True):
            made[each >> 1, each & 1] = np.repeat(self.vertices, np.diff(rows.indptr))
            made[each >> 1, (each & 1) ^ 1] = rows.indices
        return made

    def first_ends(self, slots: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Slots of the edges whose first ends this worker owns, in the graph's order; and how many each vertex has.

        The first end is the lower one, or the source of a directed edge: see `slots.edge_slots`.
        """
        rows, counts = self.rows[0], self.division.degrees[0]
        if len(self.rows) > 1:
            return slots, counts
        counts = np.empty(len(counts), np.int64)
        count_higher(self.graph.indptr, self.graph.indices, counts)
        return slots[rows.indices > np.repeat(self.vertices, np.diff(rows.indptr))], counts

    def by_place(self, values: NDArray[Any], out: NDArray[Any]) -> None:
        """Set values of places from those of all vertices."""
        there = self.numbers >= 0
        out[there] = values[self.numbers[there]]

    def rows_by_place(self, starts: NDArray[np.int64], values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Begins and values of vectors of any length by place, from those of all vertices."""
        there, lengths = self.numbers >= 0, np.zeros(len(self.numbers), np.int64)
        lengths[there] = np.diff(starts)[self.numbers[there]]
        begins = np.concatenate([[0], np.cumsum(lengths)])
        taken = np.empty(begins[-1], values.dtype)
        take_rows(starts, values, self.numbers, taken)
        return begins, read_only(taken)


def fields_by_place(piece: Piece, fields: Mapping[str, NDArray[Any]], given: Mapping[str, NDArray[Any]]) -> None:
    """Set fields that are given."""
    for name, values in given.items():
        piece.by_place(values, fields[name])
