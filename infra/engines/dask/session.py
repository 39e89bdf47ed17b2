"""Tasks on Dask's workers, for one stage.

Results of tasks stay with their workers and travel between these; the stage's process receives those of the last ones.
When a worker is lost, Dask makes again what it had. Workers of a scheduler that is there already must reach the
store, have this program, and find no other work of ours: a worker runs one task of ours at a time. Workers in pods of
the stage's own call the scheduler in its process, over TLS.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from superworkflow.infra.base.errors import StagedUserError, UserError
from superworkflow.infra.base.extras import install_line
from superworkflow.infra.contract.progress import INTERVAL_SECONDS, Progress
from superworkflow.infra.contract.resources import Group
from superworkflow.infra.contract.stage import StageRun
from superworkflow.infra.engines.lifeline import hold_lifeline
from superworkflow.infra.engines.shared_dataset import MEMBER_FOLDER
from superworkflow.infra.engines.task_session import TASK_ATTEMPTS, Take, TaskFailed, TaskSession, forget_results

CONNECT_SECONDS = 20
"""Seconds in which a scheduler must answer, and workers of a local cluster must be there."""
SCHEDULER_PORT, LIFE_PORT = 8786, 8785
"""Ports of a stage whose workers are pods: its pod has an address of its own."""
WHOLE_MEMBERS = "whole-members"
"""Name of what the scheduler says to pods: true for one process with all cores, false for one for each."""
CONFIG = {
    "distributed.worker.memory.terminate": False,  # a stage that needs too much ends as in process, by the system
    "distributed.worker.memory.pause": False,
    "distributed.scheduler.allowed-failures": TASK_ATTEMPTS - 1,
    "distributed.comm.timeouts.connect": CONNECT_SECONDS,
    "distributed.diagnostics.nvml": False,
}
_ROLES = ("client", "scheduler", "worker")
_ALONE = threading.Lock()
"""Held by the task that runs in this worker: kernels, caches and their threads serve one at a time."""


class DaskTasks(TaskSession):
    """Tasks of an open client."""

    def __init__(
        self, client: Any, progress: Progress, slots: int, threads: int, task_memory: int, scratch: Path | None
    ):
        super().__init__(f"superworkflow-{uuid.uuid4().hex}", slots, threads, task_memory, scratch)
        self._client, self._progress, self._address = client, progress, client.scheduler.address

    def _map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        return self._results(self._each(self._shared(function), list(items)))

    def _shuffle(
        self, begin: Callable[[Any], Iterable[Any]], items: Sequence[Any], takes: Sequence[tuple[int, Take]]
    ) -> list[Any]:
        made = self._each(self._shared(partial(_sorted_out, begin, takes[0][0])), list(items))
        for number, (tasks, take) in enumerate(takes):
            parts = [self._each(_part, made, [task] * len(made), kept=False) for task in range(tasks)]
            following = takes[number + 1][0] if number + 1 < len(takes) else 0
            made = self._each(self._shared(partial(_taken, take, following)), list(range(tasks)), parts)
        return [pair for pairs in self._results(made) for pair in pairs]

    def close(self) -> None:
        """Remove what tasks have left in workers that outlive the session."""
        if self.scratch is None and self._client.status == "running":
            self._client.run(_forget, self.name, on_error="ignore")

    def _each(self, function: Any, *columns: list[Any], kept: bool = True) -> list[Any]:
        if not columns[0]:
            return []
        call = partial(_call, self.name if self.scratch is None else "") if kept else function
        given = ([function] * len(columns[0]), *columns) if kept else columns
        made: list[Any] = self._client.map(call, *given, pure=False, retries=TASK_ATTEMPTS - 1)
        return made

    def _shared(self, function: Any) -> Any:
        """The function as a result of its own, of which each worker fetches one copy."""
        return self._client.submit(_identity, function, pure=False)

    def _results(self, futures: list[Any]) -> list[Any]:
        from distributed import wait

        waiting = set(futures)
        with self._errors():
            while waiting:
                with suppress(TimeoutError):
                    wait(futures, timeout=INTERVAL_SECONDS, return_when="ALL_COMPLETED")
                waiting = {each for each in waiting if not each.done()}
                self._progress.update(len(futures) - len(waiting), len(futures), "tasks")
                if waiting and self._client.status not in ("running", "connecting"):
                    raise self._lost()
            return list(self._client.gather(futures))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Dask's own errors in a few words.

        Raises:
            UserError: a task raised one.
            TaskFailed: in place of all others.
        """
        from distributed import CancelledError, KilledWorker
        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError

        try:
            yield
        except UserError as error:
            raise StagedUserError(str(error)) from None
        except TaskFailed:
            raise
        except KilledWorker as error:
            raise TaskFailed(
                f"a task on Dask failed: {TASK_ATTEMPTS} workers ended while it ran, the last at {error.last_worker}"
            ) from error
        except (CancelledError, FutureCancelledError, CommClosedError, OSError) as error:
            raise self._lost() from error
        except Exception as error:
            raise TaskFailed(f"a task on Dask failed: {type(error).__name__}: {error}") from error

    def _lost(self) -> TaskFailed:
        return TaskFailed(f"the Dask scheduler at {self._address} was lost; run again to resume with this stage")


@contextmanager
def dask_tasks(job: StageRun[Any], whole_members: bool = False) -> Iterator[DaskTasks]:
    """Open workers in pods, the scheduler at `job.engine_settings["address"]`, or workers here; see `open_tasks`."""
    require_dask()
    import dask.config
    import distributed  # noqa: F401  # its defaults, which those below must not hide

    settings = job.engine_settings
    with dask.config.set(CONFIG), ExitStack() as closing:
        if "host" in settings and job.resources.executors is not None:
            tasks = _in_pods(job, whole_members, job.resources.executors, closing)
        elif "address" in settings:
            tasks = _existing(job, whole_members, settings["address"], closing)
        else:
            tasks = _local(job, whole_members, closing)
        closing.callback(tasks.close)
        yield tasks


