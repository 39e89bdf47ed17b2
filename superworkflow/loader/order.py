"""In which order an epoch goes through the subgraphs, and who of several makes which batch.

Subgraphs are shuffled as pages of `PAGE` that lie together in files: pages are put in a random order, and within each
`WINDOW` of them all subgraphs are. Up to that many, all subgraphs are shuffled. Random numbers come from (seed, epoch,
page or subgraph), so the order is the same in every process.
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
    """Places in the order of an epoch of each batch that one of several workers makes.

    Batch i is rank ``i % ranks``'s, and of a rank's batches each worker makes every `workers`-th. All ranks have
    equally many batches: those that are left over at the end are nobody's.

    Args:
        count: subgraphs.
        size: of a batch.
        rank, ranks: whose batches, and of how many.
        worker, workers: which ones of them.
        drop_last: leave a last batch out that is smaller.
    """
    batches = count // size if drop_last else -(-count // size)
    for number in range(rank + ranks * worker, batches // ranks * ranks, ranks * workers):
        yield range(number * size, min(count, (number + 1) * size))
