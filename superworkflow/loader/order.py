"""Order of the subgraphs in an epoch, and division of its batches among processes.

Subgraphs are shuffled in pages of `PAGE` that are adjacent in files: first the pages, then all subgraphs within each
`WINDOW` of pages. Datasets of up to that size are shuffled fully. Random numbers come from (seed, epoch, page or
subgraph), so the order is the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.random import GAMMA, mix

PAGE = 512
WINDOW = 16
Numbers = NDArray[np.int64]


def windows(count: int, seed: int, epoch: int, shuffle: bool) -> Iterator[Numbers]:
    """Numbers of all subgraphs in the order of an epoch, in stretches whose pages are read together."""
    state = mix.py_func(np.array([seed % 2**64], np.uint64) + GAMMA * np.array([epoch % 2**64], np.uint64))
    pages = np.arange(-(-count // PAGE), dtype=np.int64)
    if shuffle:
        pages = _shuffled(pages, mix.py_func(state ^ np.uint64(1)))
    for first in range(0, len(pages), WINDOW):
        here = pages[first : first + WINDOW]
        numbers = (PAGE * here[:, None] + np.arange(PAGE)).reshape(-1)
        numbers = numbers[numbers < count]
        yield _shuffled(numbers, state) if shuffle else numbers


def _shuffled(numbers: Numbers, state: NDArray[np.uint64]) -> Numbers:
    return numbers[np.argsort(mix.py_func(state + GAMMA * (numbers.astype(np.uint64) + np.uint64(1))), kind="stable")]


def batch_spans(
    count: int, size: int, rank: int, ranks: int, worker: int, workers: int, drop_last: bool
) -> Iterator[range]:
    """Positions, in the order of an epoch, of the batches that one of several workers makes.

    Batch i belongs to rank ``i % ranks``, and each worker makes every `workers`-th batch of its rank. All ranks have
    equally many batches: surplus ones at the end are left out.

    Args:
        count: subgraphs.
        size: of a batch.
        rank, ranks: this rank, and the number of ranks.
        worker, workers: this worker of the rank, and the number of its workers.
        drop_last: leave out a smaller last batch.
    """
    batches = count // size if drop_last else -(-count // size)
    for number in range(rank + ranks * worker, batches // ranks * ranks, ranks * workers):
        yield range(number * size, min(count, (number + 1) * size))
