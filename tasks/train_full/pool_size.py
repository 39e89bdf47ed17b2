"""Number of tensor workers, adapted to the graph server's queue of tasks."""

from __future__ import annotations

MOST_AT_START = 100
_EPOCHS = 10
"""Epochs after which the size stays."""
_STILL = 0.1
"""Relative change of the queue that is none."""


class PoolSize:
    """Size of a pool after each epoch, as Dorylus (Thorpe et al., OSDI 2021, §5.2) chooses it.

    If the queue of tasks that wait for a thread grows, results come faster than threads continue with them: fewer
    workers do. If it shrinks, threads wait for results: more do. Each time that the direction turns, the step is
    halved; after ten epochs the size stays.

    Args:
        intervals: tasks that there may be at once.
        most: workers that there may be.
    """

    def __init__(self, intervals: int, most: int):
        self.size = max(1, min(intervals, MOST_AT_START, most))
        self._most, self._step, self._epochs = most, max(1.0, self.size / 2), 0
        self._queue, self._direction = -1.0, 0

    def next(self, queue: float) -> int:
        """Size for the next epoch.

        Args:
            queue: mean number of tasks that waited for a thread in the last one.
        """
        before, self._queue, self._epochs = self._queue, queue, self._epochs + 1
        if before < 0 or self._epochs > _EPOCHS or abs(queue - before) <= _STILL * max(1.0, before):
            return self.size
        direction = -1 if queue > before else 1
        if self._direction and direction != self._direction:
            self._step = max(1.0, self._step / 2)
        self._direction = direction
        self.size = max(1, min(self._most, round(self.size + direction * self._step)))
        return self.size
