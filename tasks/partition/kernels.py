"""Compiled loops of stage partition: the symmetric graph that METIS reads, and what parts cut."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.subgraphs.draw import sort_part


@nb.njit(nogil=True, cache=True)
def count_ends(
    indptr: NDArray[np.int64], indices: NDArray[Any], source: int, target: int, starts: NDArray[np.int64]
) -> None:
    """Count each edge at both of its ends; loops are left out.

    Args:
        indptr, indices: rows of an edge set.
        source, target: vertices of its node sets begin here.
        starts: [vertices + 1]; what vertex v gets is added to ``starts[v + 1]``.
    """
    for u in range(len(indptr) - 1):
        for e in range(indptr[u], indptr[u + 1]):
            a, b = source + u, target + np.int64(indices[e])
            if a != b:
                starts[a + 1] += 1
                starts[b + 1] += 1


@nb.njit(nogil=True, cache=True)
def fill_ends(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    source: int,
    target: int,
    cursors: NDArray[np.int64],
    adjacency: NDArray[np.int32],
) -> None:
    """Enter each edge at both of its ends.

    Args:
        indptr, indices, source, target: as `count_ends` was given.
        cursors: position of the next entry of each vertex [vertices]; advanced.
        adjacency: [entries], filled.
    """
    for u in range(len(indptr) - 1):
        for e in range(indptr[u], indptr[u + 1]):
            a, b = source + u, target + np.int64(indices[e])
            if a != b:
                adjacency[cursors[a]] = b
                cursors[a] += 1
                adjacency[cursors[b]] = a
                cursors[b] += 1


@nb.njit(nogil=True, cache=True)
def sort_rows(starts: NDArray[np.int64], adjacency: NDArray[np.int32], merged: NDArray[np.int64]) -> None:
    """Sort each row in place, and say where its distinct entries will begin.

    Args:
        starts: of the rows [vertices + 1].
        adjacency: [entries].
        merged: [vertices + 1], filled.
    """
    merged[0] = 0
    for v in range(len(starts) - 1):
        first, last = starts[v], starts[v + 1]
        sort_part(adjacency, first, last - first)
        count = 0
        for e in range(first, last):
            if e == first or adjacency[e] != adjacency[e - 1]:
                count += 1
        merged[v + 1] = merged[v] + count


@nb.njit(nogil=True, cache=True)
def merge_rows(starts: NDArray[np.int64], adjacency: NDArray[np.int32], weights: NDArray[np.int32]) -> int:
    """Move distinct entries of sorted rows to the front, and count each.

    Args:
        starts: of the rows [vertices + 1].
        adjacency: [entries], changed.
        weights: how often each distinct entry occurs [distinct entries], filled.

    Returns:
        The largest weight.
    """
    distinct, largest = 0, 0
    for v in range(len(starts) - 1):
        e, last = starts[v], starts[v + 1]
        while e < last:
            entry, count = adjacency[e], 0
            while e < last and adjacency[e] == entry:
                count += 1
                e += 1
            adjacency[distinct] = entry
            weights[distinct] = count
            largest = max(largest, count)
            distinct += 1
    return largest


@nb.njit(nogil=True, cache=True)
def count_cut(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    owned: NDArray[Any],
    parts: NDArray[np.int16],
    shift: int,
    own: int,
    stamps: NDArray[np.int32],
    stamp: int,
) -> tuple[int, int]:
    """Count the remote reads of a range of parts along one edge set.

    Args:
        indptr, indices: rows of the edge set.
        owned: nodes of its source set that are in the range.
        parts: of the nodes of its target set.
        shift, own: those in the range are those whose part, shifted right by `shift`, is `own`.
        stamps: of the nodes of its target set [nodes]; those that are met get this range's stamp.
        stamp: of this range, no other's.

    Returns:
        Edges that lead out of the range, and nodes among their ends that had another stamp.
    """
    cut = halo = 0
    for i in range(len(owned)):
        u = owned[i]
        for e in range(indptr[u], indptr[u + 1]):
            node = indices[e]
            if parts[node] >> shift != own:
                cut += 1
                if stamps[node] != stamp:
                    stamps[node] = stamp
                    halo += 1
    return cut, halo
