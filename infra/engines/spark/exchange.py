"""Work on executors in steps, between which what one task makes travels to others through a shuffle of Spark's.

A step is a function of its task's number and of what was sent to that task, always in the order of the senders, so that
a task that is run again, elsewhere, gives the same. All steps of an exchange are one job of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from superworkflow.infra.base.errors import StagedUserError, UserError
from superworkflow.infra.engines.spark.tasks import collected

Item = TypeVar("Item")
Sent = tuple[int, Any]
"""(task of the next step, what it is sent)."""


class Step(NamedTuple):
    """Function that tasks apply to the arrays they received.

    Args:
        tasks: how many there are.
        function: of a task's number and the list of what was sent to it; importable on executors, or a partial of such
            a one. It gives pairs `Sent`; that of the last step gives a small result.
    """

    tasks: int
    function: Callable[[int, list[Any]], Any]


class _Fault(NamedTuple):
    """A `UserError` of a task, which travels on to all later ones, so that none works on a part of its input."""

    step: int
    task: int
    message: str


def exchange(session: Any, items: Sequence[Item], send: Callable[[Item], Iterator[Sent]], *steps: Step) -> list[Any]:
    """Send from a task for each item to those of the first step, and so on; results of the last step's tasks.

    A task that is sent nothing works all the same.

    Args:
        session: an open `SparkSession`.
        items: what the first tasks are given, one each.
        send: gives pairs `Sent` of an item.
        steps: at least one.

    Raises:
        UserError: a task raised one; of several, that of the earliest step and its first task.
        TaskFailed: a task failed as often as it may.
    """
    if not steps[-1].tasks:
        return []
    numbered = session.sparkContext.parallelize(list(enumerate(items)), max(1, len(items)))
    data = numbered.mapPartitions(partial(_begin, send, steps[0].tasks))
    for number, step in enumerate(steps):
        following = steps[number + 1].tasks if number + 1 < len(steps) else 0
        data = data.partitionBy(step.tasks, _itself).mapPartitionsWithIndex(
            partial(_take, step.function, number + 1, following)
        )
    results: dict[int, Any] = {}
    faults: list[_Fault] = []
    for task, result in collected(data):
        if isinstance(result, _Fault):
            faults.append(result)
        else:
            results[task] = result
    if faults:
        raise StagedUserError(min(faults).message)
    return [results[task] for task in range(steps[-1].tasks)]


def shuffled_bytes(session: Any) -> int:
    """Bytes that all tasks of a session have written for its shuffles so far."""
    context = session.sparkContext
    gateway = context._gateway
    none = gateway.new_array(gateway.jvm.double, 0)
    stages = context._jsc.sc().statusStore().stageList(None, False, False, none, gateway.jvm.java.util.ArrayList())
    return sum(stages.apply(index).shuffleWriteBytes() for index in range(stages.size()))


def _itself(task: int) -> int:
    return task


def _begin(send: Callable[[Any], Iterator[Sent]], tasks: int, items: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    for number, item in items:
        yield from _told(send(item), 0, number, tasks)


def _take(
    function: Callable[[int, list[Any]], Any], step: int, following: int, task: int, sent: Iterator[Any]
) -> Iterator[Any]:
    # All is taken before the work: Spark ends Python processes that leave a rest, and their kernels with them.
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
        yield from _told(function(task, parts), step, task, following)
        return
    try:
        yield task, function(task, parts)
    except UserError as error:
        yield task, _Fault(step, task, str(error))


def _told(sent: Iterator[Sent], step: int, sender: int, tasks: int) -> Iterator[Any]:
    """Message with its sender; after a fault, the fault is sent to all instead."""
    try:
        for task, what in sent:
            yield task, (sender, what)
    except UserError as error:
        for task in range(tasks):
            yield task, (sender, _Fault(step, sender, str(error)))
