"""The virtual clock: an executor of the scheduler that orders tasks by simulated seconds, so that async runs repeat.

Tasks are computed one after the other, each when it would begin on one of the simulated threads; what follows from it
follows when it would end. Of several graph servers each has threads, and a link on which its messages follow one
another. Results are a function of the parameters then, whatever the machine and its load.
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
        numbers: that it moves, of work without a task.
    """

    do: Callable[[], object]
    task: Task | None = None
    interval: int = 0
    is_update: bool = False
    numbers: int = 0


Span = tuple[float, float]
"""Begin and end, seconds."""
Job = Generator[Work, Span, None]
"""What the scheduler has a thread do: work, whose span it is sent, until it ends."""


class NominalSeconds:
    """Seconds of work by its size.

    Args:
        graph: the graph, or the part of a server.
        shapes: of each layer's matrix, width of the result and of what it reads.
    """

    def __init__(self, graph: WholeGraph, shapes: Sequence[tuple[int, int]]):
        self._graph, self._shapes = graph, shapes

    def __call__(self, work: Work) -> float:
        task = work.task
        if task is None:
            if work.numbers:
                return PER_NUMBER * work.numbers
            return PER_WEIGHT * sum(a * b for a, b in self._shapes) if work.is_update else PER_EPOCH
        rows = self._graph.rows_of(self._graph.intervals[work.interval])
        first, last = int(rows.start), int(rows.stop)
        width, read = self._shapes[task.layer]
        if task.kind == AV:
            times = 2 if task.way == BACK and task.layer else 1
            return PER_MULTIPLICATION * times * (last - first) * width * read
        if task.kind == SC:
            return PER_NUMBER * (last - first) * width
        starts = (self._graph.back if task.way == BACK else self._graph.arcs).indptr
        return PER_ARC[task.kind] * (int(starts[last] - starts[first]) + last - first) * width


class Machine(NamedTuple):
    """A machine with threads of its own on a virtual clock.

    Args:
        next_job: gives the next job of a thread, if there is one.
        is_over: says whether no more are to begin.
        seconds: of its work.
    """

    next_job: Callable[[int], Job | None]
    is_over: Callable[[], bool]
    seconds: Callable[[Work], float]


class VirtualClock:
    """Simulated threads of one machine, or of several that send each other messages.

    Args:
        threads: number of threads of each.

    `ends` is the simulated second at which the work ends that is being computed.
    """

    def __init__(self, threads: int):
        self._threads, self.ends = threads, 0.0
        self._order, self._events = itertools.count(), list[tuple[float, int, Callable[[], None]]]()

    def at(self, second: float, do: Callable[[], None]) -> None:
        """Have something done at a simulated second."""
        heapq.heappush(self._events, (second, next(self._order), do))

    def run(self, machines: Sequence[Machine]) -> None:
        """Run jobs until all machines are over; what their work raises is raised here."""
        now, free = 0.0, [[*range(self._threads)] for _ in machines]
        while True:
            for machine, own in zip(machines, free, strict=True):
                while own and not machine.is_over() and (job := machine.next_job(own[0])) is not None:
                    self._begin(next(job), now, machine, own, heapq.heappop(own), job)
            if all(machine.is_over() for machine in machines):
                return
            if not self._events:
                raise RuntimeError("no task of the pipeline can run")
            now, _, do = heapq.heappop(self._events)
            do()

    def _begin(self, work: Work, now: float, machine: Machine, free: list[int], thread: int, job: Job) -> None:
        self.ends = end = now + machine.seconds(work)
        work.do()

        def continues() -> None:
            try:
                following = job.send((now, end))
            except StopIteration:
                heapq.heappush(free, thread)
            else:
                self._begin(following, end, machine, free, thread, job)

        self.at(end, continues)
