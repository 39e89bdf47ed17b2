"""Tasks of engines in tests: in turn in this process, or on sessions of Spark and Dask that all tests share."""

import contextlib
import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.engines.spark.session import spark_session
from superworkflow.infra.engines.spark.tasks import SparkTasks
from superworkflow.infra.engines.task_session import Take, TaskSession

IN_TURN = "dask"
"""Engine of stages in tests with the fixture `in_turn`."""


class InTurn(TaskSession):
    """Tasks that run here, one after the other; what they are sent is pickled, as on engines."""

    def __init__(self, job: Any, whole_members: bool = False):
        threads = job.threads if whole_members else 1
        super().__init__("here", job.threads // threads, threads, job.resources.memory // 2, job.scratch)

    def _map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        return [_copy(_copy(function)(_copy(item))) for item in items]

    def _shuffle(
        self, begin: Callable[[Any], Iterable[Any]], items: Sequence[Any], takes: Sequence[tuple[int, Take]]
    ) -> list[Any]:
        sent = [_copy(pair) for item in items for pair in _copy(begin)(_copy(item))]
        for tasks, take in takes:
            given: list[list[Any]] = [[] for _ in range(tasks)]
            for pair in reversed(sent):  # the order in which they come is by chance
                given[pair[0]].append(pair)
            sent = [_copy(pair) for task in range(tasks) for pair in _copy(take)(task, iter(given[task]))]
        return sent


@contextlib.contextmanager
def in_turn(job: Any, whole_members: bool = False) -> Iterator[InTurn]:
    """An engine's `tasks`."""
    yield InTurn(job, whole_members)


def _copy(what: Any) -> Any:
    return pickle.loads(pickle.dumps(what))


def shared_spark(job: Any, whole_members: bool = False) -> Any:
    """An engine's `tasks`: those of the session that a module's tests share."""
    return contextlib.nullcontext(SparkTasks(_OPEN["spark"], job, whole_members))


_OPEN: dict[str, Any] = {}


@contextlib.contextmanager
def spark_opened(folder: Path) -> Iterator[None]:
    """A session for `shared_spark`: starting one takes longer than what a test does with it."""
    progress = Progress("tests", stream=io.StringIO())
    job = SimpleNamespace(
        progress=progress, resources=Resources(cpu=2, memory=1 << 30), scratch=folder, engine_settings={}
    )  # fmt: skip
    with spark_session(cast("Any", job)) as _OPEN["spark"]:
        yield
    del _OPEN["spark"]


@contextlib.contextmanager
def dask_scheduler(folder: Path) -> Iterator[str]:
    """Address of a scheduler with two workers."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0",
        local_directory=str(folder), silence_logs="CRITICAL",
    ) as cluster:  # fmt: skip
        yield cluster.scheduler_address
