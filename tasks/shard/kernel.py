"""The compiled loop of stage shard."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray


@nb.njit(nogil=True, cache=True)
def renumber_rows(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    owned: NDArray[Any],
    places: NDArray[Any],
    low: int,
    high: int,
    stamps: NDArray[np.int16],
    stamp: int,
    out: NDArray[Any],
    halo: NDArray[np.int64],
) -> int:
    """The rows of a part's nodes in new numbers, each in the order that it has.

    Args:
        indptr, indices: rows of the edge set.
        owned: old numbers of the part's nodes.
        places: new number of each node of the target set by its old one.
        low, high: new numbers of the part's own nodes of the target set.
        stamps: of the nodes of the target set by their new numbers; those that are met get this part's stamp.
        stamp: of this part, no other's.
        out: new numbers of the neighbours [edges], filled.
        halo: new numbers of neighbours of other parts that had another stamp, in the order in which they are met; with
            room for as many as there are edges.

    Returns:
        How many are in `halo`.
    """
    edge = met = 0
    for i in range(len(owned)):
        u = owned[i]
        for e in range(indptr[u], indptr[u + 1]):
            node = places[indices[e]]
            out[edge] = node
            edge += 1
            if (node < low or node >= high) and stamps[node] != stamp:
                stamps[node] = stamp
                halo[met] = node
                met += 1
    return met
