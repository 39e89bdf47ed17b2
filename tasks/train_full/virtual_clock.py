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

from superworkflow.tasks.train_full.layer_tasks import Task


class Work(NamedTuple):
    """Work of a job that does not need the scheduler's lock.

    Args:
        do: does it.
        task: the task that it is of, if any.
        interval: number of the task's interval.
        is_update: it updates the weights.
        is_end: it ends an epoch.
        received: bytes of another process that it takes in.
    """

    do: Callable[[], object]
    task: Task | None = None
    interval: int = 0
    is_update: bool = False
    is_end: bool = False
    received: int = 0


Span = tuple[float, float]
"""Begin and end, seconds."""
Job = Generator[Work, Span, None]
"""What the scheduler has a thread do: work, whose span it is sent, until it ends."""


class Machine(NamedTuple):
    """A machine with threads of its own on a virtual clock.

    Args:
        next_job: gives the next job of a thread, if there is one.
        is_over: says whether no more are to begin.
        seconds: of its work, which has sent this number of bytes to other processes.
    """

    next_job: Callable[[int], Job | None]
    is_over: Callable[[], bool]
    seconds: Callable[[Work, int], float]


class VirtualClock:
    """Simulated threads of one machine, or of several that send each other messages.

    Args:
        threads: number of threads of each.

    `now` is the simulated second.
    """

    def __init__(self, threads: int):
        self._threads, self.now = threads, 0.0
        self._order, self._events = itertools.count(), list[tuple[float, int, Callable[[], None]]]()
        self._sent, self._following = 0, list[Callable[[], None]]()

    def send(self, size: int, leave: Callable[[], None]) -> None:
        """Have bytes leave after the work that is being computed."""
        self._sent += size
        self._following.append(leave)

    def at(self, second: float, do: Callable[[], None]) -> None:
        """Have something done at a simulated second."""
        heapq.heappush(self._events, (second, next(self._order), do))

    def run(self, machines: Sequence[Machine]) -> None:
        """Run jobs until all machines are over; what their work raises is raised here."""
        free = [[*range(self._threads)] for _ in machines]
        while True:
            for machine, own in zip(machines, free, strict=True):
                while own and not machine.is_over() and (job := machine.next_job(own[0])) is not None:
                    self._begin(next(job), self.now, machine, own, heapq.heappop(own), job)
            if all(machine.is_over() for machine in machines):
                return
            if not self._events:
                raise RuntimeError("no task of the pipeline can run")
            self.now = self._events[0][0]
            while self._events and self._events[0][0] == self.now:
                heapq.heappop(self._events)[2]()

    def _begin(self, work: Work, now: float, machine: Machine, free: list[int], thread: int, job: Job) -> None:
        self._sent, self._following = 0, []
        work.do()
        end = now + machine.seconds(work, self._sent)
        for leave in self._following:
            self.at(end, leave)

        def continues() -> None:
            try:
                following = job.send((now, end))
            except StopIteration:
                heapq.heappush(free, thread)
            else:
                self._begin(following, end, machine, free, thread, job)

        self.at(end, continues)


class VirtualLink:
    """A link, on which what is sent follows one another.

    Args:
        clock: the clock.
        bits_s: bits a second.
    """

    def __init__(self, clock: VirtualClock, bits_s: float):
        self._clock, self._bits_s, self._free = clock, bits_s, 0.0

    def carry(self, size: int, come: Callable[[], None]) -> None:
        """Carry bytes from now on; `come` is called when all are there."""
        self._free = max(self._free, self._clock.now) + 8 * size / self._bits_s
        self._clock.at(self._free, come)
