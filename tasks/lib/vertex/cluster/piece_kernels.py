"""Kernels that cut a worker's piece out of a graph."""

from __future__ import annotations

import numba as nb
import numpy as np

from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()


@nb.njit(nogil=True, cache=True)
def divide(order, bounds, degrees, workers, small, owners):  # type: ignore[no-untyped-def]
    """Divide each colour among the workers, in ranges of its order that are even in edges.

    Small colours that follow each other have one owner, the least loaded one, so that nothing travels between them.

    Args:
        order: int32 [vertices], by colour.
        bounds: int64 [colours + 1].
        degrees: int64 [vertices].
        workers: how many.
        small: edges and vertices of a colour that is not worth dividing.
        owners: int16 [vertices], becomes the result.
    """
    loads = np.zeros(workers, np.int64)
    most = (degrees.sum() + len(order)) // (4 * workers)
    one, of_one = -1, 0
    for colour in range(len(bounds) - 1):
        total = 0
        for place in range(bounds[colour], bounds[colour + 1]):
            total += degrees[order[place]] + 1
        if total >= small:
            one = -1
        elif one < 0 or of_one + total > most:
            one, of_one = int(np.argmin(loads)), 0
        of_one += total
        before = 0
        for place in range(bounds[colour], bounds[colour + 1]):
            weight = degrees[order[place]] + 1
            owner = one if one >= 0 else min(workers - 1, (2 * before + weight) * workers // (2 * total))
            owners[order[place]] = owner
            loads[owner] += weight
            before += weight


@nb.njit(nogil=True, cache=True)
def count_targets(indices, counts):  # type: ignore[no-untyped-def]
    """Count how often each vertex is in an array.

    Args:
        indices: int32 [arcs].
        counts: int64 [vertices], zeros; becomes the result.
    """
    for arc in range(len(indices)):
        counts[indices[arc]] += 1


@nb.njit(nogil=True, cache=True)
def count_higher(indptr, indices, counts):  # type: ignore[no-untyped-def]
    """Count the neighbours of each vertex whose numbers are higher.

    Args:
        indptr: int64 [vertices + 1].
        indices: int32 [arcs], ascending in each row.
        counts: int64 [vertices], becomes the result.
    """
    for vertex in range(len(counts)):
        row = indices[indptr[vertex] : indptr[vertex + 1]]
        counts[vertex] = len(row) - np.searchsorted(row, vertex, side="right")


@nb.njit(nogil=True, cache=True)
def take_rows(indptr, values, vertices, taken):  # type: ignore[no-untyped-def]
    """Copy the rows of some vertices, one after the other.

    Args:
        indptr: int64 [vertices of the graph + 1].
        values: of the rows.
        vertices: int32 [n], whose rows; below 0 for none.
        taken: becomes the result.
    """
    end = 0
    for vertex in vertices:
        if vertex >= 0:
            for arc in range(indptr[vertex], indptr[vertex + 1]):
                taken[end] = values[arc]
                end += 1


@nb.njit(nogil=True, cache=True)
def take_in_rows(indptr, indices, weights, owners, rank, rows, places, in_indices, in_weights):  # type: ignore[no-untyped-def]
    """Collect the in-edges of a worker's vertices.

    Args:
        indptr: int64 [vertices + 1] of all out-edges.
        indices: int32 [arcs].
        weights: float32 [arcs] or [0].
        owners: int16 [vertices].
        rank: of the worker.
        rows: int32 [vertices], row of each of its vertices.
        places: int64 [rows], begins of the rows; is used up.
        in_indices: int32 [in-edges], becomes the sources, ascending in each row.
        in_weights: float32 [in-edges] or [0], becomes the weights.
    """
    for vertex in range(len(indptr) - 1):
        for arc in range(indptr[vertex], indptr[vertex + 1]):
            target = indices[arc]
            if owners[target] == rank:
                place = places[rows[target]]
                in_indices[place] = vertex
                if len(weights):
                    in_weights[place] = weights[arc]
                places[rows[target]] += 1


@nb.njit(nogil=True, cache=True)
def mark_workers(indptr, indices, owners, rank, masks, met):  # type: ignore[no-untyped-def]
    """Mark which workers own neighbours of each row's vertex, and these neighbours.

    Args:
        indptr: int64 [rows + 1].
        indices: int32 [arcs], numbers of vertices.
        owners: int16 [vertices].
        rank: of the worker whose rows these are.
        masks: uint64 [rows, workers / 64, rounded up], gets a bit for each other worker.
        met: bool [vertices], becomes true for neighbours of others.
    """
    for row in range(len(indptr) - 1):
        for arc in range(indptr[row], indptr[row + 1]):
            owner = owners[indices[arc]]
            if owner != rank:
                masks[row, owner >> 6] |= np.uint64(1) << np.uint64(owner & 63)
                met[indices[arc]] = True


@nb.njit(nogil=True, cache=True)
def pair_own_arcs(indptr, indices, owners, rank, vertices, rows, places, slots):  # type: ignore[no-untyped-def]
    """Slots of a worker's arcs in an undirected graph; see `slots.pair_arcs`. An arc to another's vertex has its own.

    Returns the edges, or -1 if an arc has no opposite.

    Args:
        indptr: int64 [rows + 1].
        indices: int32 [arcs], numbers of vertices, ascending in each row.
        owners: int16 [vertices].
        rank: of the worker.
        vertices: int32 [rows], ascending.
        rows: int32 [vertices], row of each of its vertices.
        places: int64 [rows], begins of the rows; is used up.
        slots: uint32 [arcs], becomes the result.
    """
    edges = 0
    for row in range(len(vertices)):
        vertex = vertices[row]
        for arc in range(indptr[row], indptr[row + 1]):
            other = indices[arc]
            if owners[other] != rank:
                slots[arc] = 2 * edges
                edges += 1
            elif other > vertex:
                back, end = places[rows[other]], indptr[rows[other] + 1]
                while back < end and owners[indices[back]] != rank:
                    back += 1
                if back == end or indices[back] != vertex:
                    return -1
                places[rows[other]] = back + 1
                slots[arc], slots[back] = 2 * edges, 2 * edges + 1
                edges += 1
    return edges


@nb.njit(nogil=True, cache=True)
def pair_directed_arcs(indptr, indices, in_indptr, in_indices, owners, rank, rows, places, slots, in_slots):  # type: ignore[no-untyped-def]
    """Slots of a worker's out-edges and in-edges; see `slots.in_slots_of`. Returns the edges.

    Args:
        indptr, in_indptr: int64 [rows + 1].
        indices, in_indices: int32, numbers of vertices, ascending in each row.
        owners: int16 [vertices].
        rank: of the worker.
        rows: int32 [vertices], row of each of its vertices.
        places: int64 [rows], begins of the rows of in-edges; is used up.
        slots, in_slots: uint32 of out-edges and of in-edges, become the result.
    """
    edges = 0
    for row in range(len(indptr) - 1):
        for arc in range(indptr[row], indptr[row + 1]):
            slots[arc] = 2 * edges
            if owners[indices[arc]] == rank:
                to = rows[indices[arc]]
                while owners[in_indices[places[to]]] != rank:
                    places[to] += 1
                in_slots[places[to]] = 2 * edges + 1
                places[to] += 1
            edges += 1
    for arc in range(len(in_indices)):
        if owners[in_indices[arc]] != rank:
            in_slots[arc] = 2 * edges + 1
            edges += 1
    return edges


@nb.njit(nogil=True, cache=True)
def conflict_among(indptr, indices, in_indptr, in_indices, vertices, distance, colours, count, blocks):  # type: ignore[no-untyped-def]
    """A vertex of one colour with one of another block within a distance, seen from some vertices and their neighbours.

    Returns -1 for none.

    Args:
        indptr, in_indptr: int64 [rows + 1]; of in-edges the same as of out-edges if undirected.
        indices, in_indices: int32, numbers of vertices.
        vertices: int32 [rows].
        distance: 0 to 2.
        colours: int32 [vertices of the graph], -1 of those that conflict with none.
        count: of colours.
        blocks: int32 [vertices of the graph], the block of each; [0] if each is one.
    """
    seen, by = np.full(count, -1, np.int64), np.full(count, -1, np.int32)
    for row in range(len(vertices) if distance > 0 else 0):
        vertex = vertices[row]
        for way in range(2):
            starts, ends = (indptr, indices) if way == 0 else (in_indptr, in_indices)
            for arc in range(starts[row], starts[row + 1]):
                other = ends[arc]
                colour = colours[other]
                if colour < 0:
                    continue
                block = blocks[other] if len(blocks) else other
                if colour == colours[vertex] and not (len(blocks) and block == blocks[vertex]):
                    return vertex
                if distance > 1 and seen[colour] == row and by[colour] != block:
                    return other
                seen[colour], by[colour] = row, block
    return -1
