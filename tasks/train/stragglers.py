"""Stragglers of a worker group: one that is much slower than the others is named, with the wait it causes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.tasks.lib.distributed.exchange import Exchange

SLOW = 2.0
"""So many times the median of the others' work is told."""
_LEAST_SECONDS = 1.0


class StragglerStats:
    """Seconds that a worker has worked, and that its training has waited, since the last comparison.

    Args:
        exchange: with the others, of the thread that trains.
        worker: this one.
    """

    def __init__(self, exchange: Exchange, worker: Worker):
        self._exchange, self._worker = exchange, worker
        self._began, self._worked, self._waited = time.monotonic(), 0.0, 0.0

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the block as waiting."""
        began = time.monotonic()
        yield
        self._waited += time.monotonic() - began

    def compare(self, epoch: int, worked: float) -> None:
        """Compare an epoch's work; all workers call it. The first one tells who is slow.

        Args:
            epoch: its number.
            worked: seconds in which this worker has worked since training began, in whatever thread.
        """
        whole = time.monotonic() - self._began
        mine = np.array([[worked - self._worked, self._waited]])
        found = self._exchange.everyone(mine, "paces", alike=True)
        slow = slow_one(found)
        if slow is not None and self._worker.rank == 0:
            rank, times = slow
            waited = float(np.delete(found[:, 1], rank).mean())
            self._worker.log(
                f"epoch {epoch}: rank {rank} is {times:.1f} times slower than the others, which waited {waited:.1f} of "
                f"{whole:.1f} seconds"
            )
        self._began, self._worked, self._waited = time.monotonic(), worked, 0.0


def slow_one(seconds: NDArray[np.float64]) -> tuple[int, float] | None:
    """Rank of a worker that is much slower than the others, and how many times; None where there is none.

    Args:
        seconds: worked and waited by each rank [workers, 2].
    """
    worked = seconds[:, 0]
    if len(worked) < 2:
        return None
    rank = int(worked.argmax())
    others = float(np.median(np.delete(worked, rank)))
    if worked[rank] < _LEAST_SECONDS or worked[rank] < SLOW * others:
        return None
    return rank, float(worked[rank] / max(others, 1e-9))
