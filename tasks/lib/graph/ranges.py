"""Ranges of vertices of equal work."""

from __future__ import annotations

import numpy as np

from superworkflow.infra.storage.location import Location
from superworkflow.tasks.lib.graph.npy_slices import array_header, read_slice


def find_cuts(indptr: Location, parts: int, piece: int, first: int, last: int) -> list[tuple[int, int]]:
    """The cuts into ``parts`` at the vertices first..last - 1, with what is before them, for `VertexRanges.cut`.

    Every ``piece`` of the work reads its own part of the file `indptr.npy`; piece 0 adds the cut at vertex 0, the
    last one that at the end.
    """
    load = read_slice(indptr, first, last + 1) + np.arange(first, last + 1)
    n = array_header(indptr)[0] - 1
    total = int(read_slice(indptr, n, n + 1)[0]) + n
    wanted = np.arange(1, parts) * total // parts
    wanted = wanted[(wanted > load[0]) & (wanted <= load[-1])]
    cuts = np.searchsorted(load, wanted)
    ends = ([(0, 0)] if piece == 0 else []) + ([(n, total)] if last == n else [])
    return ends + [(first + int(i), int(load[i])) for i in cuts]
