"""Slots of edges: where an arc finds the fields that it shares with the opposite arc."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()


@nb.njit(nogil=True, cache=True)
def pair_arcs(indptr, indices, places, slots):  # type: ignore[no-untyped-def]
    """Give both arcs of each undirected edge its two slots; returns the edges, or -1 if an arc has no opposite.

    Rows are ascending, so that the lower neighbours of a vertex meet its row in order.

    Args:
        indptr: int64 [vertices + 1].
        indices: int32 [arcs], ascending in each row, both arcs of each edge.
        places: int64 [vertices], begins of the rows; is used up.
        slots: uint32 [arcs], becomes twice the edge's number, plus 1 for the arc to the lower end.
    """
    edges = 0
    for vertex in range(len(indptr) - 1):
        for arc in range(indptr[vertex], indptr[vertex + 1]):
            other = indices[arc]
            if other > vertex:
                back = places[other]
                if back >= indptr[other + 1] or indices[back] != vertex:
                    return -1
                places[other] += 1
                slots[arc], slots[back] = 2 * edges, 2 * edges + 1
                edges += 1
    return edges if 2 * edges == len(indices) else -1


@nb.njit(nogil=True, cache=True)
def in_slots_of(indptr, indices, places, in_slots):  # type: ignore[no-untyped-def]
    """Slots of in-edges, where an out-edge's own is twice its number.

    Args:
        indptr: int64 [vertices + 1] of out-edges.
        indices: int32 [arcs].
        places: int64 [vertices], begins of the rows of in-edges, which are by ascending source; is used up.
        in_slots: uint32 [arcs], becomes the result.
    """
    for arc in range(indptr[len(indptr) - 1]):
        target = indices[arc]
        in_slots[places[target]] = 2 * arc + 1
        places[target] += 1


def edge_slots(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], in_indptr: NDArray[Any] | None
) -> tuple[int, NDArray[np.uint32], NDArray[np.uint32]]:
    """Edges, and slots of arcs and of in-edges: slot >> 1 is the edge, slot ^ 1 the slot of the opposite direction.

    Args:
        indptr: int64 [vertices + 1].
        indices: int32 [arcs], ascending in each row.
        in_indptr: int64 [vertices + 1] of in-edges; None if undirected.

    Raises:
        UserError: an undirected graph has an arc without its opposite, or there are 2³¹ edges or more.
    """
    slots = np.empty(len(indices), np.uint32)
    edges = len(indices) if in_indptr is not None else len(indices) // 2
    if edges >= 1 << 31:
        raise UserError("fields of edges are of fewer than 2³¹ edges", value=edges, remedy="Give a smaller graph")
    if in_indptr is None:
        if pair_arcs(indptr, indices, indptr[:-1].copy(), slots) < 0:
            raise UserError("an edge of an undirected graph is in the row of one end only",
                            remedy="Delete the graph's dataset and run again")  # fmt: skip
        return edges, slots, slots
    in_slots = np.empty(len(indices), np.uint32)
    in_slots_of(indptr, indices, in_indptr[:-1].copy(), in_slots)
    slots[:] = 2 * np.arange(len(indices), dtype=np.uint32)
    return edges, slots, in_slots
