"""Work on executors: a function for each item.

Executors share nothing with the driver but the store and the code. What comes back through the driver is small: names,
sizes, checksums and counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from superworkflow.infra.base.errors import (
    DataFileGone,
    DatasetDamaged,
    StagedUserError,
    SuperworkflowError,
    UserError,
)

_USER_ERRORS = tuple(
    f"superworkflow.infra.base.errors.{kind.__name__}"
    for kind in (UserError, StagedUserError, DatasetDamaged, DataFileGone)
)

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_tasks(session: Any, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Call `function` with each item in a task of its own, retried elsewhere if its process or machine is lost.

    Args:
        session: an open `SparkSession`.
        function: importable on executors, or a partial of such a one; writing must bear being done twice.
        items: what travels to the tasks.

    Returns:
        Small results, in the order of the items.

    Raises:
        UserError: a task raised one; it is not tried again.
        TaskFailed: a task failed as often as it may.
    """
    if not items:
        return []
    outcomes = collected(session.sparkContext.parallelize(items, len(items)).map(partial(_guarded, function)))
    for message, _ in outcomes:
        if message is not None:
            raise StagedUserError(message)
    return [cast("Result", result) for _, result in outcomes]


def collected(rdd: Any) -> list[Any]:
    """The small results of an RDD.

    Raises:
        UserError, TaskFailed: see `spark_errors`.
    """
    with spark_errors():
        return list(rdd.collect())


def _guarded(function: Callable[[Item], Result], item: Item) -> tuple[str | None, Result | None]:
    try:
        return None, function(item)
    except UserError as error:
        return str(error), None


class TaskFailed(SuperworkflowError):
    """A task on an executor failed as often as it may."""


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
