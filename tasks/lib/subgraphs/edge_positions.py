"""Compiled: positions of a set's edges as they are stored, the first of each source and the steps to the others.

Edges of one source lie in one row of the heterograph, so that steps are small, whereas its begin may be anywhere.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import DatasetDamaged
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()


def split_positions(
    starts: NDArray[np.int64], sources: NDArray[np.int32], positions: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64], NDArray[Any]]:
    """Split positions into their stored form.

    Args:
        starts: int64 [b + 1]: edges of subgraph s are those from ``starts[s]`` on to ``starts[s + 1]``.
        sources: places of their sources, int32 [e]; edges of one source are next to each other.
        positions: of the edges in the heterograph, int32 or int64 [e].

    Returns:
        starts of firsts [b + 1], firsts: positions of the edges that are the first of their source;
        starts of steps [b + 1], steps: differences of all others from the edge before them.
    """
    firsts, steps = np.empty_like(positions), np.empty_like(positions)
    first_starts = np.empty_like(starts)
    _split(starts, sources, positions, first_starts, firsts, steps)
    count = int(first_starts[-1])
    return first_starts, firsts[:count], starts - first_starts, steps[: len(positions) - count]


def joined_positions(
    starts: NDArray[np.int64], sources: NDArray[np.int32], firsts: NDArray[Any], steps: NDArray[Any]
) -> NDArray[Any]:
    """Positions of the edges, int32 or int64 [e]; the arguments are as in `split_positions`.

    Raises:
        DatasetDamaged: there are not as many firsts and steps as the edges have.
    """
    positions = np.empty(len(sources), firsts.dtype)
    if len(firsts) + len(steps) != len(sources) or not _join(starts, sources, firsts, steps, positions):
        raise DatasetDamaged(
            "positions of sampled edges do not fit their sources",
            remedy="Delete the dataset's folder and run again; it will be computed anew",
        )
    return positions


@nb.njit(nogil=True, cache=True)
def _split(starts: Any, sources: Any, positions: Any, first_starts: Any, firsts: Any, steps: Any) -> None:
    first, step = 0, 0
    first_starts[0] = 0
    for s in range(len(starts) - 1):
        last = np.int64(-1)
        for edge in range(starts[s], starts[s + 1]):
            if sources[edge] == last:
                steps[step] = positions[edge] - positions[edge - 1]
                step += 1
            else:
                firsts[first] = positions[edge]
                first += 1
                last = np.int64(sources[edge])
        first_starts[s + 1] = first


@nb.njit(nogil=True, cache=True)
def _join(starts: Any, sources: Any, firsts: Any, steps: Any, positions: Any) -> Any:
    """Fill `positions`; False if there are fewer firsts or steps than needed."""
    first, step = 0, 0
    for s in range(len(starts) - 1):
        last, position = np.int64(-1), np.int64(0)
        for edge in range(starts[s], starts[s + 1]):
            if sources[edge] == last:
                if step == len(steps):
                    return False
                position += steps[step]
                step += 1
            else:
                if first == len(firsts):
                    return False
                position = np.int64(firsts[first])
                first += 1
                last = np.int64(sources[edge])
            positions[edge] = position
    return True
