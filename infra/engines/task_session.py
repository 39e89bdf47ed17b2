"""Tasks of a stage on the members of an engine: a function for each item, and exchanges between tasks.

`open_tasks(job)` opens them on the job's engine, whichever it is. Tasks share nothing with the stage's process but the
store and the code; they write files of the dataset by a `TaskWriter`, which the stage adopts. What comes back is small:
names, sizes, checksums and counts.

An exchange is work in steps, between which what one task makes travels to others. A step is a function of its task's
number and of what was sent to that task, always in the order of the senders, so that a task that is run again,
elsewhere, gives the same.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from superworkflow.infra.base.errors import StagedUserError, SuperworkflowError, UserError
from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.contract.stage import StageRun
from superworkflow.infra.engines import engine

TASK_ATTEMPTS = 4
"""Times that a task is tried before the stage fails."""

Item = TypeVar("Item")
Result = TypeVar("Result")
P = ParamSpec("P")
Sent = tuple[int, Any]
"""(task of the next step, what it is sent)."""
Take = Callable[[int, Iterator[Any]], Iterator[Any]]
"""A step as engines run it: (task, all pairs that were sent to it) to pairs, of which the first is a task."""


class Step(NamedTuple):
    """Function that tasks apply to what they received.

    Args:
        tasks: how many there are.
        function: of a task's number and the list of what was sent to it; importable by members, or a partial of such
            a one. It gives pairs `Sent`; that of the last step gives a small result.
    """

    tasks: int
    function: Callable[[int, list[Any]], Any]


class TaskFailed(SuperworkflowError):
    """A task failed as often as it may, or its engine was lost."""


class TaskSession(ABC):
    """Members of an engine that run tasks for one stage. An engine implements `_map` and `_shuffle`.

    Args:
        name: of this session, unlike all others; for folders on the members' disks.
        slots: tasks at a time.
        threads: of each task.
        task_memory: bytes for a task.
        scratch: folder that all tasks share, as members are on this machine; None where they are elsewhere.
    """

    def __init__(self, name: str, slots: int, threads: int, task_memory: int, scratch: Path | None):
        self.name, self.slots, self.threads, self.task_memory = name, slots, threads, task_memory
        self.scratch = None if scratch is None else str(scratch)

    def run_tasks(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Call `function` with each item in a task of its own, retried elsewhere if its process or machine is lost.

        Args:
            function: importable by members, or a partial of such a one; writing must bear being done twice.
            items: what travels to the tasks.

        Returns:
            Small results, in the order of the items.

        Raises:
            UserError: a task raised one; it is not tried again.
            TaskFailed: a task failed as often as it may.
        """
        outcomes = self._map(partial(_guarded, function), items) if items else []
        for message, _ in outcomes:
            if message is not None:
                raise StagedUserError(message)
        return [cast("Result", result) for _, result in outcomes]

    def exchange(self, items: Sequence[Item], send: Callable[[Item], Iterator[Sent]], *steps: Step) -> list[Any]:
        """Send from a task for each item to those of the first step, and so on; results of the last step's tasks.

        A task that is sent nothing works all the same.

        Args:
            items: what the first tasks are given, one each.
            send: gives pairs `Sent` of an item.
            steps: at least one.

        Raises:
            UserError: a task raised one; of several, that of the earliest step and its first task.
            TaskFailed: a task failed as often as it may.
        """
        if not steps[-1].tasks:
            return []
        following = [*(step.tasks for step in steps[1:]), 0]
        takes: list[tuple[int, Take]] = [
            (step.tasks, partial(_take, step.function, number + 1, following[number]))
            for number, step in enumerate(steps)
        ]
        results: dict[int, Any] = {}
        faults: list[_Fault] = []
        for task, result in self._shuffle(partial(_begin, send, steps[0].tasks), list(enumerate(items)), takes):
            if isinstance(result, _Fault):
                faults.append(result)
            else:
                results[task] = result
        if faults:
            raise StagedUserError(min(faults).message)
        return [results[task] for task in range(steps[-1].tasks)]

    def shuffled_bytes(self) -> int:
        """Bytes that tasks have sent each other so far; 0 where the engine does not count them."""
        return 0

    @abstractmethod
    def _map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Results of a function that raises no `UserError`, in the order of the items."""

    @abstractmethod
    def _shuffle(
        self, begin: Callable[[Any], Iterable[Any]], items: Sequence[Any], takes: Sequence[tuple[int, Take]]
    ) -> list[Any]:
        """Pairs that the last step's tasks give.

        Args:
            begin: gives pairs (task of the first step, what it is sent) of an item.
            items: see `exchange`.
            takes: number of tasks and the function of each step.
        """


def open_tasks(job: StageRun[Any], whole_members: bool = False) -> AbstractContextManager[TaskSession]:
    """Tasks on the engine of a stage's run, closed at the end, whatever happens.

    While they are open, `job.progress` follows them.

    Args:
        job: the stage's run.
        whole_members: a task has all cores of a member, and so each member one task at a time.

    Raises:
        UserError: what the engine needs is missing.
    """
    opened = imported(engine(job.engine).tasks)(job, whole_members)
    return cast("AbstractContextManager[TaskSession]", opened)


_CLEAR: list[Callable[[], None]] = []


def member_cache(function: Callable[P, Result]) -> Callable[P, Result]:
    """Keep results in a member's process while a session is open: `functools.cache` for tasks."""
    kept = functools.cache(function)
    _CLEAR.append(kept.cache_clear)
    return cast("Callable[P, Result]", kept)


def forget_results() -> None:
    """Forget what `member_cache` has kept, in a process that other sessions use later."""
    for clear in _CLEAR:
        clear()


class _Fault(NamedTuple):
    """A `UserError` of a task, which travels on to all later ones, so that none works on a part of its input."""

    step: int
    task: int
    message: str


def _guarded(function: Callable[[Item], Result], item: Item) -> tuple[str | None, Result | None]:
    try:
        return None, function(item)
    except UserError as error:
        return str(error), None


def _begin(send: Callable[[Any], Iterator[Sent]], tasks: int, item: tuple[int, Any]) -> Iterator[Any]:
    yield from _signed(send(item[1]), 0, item[0], tasks)


def _take(
    function: Callable[[int, list[Any]], Any], step: int, following: int, task: int, sent: Iterator[Any]
) -> Iterator[Any]:
    # All is taken before the work: some engine ends Python processes that leave a rest, and their kernels with them.
    given = sorted((each for _, each in sent), key=lambda each: each[0])
    fault = min((what for _, what in given if isinstance(what, _Fault)), default=None)
    if fault is not None:
        for to in range(following):
            yield to, (task, fault)
        if not following:
            yield task, fault
        return
    parts = [what for _, what in given]
    del given
    if following:
        yield from _signed(function(task, parts), step, task, following)
        return
    try:
        yield task, function(task, parts)
    except UserError as error:
        yield task, _Fault(step, task, str(error))


def _signed(sent: Iterator[Sent], step: int, sender: int, tasks: int) -> Iterator[Any]:
    """Message with its sender; after a fault, the fault is sent to all instead."""
    try:
        for task, what in sent:
            yield task, (sender, what)
    except UserError as error:
        for task in range(tasks):
            yield task, (sender, _Fault(step, sender, str(error)))
