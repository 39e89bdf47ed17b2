"""Stragglers of a worker group: a worker much slower than the others is logged, with the wait that it causes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.tasks.lib.distributed.exchange import Exchange

SLOW = 2.0
"""A worker is logged from this multiple of the median of the others' work."""
_LEAST_SECONDS = 1.0


class StragglerStats:
    """Seconds that a worker has worked, and that its training has waited, since the last comparison.

    Args:
        exchange: exchange of the thread that trains.
        worker: this worker.
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
        """Compare an epoch's work; the first worker logs a straggler. Collective.

        Args:
            epoch: number of the epoch.
            worked: seconds that this worker has worked since training began, in all threads.
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
    """Rank of a worker that is much slower than the others, and by what factor; None if there is none.

    Args:
        seconds: seconds worked and waited by each rank [workers, 2].
    """
    worked = seconds[:, 0]
    if len(worked) < 2:
        return None
    rank = int(worked.argmax())
    others = float(np.median(np.delete(worked, rank)))
    if worked[rank] < _LEAST_SECONDS or worked[rank] < SLOW * others:
        return None
    return rank, float(worked[rank] / max(others, 1e-9))
