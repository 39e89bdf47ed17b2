"""The virtual clock: an executor of the scheduler that orders tasks by simulated seconds, so that async runs repeat.

Tasks are computed one after the other, each when it would begin on one of the simulated threads; what follows from it
follows when it would end. Results are a function of the parameters then, whatever the machine and its load.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from superworkflow.tasks.train_full.whole_graph import WholeGraph
from superworkflow.tasks.train_full.whole_network import AE, AV, BACK, GA, SC, Task

PER_MULTIPLICATION, PER_NUMBER, PER_ARC = 3.6e-11, 8e-10, {GA: 5e-10, AE: 1.8e-9}
"""Seconds of `AV` for a multiplication and addition, of `SC` for a number, of gathers for an arc and column: those of
one thread of an AMD EPYC with AVX2."""
PER_WEIGHT, PER_EPOCH = 2.5e-8, 1e-3
"""Seconds of an update for a weight, and of the end of an epoch."""


class Work(NamedTuple):
    """Work of a job that does not need the scheduler's lock.

    Args:
        do: does it.
        task: the task that it is of, if any.
        interval: number of the task's interval.
        is_update: it updates the weights.
    """

    do: Callable[[], object]
    task: Task | None = None
    interval: int = 0
    is_update: bool = False


Span = tuple[float, float]
"""Begin and end, seconds."""
Job = Generator[Work, Span, None]
"""What the scheduler has a thread do: work, whose span it is sent, until it ends."""


class NominalSeconds:
    """Seconds of work by its size.

    Args:
        graph: the graph.
        shapes: of each layer's matrix, width of the result and of what it reads.
    """

    def __init__(self, graph: WholeGraph, shapes: Sequence[tuple[int, int]]):
        self._graph, self._shapes = graph, shapes

    def __call__(self, work: Work) -> float:
        task = work.task
        if task is None:
            return PER_WEIGHT * sum(a * b for a, b in self._shapes) if work.is_update else PER_EPOCH
        first, last = self._graph.intervals[work.interval][1:]
        width, read = self._shapes[task.layer]
        if task.kind == AV:
            times = 2 if task.way == BACK and task.layer else 1
            return PER_MULTIPLICATION * times * (last - first) * width * read
        if task.kind == SC:
            return PER_NUMBER * (last - first) * width
        starts = (self._graph.back if task.way == BACK else self._graph.arcs).indptr
        return PER_ARC[task.kind] * (int(starts[last] - starts[first]) + last - first) * width


class VirtualClock:
    """Simulated threads.

    Args:
        threads: number of threads.
        seconds: of work.
    """

    def __init__(self, threads: int, seconds: Callable[[Work], float]):
        self._threads, self._seconds = threads, seconds
        self._order, self._running = itertools.count(), list[tuple[float, int, int, float, Job]]()

    def run(self, next_job: Callable[[int], Job | None], is_over: Callable[[], bool]) -> None:
        """Run jobs until it is over; what their work raises is raised here.

        Args:
            next_job: gives the next job of a thread, if there is one.
            is_over: says whether no more are to begin.
        """
        now, free = 0.0, [*range(self._threads)]
        while not is_over():
            while free and not is_over() and (job := next_job(free[0])) is not None:
                self._begin(next(job), now, heapq.heappop(free), job)
            if not self._running:
                raise RuntimeError("no task of the pipeline can run")
            now, _, thread, begun, job = heapq.heappop(self._running)
            try:
                work = job.send((begun, now))
            except StopIteration:
                heapq.heappush(free, thread)
            else:
                self._begin(work, now, thread, job)

    def _begin(self, work: Work, now: float, thread: int, job: Job) -> None:
        work.do()
        heapq.heappush(self._running, (now + self._seconds(work), next(self._order), thread, now, job))