def _local(job: StageRun[Any], whole_members: bool, closing: ExitStack) -> DaskTasks:
    """Workers of this machine, a process for each core or one for all."""
    workers = 1 if whole_members else job.threads
    memory = job.resources.memory // workers
    client = _own_scheduler(
        closing, n_workers=workers, host="127.0.0.1", memory_limit=memory, local_directory=str(job.scratch / "dask")
    )
    return DaskTasks(client, job.progress, workers, job.threads // workers, memory, job.scratch)


def _in_pods(job: StageRun[Any], whole_members: bool, executors: Group, closing: ExitStack) -> DaskTasks:
    """Workers in pods, which the launcher keeps: a process for each core of a pod, or one for all."""
    settings = job.engine_settings
    hold_lifeline(settings["host"], LIFE_PORT)
    client = _own_scheduler(
        closing, n_workers=0, host=settings["host"], scheduler_port=SCHEDULER_PORT,
        security=security(settings["certificate"], settings["key"]),
    )  # fmt: skip
    client.set_metadata(WHOLE_MEMBERS, whole_members)
    each = 1 if whole_members else executors.each.threads
    return DaskTasks(
        client, job.progress, executors.count * each, executors.each.threads // each, executors.memory // each, None
    )


def _own_scheduler(closing: ExitStack, **settings: Any) -> Any:
    """Client of a scheduler in this process, which ends with the session."""
    from distributed import Client, LocalCluster

    cluster = closing.enter_context(LocalCluster(
        threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
        silence_logs="CRITICAL", **settings,
    ))  # fmt: skip
    return closing.enter_context(Client(cluster))


def security(certificate: str, key: str) -> Any:
    """Dask's `Security` of a stage and its pods: each side proves that it has the key.

    Args:
        certificate: in PEM, which signs itself.
        key: of the certificate, in PEM.
    """
    from distributed.security import Security

    pairs = {f"tls_{role}_cert": certificate for role in _ROLES} | {f"tls_{role}_key": key for role in _ROLES}
    return Security(require_encryption=True, tls_ca_file=certificate, **pairs)


def _existing(job: StageRun[Any], whole_members: bool, address: str, closing: ExitStack) -> DaskTasks:
    """Workers of a scheduler that is there already.

    Raises:
        UserError: nothing answers there, or it has no workers.
    """
    from distributed import Client

    try:
        client = closing.enter_context(Client(address, timeout=CONNECT_SECONDS))
    except (OSError, ValueError) as error:
        raise UserError(
            f"no Dask scheduler answers there: {error}", where="DASK_SCHEDULER_ADDRESS", value=address,
            remedy="Start one with `dask scheduler`, or unset the variable for workers on this machine",
        ) from None  # fmt: skip
    workers = list(client.nthreads().values())
    if not workers:
        raise UserError(
            "the Dask scheduler has no workers", where="DASK_SCHEDULER_ADDRESS", value=address,
            remedy="Start some: `dask worker ADDRESS --nworkers auto --nthreads 1`",
        )  # fmt: skip
    threads = min(workers) if whole_members else 1
    memory = min(each or job.resources.memory for each in client.run(_memory_limit).values())
    return DaskTasks(client, job.progress, len(workers), threads, memory, None)


def require_dask() -> None:
    """Check that Dask is here.

    Raises:
        UserError: names the line that installs it.
    """
    if importlib.util.find_spec("distributed") is None:
        raise UserError(
            "the stage is to run on Dask, and Python has no distributed", where="--engine", value="dask",
            remedy=f"Run `{install_line('dask')}`; in a checkout `pip install -r requirements-dask.txt`",
        )  # fmt: skip


def _memory_limit(dask_worker: Any) -> int | None:
    limit: int | None = dask_worker.memory_manager.memory_limit
    return limit


def _identity(function: Any) -> Any:
    return function


def _call(session: str, function: Callable[..., Any], *given: Any) -> Any:
    """Work of a task; `session` names the folder of members that are elsewhere."""
    with _ALONE:
        if not session:
            return function(*given)
        from distributed import get_worker

        os.environ[MEMBER_FOLDER] = str(_folder(get_worker(), session))
        try:
            return function(*given)
        finally:
            del os.environ[MEMBER_FOLDER]


def _sorted_out(begin: Callable[[Any], Iterable[Any]], tasks: int, item: Any) -> list[list[Any]]:
    return _by_task(begin(item), tasks)


def _taken(take: Take, following: int, task: int, parts: list[list[Any]]) -> list[Any]:
    given = take(task, iter([pair for part in parts for pair in part]))
    return _by_task(given, following) if following else list(given)


def _by_task(pairs: Iterable[Any], tasks: int) -> list[list[Any]]:
    sent: list[list[Any]] = [[] for _ in range(tasks)]
    for pair in pairs:
        sent[pair[0]].append(pair)
    return sent


def _part(sent: list[list[Any]], task: int) -> list[Any]:
    return sent[task]


def _folder(worker: Any, session: str) -> Path:
    """Folder of a session on a worker's machine, the same for all workers of the machine."""
    return Path(worker.local_directory).parent / session


def _forget(session: str, dask_worker: Any = None) -> None:
    """Run by Dask, which gives the worker."""
    forget_results()
    shutil.rmtree(_folder(dask_worker, session), ignore_errors=True)
