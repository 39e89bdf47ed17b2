"""The largest values of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numba as nb
import numpy as np
from numpy.typing import NDArray

_BLOCK_BYTES = 32 << 20


class Largest(NamedTuple):
    """Pairs of highest scores of some sources, by source and rank.

    Args:
        sources, targets: int64 [pairs].
        ranks: int32 [pairs], from 1.
        scores: float32 [pairs].
    """

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    ranks: NDArray[np.int32]
    scores: NDArray[np.float32]


def largest_in_blocks(
    sources: NDArray[np.int64], targets: int, k: int, scores_of: Callable[[NDArray[np.int64]], Any],
    left_out: Callable[[NDArray[np.int64]], Iterable[Any]],
) -> Iterator[tuple[int, Largest]]:  # fmt: skip
    """The k targets of highest score of each source, of equal scores the first, for some sources at a time.

    Args:
        sources: int64 [sources].
        targets: number of targets.
        k: targets of a source at most.
        scores_of: of some sources with all targets, a float32 array [sources, targets] that may be changed.
        left_out: indices of the scores of some sources that do not count.

    Yields:
        Number of the sources, and their pairs.
    """
    size = max(1, _BLOCK_BYTES // (4 * targets))
    for first in range(0, len(sources), size):
        own = sources[first : first + size]
        scores = scores_of(own)
        for index in left_out(own):
            scores[index] = -np.inf
        places = np.empty((len(own), min(k, targets)), np.int64)
        largest_of_rows(scores, places)
        rows, ranks = np.nonzero(places >= 0)
        found = places[rows, ranks]
        yield len(own), Largest(own[rows], found, (ranks + 1).astype(np.int32), scores[rows, found])


@nb.njit(cache=True, parallel=True)
def largest_of_rows(values: NDArray[np.float32], places: NDArray[Any]) -> None:
    """Find the largest values of each row, in descending order, of equal ones the first.

    Args:
        values: float32 [rows, columns].
        places: int64 [rows, k], filled with their columns; -1 where a row has fewer than k values above -inf.
    """
    for row in nb.prange(len(values)):
        own, found, count = values[row], places[row], 0
        for column in range(len(own)):
            value = own[column]
            if not value > (own[found[count - 1]] if count == len(found) else -np.inf):
                continue
            place = min(count, len(found) - 1)
            while place > 0 and value > own[found[place - 1]]:
                found[place] = found[place - 1]
                place -= 1
            found[place] = column
            count = min(count + 1, len(found))
        found[count:] = -1
