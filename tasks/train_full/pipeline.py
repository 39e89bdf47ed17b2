"""The scheduler: tasks of intervals run as soon as what they read is there, on threads of one process.

What it has a thread do is a job, a generator of work that needs no lock; threads, or those that `virtual_clock`
simulates, do it. Where there is a pool of tensor workers, `AV` is executed there while the thread does other tasks.

Every interval has its tasks in order. With `sync` a gather waits for the intervals that it reads, of the same epoch,
and an epoch begins when the one before has ended. With a staleness a gather reads what neighbours published last, so
only ends of epochs are waited for: with 0 all intervals are within one epoch, with S the fastest is S epochs ahead of
the slowest at most. The first epoch is always synchronous, so that there is something to read.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.tensor_tasks import TensorFacts
from superworkflow.tasks.train_full.timeline import ALL_INTERVALS, TimelineRow
from superworkflow.tasks.train_full.virtual_clock import Job, VirtualClock, Work
from superworkflow.tasks.train_full.weight_versions import WeightVersions
from superworkflow.tasks.train_full.whole_network import (
    AV,
    BACK,
    SC,
    VALIDATION,
    WU,
    IntervalState,
    NetworkWeights,
    Task,
    WholeNetwork,
)

if TYPE_CHECKING:
    from superworkflow.infra.engines.workers.calls import CallResult  # needs pyzmq

TRAINING = "training"


class Verdict(NamedTuple):
    """Decision on further epochs at the end of one.

    Args:
        is_over: training ends.
        is_sync: further epochs are synchronous.
    """

    is_over: bool
    is_sync: bool


class TensorPool(Protocol):
    """Tensor workers, which execute `AV`. Results come back on any thread."""

    @property
    def available(self) -> bool:
        """True if somebody is there."""

    def submit(
        self, facts: TensorFacts, versions: Mapping[int, NetworkWeights], version: int,
        arrays: Sequence[NDArray[Any]], ended: Callable[[CallResult | None], None],
    ) -> None:  # fmt: skip
        """Execute `tensor_tasks.compute` with a version of the weights, and pass its result on, None if nobody did."""

    def end_epoch(self, epoch: int, queue: float) -> None:
        """Adapt to the mean number of tasks that waited for a thread in an epoch."""


class Epochs(Protocol):
    """Work at the ends of epochs; one call at a time."""

    def update(self, epoch: int, losses: Sequence[float], gradients: Sequence[NetworkWeights]) -> NetworkWeights:
        """Weights after an update by the gradients of all intervals, in their order."""

    def end(self, epoch: int) -> Verdict:
        """Judge an epoch, whose validation is done."""


@dataclass
class _Course:
    """Position of an interval in training, or in validation."""

    purpose: str
    interval: int
    epoch: int
    place: int = 0
    version: int = -1
    busy: bool = False
    state: IntervalState = field(default_factory=IntervalState)


class _Arrival(NamedTuple):
    """A task that was sent to a tensor worker, the one that went with it, and the result."""

    task: Task
    following: Task | None
    course: _Course
    lead: int
    result: CallResult | None


class Pipeline:
    """Runs the epochs of training.

    Args:
        network: executes tasks.
        weights: the first version of the weights.
        epochs: what is done at their ends.
        first: number of the first epoch, from 0.
        last: number of epochs in all.
        staleness: None for synchronous epochs, else the most epochs that an interval may be ahead.
        threads: number of threads, or a clock that simulates them.
        pool: tensor workers, if any.
        fuses: they do two tasks in one call where no gather is between them.
    """

    def __init__(
        self, network: WholeNetwork, weights: WeightVersions, epochs: Epochs, first: int, last: int,
        staleness: int | None, threads: int | VirtualClock, pool: TensorPool | None = None, fuses: bool = True,
    ):  # fmt: skip
        self._pool, self._sent, self._arrived = pool, 0, deque[_Arrival]()
        self._queued, self._looks, self._fuses = 0, 0, fuses
        self._network, self._weights, self._epochs = network, weights, epochs
        self._first, self._last, self._staleness, self._threads = first, last, staleness, threads
        count = len(network.graph.intervals)
        self._programs = {TRAINING: network.training, VALIDATION: network.validation}
        purposes = [VALIDATION, TRAINING] if network.validation else [TRAINING]
        self._courses = [_Course(each, number, first) for each in purposes for number in range(count)]
        self._trained = [each for each in self._courses if each.purpose == TRAINING]
        self._validated = [each for each in self._courses if each.purpose == VALIDATION]
        tables = {task.table for tasks in self._programs.values() for task in tasks if task.kind == SC}
        self._published = {table: [first - 1] * count for table in tables}
        self._reading, self._writing = dict.fromkeys(tables, 0), dict.fromkeys(tables, 0)
        self._done: dict[int, dict[int, IntervalState]] = {}
        self._updated = self._judged = first
        self._sync_from, self._over, self._ending = last, first >= last, False
        self._changed, self._running = threading.Condition(), 0
        self._error: BaseException | None = None
        self._began = time.monotonic()
        self.timeline: list[TimelineRow] = []

    def run(self) -> None:
        """Run all epochs; what a task raises is raised here."""
        if isinstance(self._threads, VirtualClock):
            with _wide_numbers():
                self._threads.run(self._next, lambda: self._over)
            return
        others = [threading.Thread(target=self._work, args=(number,)) for number in range(1, self._threads)]
        for each in others:
            each.start()
        self._work(0)
        for each in others:
            each.join()
        if self._error is not None:
            raise self._error

    def _work(self, thread: int) -> None:
        with self._changed:
            while not self._over:
                job = self._next(thread)
                if job is None:
                    if not self._running and not self._sent:
                        self._error, self._over = RuntimeError("no task of the pipeline can run"), True
                    else:
                        self._changed.wait()
                    continue
                self._running += 1
                try:
                    self._drive(job)
                except BaseException as error:  # raised by `run`
                    self._error, self._over = self._error or error, True
                self._running -= 1
                self._changed.notify_all()
            self._changed.notify_all()

    def _drive(self, job: Job) -> None:
        """Do a job, its work without the lock."""
        with suppress(StopIteration):
            work = next(job)
            while True:
                begin = time.monotonic() - self._began
                self._changed.release()
                try:
                    with _wide_numbers():
                        work.do()
                    span = begin, time.monotonic() - self._began
                finally:
                    self._changed.acquire()
                work = job.send(span)

    def _next(self, thread: int) -> Job | None:
        """The next job of a thread."""
        if self._arrived:
            return self._take(self._arrived.popleft(), thread)
        if (
            not self._ending
            and self._updated > self._judged
            and all(each.epoch > self._judged for each in self._validated)
        ):
            return self._end_epoch()
        if (
            not self._ending
            and self._updated == self._judged
            and len(self._done.get(self._updated, ())) == len(self._trained)
        ):
            return self._update(thread)
        ready = [each for each in self._courses if not each.busy and self._is_ready(each)]
        self._queued, self._looks = self._queued + len(ready), self._looks + 1
        if not ready:
            return None
        return self._execute(min(ready, key=self._rank), thread)

    def _rank(self, course: _Course) -> tuple[bool, int, int, int]:
        """Validation first, then the earliest epoch; there all intervals side by side, or without waits each by itself,
        whose rows are then still in the cache."""
        place = course.place if self._is_sync(course.epoch) else -course.place
        return course.purpose == TRAINING, course.epoch, place, course.interval

    def _is_sync(self, epoch: int) -> bool:
        return self._staleness is None or epoch == self._first or epoch >= self._sync_from

    def _is_ready(self, course: _Course) -> bool:
        task, sync = self._programs[course.purpose][course.place], self._is_sync(course.epoch)
        if course.purpose == VALIDATION:
            if not course.place:
                return self._updated > course.epoch == self._judged
            return not task.gathers or self._has_published(task, course)
        if not course.place and not self._may_begin(course.epoch):
            return False
        if task.gathers:
            return self._has_published(task, course) if sync else not self._writing[task.table]
        return task.kind != SC or sync or not self._reading[task.table]

    def _may_begin(self, epoch: int) -> bool:
        """True if an interval may begin an epoch."""
        if epoch >= self._last:
            return False
        if self._is_sync(epoch) or not self._staleness or epoch == self._first + 1:
            return self._judged >= epoch
        return epoch <= min(each.epoch for each in self._trained) + self._staleness

    def _has_published(self, task: Task, course: _Course) -> bool:
        reads = self._network.graph.reads_back if task.way == BACK else self._network.graph.reads
        published = self._published[task.table]
        return all(published[each] >= course.epoch for each in reads[course.interval].nonzero()[0])

    def _execute(self, course: _Course, thread: int) -> Job:
        task = self._programs[course.purpose][course.place]
        if not course.place:
            course.version, course.state = self._weights.acquire(), IntervalState()
        weights, counted = self._weights.weights(course.version), None
        lead = course.epoch - min(each.epoch for each in self._trained) if course.purpose == TRAINING else 0
        oldest = course.epoch
        if task.gathers:
            counted = self._reading
            reads = self._network.graph.reads_back if task.way == BACK else self._network.graph.reads
            oldest = min(self._published[task.table][each] for each in reads[course.interval].nonzero()[0])
        elif task.kind == SC:
            counted = self._writing
        if counted is not None:
            counted[task.table] += 1
        course.busy = True
        interval = self._network.graph.intervals[course.interval]
        if task.kind == AV and self._pool is not None and self._pool.available:
            yield self._send(self._pool, task, course, lead)
            return
        epoch, state = course.epoch, course.state
        begin, end = yield Work(
            lambda: self._network.execute(task, interval, epoch, weights, state), task, course.interval
        )
        if counted is not None:
            counted[task.table] -= 1
        if task.kind == SC:
            self._published[task.table][course.interval] = course.epoch
        self._note(task, course, thread, lead, oldest, begin, end)

    def _send(self, pool: TensorPool, task: Task, course: _Course, lead: int) -> Work:
        """The work of having a tensor worker do a task; `_take` continues with it."""
        weights = self._weights.weights(course.version)
        interval, versions = self._network.graph.intervals[course.interval], self._weights.all()
        following = self._network.following(task) if self._fuses else None
        self._sent += 1

        def arrive(result: CallResult | None) -> None:
            with self._changed:
                self._sent -= 1
                self._arrived.append(_Arrival(task, following, course, lead, result))
                self._changed.notify()

        def send() -> None:
            facts, _, arrays = self._network.tensor_call(
                task, interval, course.epoch, weights[task.layer], course.state, following
            )
            pool.submit(facts, versions, course.version, arrays, arrive)

        return Work(send, task, course.interval)

    def _take(self, arrival: _Arrival, thread: int) -> Job:
        """Continue with a task that a tensor worker has done, or do it here if none has."""
        task, following, course, lead, result = arrival
        interval, state = self._network.graph.intervals[course.interval], course.state
        weights = self._weights.weights(course.version)
        if result is None:
            begin, end = yield Work(
                lambda: self._network.execute(task, interval, course.epoch, weights, state), task, course.interval
            )
            self._note(task, course, thread, lead, course.epoch, begin, end)
            return
        thread, begin, end = -1 - result.member, result.begun - self._began, result.ended - self._began
        if following is None:
            yield Work(
                lambda: self._network.take_results(task, interval, weights[task.layer], state, result.arrays), task,
                course.interval,
            )  # fmt: skip
            self._note(task, course, thread, lead, course.epoch, begin, end)
            return
        yield Work(
            lambda: self._network.take_both(task, following, interval, weights, state, result.arrays), task,
            course.interval,
        )  # fmt: skip
        self._note(task, course, thread, lead, course.epoch, begin, end)
        self._note(following, course, thread, lead, course.epoch, end, end)

    def _note(self, task: Task, course: _Course, thread: int, lead: int, oldest: int, begin: float, end: float) -> None:
        """A task of an interval is done."""
        course.busy = False
        self.timeline.append(
            TimelineRow(course.epoch + 1, *task, course.interval, thread, course.version, lead, oldest + 1, begin, end)
        )
        course.place += 1
        if course.place == len(self._programs[course.purpose]):
            self._end_course(course)

    def _end_course(self, course: _Course) -> None:
        """An interval has done all tasks of an epoch."""
        self._weights.release(course.version)
        if course.purpose == TRAINING:
            self._done.setdefault(course.epoch, {})[course.interval] = course.state
        course.epoch, course.place = course.epoch + 1, 0

    def _update(self, thread: int) -> Job:
        epoch, version, made = self._updated, self._weights.latest, list[NetworkWeights]()
        states = [state for _, state in sorted(self._done.pop(epoch).items())]
        gradients = [[each.gradients[layer] for layer in sorted(each.gradients)] for each in states]
        losses, self._ending = [each.loss for each in states], True
        begin, end = yield Work(lambda: made.append(self._epochs.update(epoch, losses, gradients)), is_update=True)
        self._ending = False
        self._weights.add(made[0])
        self.timeline.append(
            TimelineRow(epoch + 1, BACK, WU, -1, ALL_INTERVALS, thread, version, 0, epoch + 1, begin, end)
        )
        self._updated += 1

    def _end_epoch(self) -> Job:
        epoch, verdicts, self._ending = self._judged, list[Verdict](), True
        yield Work(lambda: verdicts.append(self._epochs.end(epoch)))
        (verdict,), self._ending = verdicts, False
        if self._pool is not None:
            self._pool.end_epoch(self._judged + 1, self._queued / max(1, self._looks))
            self._queued = self._looks = 0
        self._judged += 1
        if verdict.is_sync:
            begun = max(each.epoch - (not each.place and not each.busy) for each in self._trained)
            self._sync_from = min(self._sync_from, begun + 1)
        self._over = self._over or verdict.is_over or self._judged >= self._last


def _wide_numbers() -> AbstractContextManager[None]:
    """Numbers may overflow within: a loss that is not finite is refused."""
    return np.errstate(over="ignore", invalid="ignore")
