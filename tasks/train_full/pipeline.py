"""The scheduler: tasks of intervals run as soon as what they read is there, on threads of one process.

What it has a thread do is a job, a generator of work that needs no lock; threads, or those that `virtual_clock`
simulates, do it. Where there is a pool of tensor workers, `AV` is executed there while the thread does other tasks.

Of several graph servers each has a pipeline of its own intervals, and a gather also waits for rows of the others.

Every interval has its tasks in order. With `sync` a gather waits for the intervals that it reads, of the same epoch,
and an epoch begins when the one before has ended. With a staleness a gather reads what neighbours published last, so
only ends of epochs are waited for: with 0 all intervals are within one epoch, with S the fastest is S epochs ahead of
the slowest at most. The first epoch is always synchronous, so that there is something to read.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from superworkflow.tasks.train_full.layer_tasks import AV, BACK, SC, VALIDATION, WU, IntervalState, Task
from superworkflow.tasks.train_full.partners import Epochs, Ghosts, Servers, TensorPool, Verdict
from superworkflow.tasks.train_full.timeline import ALL_INTERVALS, TimelineRow
from superworkflow.tasks.train_full.virtual_clock import Job, Machine, Work
from superworkflow.tasks.train_full.weight_versions import WeightVersions

if TYPE_CHECKING:
    from superworkflow.infra.engines.workers.calls import CallResult  # needs pyzmq
    from superworkflow.tasks.train_full.whole_network import NetworkWeights, WholeNetwork  # needs compiled kernels

TRAINING = "training"


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
        threads: number of threads of `run`.
        pool: tensor workers, if any.
        fuses: they do two tasks in one call where no gather is between them.
        servers: the other graph servers, if any.
    """

    def __init__(
        self, network: WholeNetwork, weights: WeightVersions, epochs: Epochs, first: int, last: int,
        staleness: int | None, threads: int, pool: TensorPool | None = None, fuses: bool = True,
        servers: Servers | None = None,
    ):  # fmt: skip
        self._pool, self._sent, self._arrived = pool, 0, deque[_Arrival]()
        self._queued, self._looks, self._fuses = 0, 0, fuses
        self._servers, self._added, self._adding, self._putting = servers, first, False, set[tuple[Any, int]]()
        self._network, self._weights, self._epochs = network, weights, epochs
        self._first, self._last, self._staleness, self._threads = first, last, staleness, threads
        count, own = len(network.graph.intervals), network.graph.own
        self._programs = {TRAINING: network.training, VALIDATION: network.validation}
        purposes = [VALIDATION, TRAINING] if network.validation else [TRAINING]
        self._courses = [_Course(each, number, first) for each in purposes for number in own]
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
        if servers is not None:
            servers.begin(self._wake, self._fail)

    def run(self) -> None:
        """Run all epochs; what a task raises is raised here."""
        others = [threading.Thread(target=self._work, args=(number,)) for number in range(1, self._threads)]
        for each in others:
            each.start()
        self._work(0)
        for each in others:
            each.join()
        if self._error is not None:
            raise self._error

    def machine(self, seconds: Callable[[Work, int], float]) -> Machine:
        """Machine of a virtual clock, which runs all epochs in place of `run`."""
        self._began = 0.0
        return Machine(self._next, lambda: self._over, seconds)

    def _work(self, thread: int) -> None:
        with self._changed:
            while not self._over:
                job = self._next(thread)
                if job is None:
                    if not self._running and not self._sent and self._servers is None:
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

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error, self._over = self._error or error, True
            self._changed.notify_all()

    def _drive(self, job: Job) -> None:
        """Do a job, its work without the lock."""
        with suppress(StopIteration):
            work = next(job)
            while True:
                begin = time.monotonic() - self._began
                self._changed.release()
                try:
                    with wide_numbers():
                        work.do()
                    span = begin, time.monotonic() - self._began
                finally:
                    self._changed.acquire()
                work = job.send(span)

    def _next(self, thread: int) -> Job | None:
        """The next job of a thread."""
        if self._arrived:
            return self._take(self._arrived.popleft(), thread)
        if self._servers is not None and (job := self._serve(self._servers)) is not None:
            return job
        if not self._ending and self._updated > self._judged and self._is_validated():
            return self._end_epoch()
        if not self._ending and self._updated == self._judged and self._is_trained():
            return self._update(thread)
        ready = [each for each in self._courses if not each.busy and self._is_ready(each)]
        self._queued, self._looks = self._queued + len(ready), self._looks + 1
        if not ready:
            return None
        return self._execute(min(ready, key=self._rank), thread)

    def _is_validated(self) -> bool:
        """True if the epoch that was trained last may end."""
        if self._servers is not None and not self._servers.may_end(self._judged):
            return False
        return all(each.epoch > self._judged for each in self._validated)

    def _is_trained(self) -> bool:
        """True if the gradients of the next update are there."""
        if self._servers is not None:
            return self._servers.has_sum(self._updated)
        return len(self._done.get(self._updated, ())) == len(self._trained)

    def _serve(self, servers: Servers) -> Job | None:
        """Work that the messages of other servers make possible."""
        for ghosts in list(servers.ghosts):
            table, key = ghosts.task.table, (ghosts.task, ghosts.interval)
            if key not in self._putting and (self._is_sync(ghosts.epoch) or not self._reading[table]):
                servers.ghosts.remove(ghosts)
                return self._put(servers, ghosts)
        if not self._adding and len(self._done.get(self._added, ())) == len(self._trained):
            return self._add(servers) if servers.may_add(self._added) else None
        return None

    def _put(self, servers: Servers, ghosts: Ghosts) -> Job:
        table, key = ghosts.task.table, (ghosts.task, ghosts.interval)
        self._putting.add(key)
        self._writing[table] += 1
        yield Work(lambda: servers.put(ghosts), received=len(ghosts.rows))
        self._writing[table] -= 1
        self._putting.remove(key)
        self._published[table][ghosts.interval] = ghosts.epoch

    def _add(self, servers: Servers) -> Job:
        epoch, self._adding = self._added, True
        losses, gradients = self._made(epoch)
        yield Work(lambda: servers.add(epoch, losses, gradients))
        self._added, self._adding = epoch + 1, False

    def _gradients(self, epoch: int) -> tuple[list[float], list[NetworkWeights]]:
        """Losses of all intervals, and their gradients, or of several servers their sum; once."""
        if self._servers is None:
            return self._made(epoch)
        return self._servers.sum(epoch)

    def _made(self, epoch: int) -> tuple[list[float], list[NetworkWeights]]:
        """Losses and gradients of its intervals, in their order; once."""
        states = [state for _, state in sorted(self._done.pop(epoch).items())]
        gradients: list[NetworkWeights] = [
            [each.gradients[layer] for layer in sorted(each.gradients)] for each in states
        ]  # fmt: skip
        return [each.loss for each in states], gradients

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
        return epoch <= self._slowest() + self._staleness

    def _slowest(self) -> int:
        """Epoch of the slowest interval; those of other servers have at least ended all that were judged."""
        if self._servers is not None:
            return self._judged
        return min(each.epoch for each in self._trained)

    def _has_published(self, task: Task, course: _Course) -> bool:
        reads = self._network.graph.reads_back if task.way == BACK else self._network.graph.reads
        published = self._published[task.table]
        return all(published[each] >= course.epoch for each in reads[course.interval].nonzero()[0])

    def _execute(self, course: _Course, thread: int) -> Job:
        task = self._programs[course.purpose][course.place]
        if not course.place:
            course.version, course.state = self._weights.acquire(), IntervalState()
        weights, counted = self._weights.weights(course.version), None
        lead = course.epoch - self._slowest() if course.purpose == TRAINING else 0
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

        def execute() -> None:
            self._network.execute(task, interval, epoch, weights, state)
            self._share(task, interval.number, epoch)

        begin, end = yield Work(execute, task, course.interval)
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

        return Work(send)

    def _take(self, arrival: _Arrival, thread: int) -> Job:
        """Continue with a task that a tensor worker has done, or do it here if none has."""
        task, following, course, lead, result = arrival
        interval, state = self._network.graph.intervals[course.interval], course.state
        weights = self._weights.weights(course.version)
        both, number, epoch = [task] if following is None else [task, following], course.interval, course.epoch

        def take() -> None:
            if result is None:
                self._network.execute(task, interval, epoch, weights, state)
            elif following is None:
                self._network.take_results(task, interval, weights[task.layer], state, result.arrays)
            else:
                self._network.take_both(task, following, interval, weights, state, result.arrays)
            self._share(both[-1], number, epoch)

        if result is None:
            both = [task]
            begin, end = yield Work(take, task, number)
        else:
            yield Work(take, received=sum(each.nbytes for each in result.arrays))
            thread, begin, end = -1 - result.member, result.begun - self._began, result.ended - self._began
        for each in both:
            self._note(each, course, thread, lead, epoch, begin if each is task else end, end)

    def _share(self, task: Task, interval: int, epoch: int) -> None:
        """Send other servers what a task has made for them."""
        if self._servers is not None:
            self._servers.executed(task, interval, epoch)

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
        epoch, version = self._updated, self._weights.latest
        made: list[NetworkWeights] = []
        losses, gradients = self._gradients(epoch)
        self._ending = True
        begin, end = yield Work(lambda: made.append(self._epochs.update(epoch, losses, gradients)), is_update=True)
        self._ending = False
        self._weights.add(made[0])
        self.timeline.append(
            TimelineRow(epoch + 1, BACK, WU, -1, ALL_INTERVALS, thread, version, 0, epoch + 1, begin, end)
        )
        self._updated += 1

    def _end_epoch(self) -> Job:
        epoch, verdicts, self._ending = self._judged, list[Verdict](), True
        yield Work(lambda: verdicts.append(self._epochs.end(epoch)), is_end=True)
        (verdict,), self._ending = verdicts, False
        if self._pool is not None:
            self._pool.end_epoch(self._judged + 1, self._queued / max(1, self._looks))
            self._queued = self._looks = 0
        self._judged += 1
        if verdict.is_sync:
            self._sync_from = min(self._sync_from, self._begun() + 1)
        self._over = self._over or verdict.is_over or self._judged >= self._last

    def _begun(self) -> int:
        """The last epoch that an interval has begun; of those of other servers, may have begun."""
        if self._servers is not None:
            return self._judged - 1 + (self._staleness or 0)
        return max(each.epoch - (not each.place and not each.busy) for each in self._trained)


def wide_numbers() -> AbstractContextManager[None]:
    """Numbers may overflow within: a loss that is not finite is refused."""
    return np.errstate(over="ignore", invalid="ignore")
