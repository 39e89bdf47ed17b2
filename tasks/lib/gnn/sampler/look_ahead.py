"""Preparation of the next batches while one is trained on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import NeighborSampler

S = TypeVar("S")
T = TypeVar("T")


class LookAhead:
    """Prepares batches in threads, some steps ahead of the consumer; their order is the order of the steps.

    Args:
        make: makes the sampler of one thread.
        threads: number of threads, in addition to the one that trains.
        window: maximum of batches that are ready or being prepared; 0 prepares them in the consumer's thread.
    """

    def __init__(self, make: Callable[[], NeighborSampler], threads: int, window: int):
        self._window = window
        self._samplers: SimpleQueue[NeighborSampler] = SimpleQueue()
        for _ in range(threads if window else 1):
            self._samplers.put(make())
        self._pool = ThreadPoolExecutor(threads) if window else None

    def each(self, prepare: Callable[[NeighborSampler, S], T], steps: Iterable[S]) -> Iterator[T]:
        """Results of `prepare` for each step, called with a sampler that no other thread uses at the time."""
        if self._pool is None:
            yield from (self._prepare(prepare, step) for step in steps)
            return
        running: deque[Future[T]] = deque()
        try:
            for step in steps:
                running.append(self._pool.submit(self._prepare, prepare, step))
                if len(running) > self._window:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for each in running:
                each.cancel()

    def _prepare(self, prepare: Callable[[NeighborSampler, S], T], step: S) -> T:
        sampler = self._samplers.get()
        try:
            return prepare(sampler, step)
        finally:
            self._samplers.put(sampler)

    def close(self) -> None:
        """End its threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
