"""Tasks on Spark's executors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from superworkflow.infra.base.errors import DataFileGone, DatasetDamaged, StagedUserError, UserError
from superworkflow.infra.contract.stage import StageRun
from superworkflow.infra.engines.spark.session import python_memory, runs_here, spark_session, task_cores
from superworkflow.infra.engines.task_session import Take, TaskFailed, TaskSession

_USER_ERRORS = tuple(
    f"superworkflow.infra.base.errors.{kind.__name__}"
    for kind in (UserError, StagedUserError, DatasetDamaged, DataFileGone)
)


class SparkTasks(TaskSession):
    """Tasks in an open `SparkSession`; all steps of an exchange are one job of Spark."""

    def __init__(self, session: Any, job: StageRun[Any], whole_members: bool = False):
        cores, executors = task_cores(job), job.resources.executors
        members = 1 if executors is None or runs_here(job) else executors.largest
        self.context = session.sparkContext
        super().__init__(
            self.context.applicationId, members if whole_members else members * cores, cores if whole_members else 1,
            python_memory(job.resources) // (1 if whole_members else cores), job.scratch if runs_here(job) else None,
        )  # fmt: skip

    def _map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        return _collected(self.context.parallelize(items, len(items)).map(function))

    def _shuffle(
        self, begin: Callable[[Any], Iterable[Any]], items: Sequence[Any], takes: Sequence[tuple[int, Take]]
    ) -> list[Any]:
        data = self.context.parallelize(items, max(1, len(items))).flatMap(begin)
        for tasks, take in takes:
            data = data.partitionBy(tasks, _itself).mapPartitionsWithIndex(take)
        return _collected(data)

    def shuffled_bytes(self) -> int:
        gateway = self.context._gateway
        none = gateway.new_array(gateway.jvm.double, 0)
        store = self.context._jsc.sc().statusStore()
        stages = store.stageList(None, False, False, none, gateway.jvm.java.util.ArrayList())
        return sum(stages.apply(index).shuffleWriteBytes() for index in range(stages.size()))


@contextlib.contextmanager
def spark_tasks(job: StageRun[Any], whole_members: bool = False) -> Iterator[SparkTasks]:
    """Open a session and run tasks in it; see `open_tasks`."""
    with spark_session(job, {"spark.task.cpus": str(task_cores(job))} if whole_members else None) as session:
        yield SparkTasks(session, job, whole_members)


def _itself(task: int) -> int:
    return task


def _collected(rdd: Any) -> list[Any]:
    with spark_errors():
        return list(rdd.collect())


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Spark's own errors in a few words: they hold the whole stacks of Java and of Python.

    Raises:
        UserError: a task raised one.
        TaskFailed: in place of all others.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        reason = failure_reason(str(error))
        kind, _, message = reason.partition(": ")
        if kind in _USER_ERRORS:
            raise StagedUserError(message) from None
        raise TaskFailed(f"a task on Spark failed: {reason}") from error


def failure_reason(text: str) -> str:
    """The line of an error of Spark that says why: of a Python task its last line, else Java's deepest cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    if python:
        end = python[-1] + 1
        while end < len(lines) and not lines[end].startswith(("at ", "Driver stacktrace", "Caused by")):
            end += 1
        return lines[end - 1]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return (causes[-1].removeprefix("Caused by: ") if causes else (lines or ["unknown cause"])[0])[:500]
