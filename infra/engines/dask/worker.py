"""Dask workers in a pod of a stage's own: a process for each core, or one for all, as the stage's scheduler says.

This process runs the first of them. When another one is lost, the pod ends, and the launcher makes the next. It lives
as long as the stage's process, and takes part in each session that the stage opens.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.engines.dask import (
    CERTIFICATE_VARIABLE,
    CORES_VARIABLE,
    HOST_VARIABLE,
    KEY_VARIABLE,
    MEMORY_VARIABLE,
)
from superworkflow.infra.engines.dask.session import (
    CONFIG,
    CONNECT_SECONDS,
    LIFE_PORT,
    SCHEDULER_PORT,
    WHOLE_MEMBERS,
    require_dask,
    security,
)
from superworkflow.infra.engines.lifeline import CALL_SECONDS, STAGE_GONE, end_with_parent, follow_lifeline
from superworkflow.infra.engines.termination_message import leave_message
from superworkflow.infra.process.exit_status import diagnose_exit

_FOLDER = "/tmp/dask"


class _Pod(NamedTuple):
    """This pod.

    Args:
        stage: address of the stage's pod.
        host: its own address.
        cores: whole ones.
        memory: in bytes.
        certificate, key: of the stage and its pods, in PEM.
    """

    stage: str
    host: str
    cores: int
    memory: int
    certificate: str
    key: str

    @property
    def scheduler(self) -> str:
        """Address of the stage's scheduler."""
        return f"tls://{self.stage}:{SCHEDULER_PORT}"


def join(arguments: Sequence[str]) -> int:
    """The command of pods: run workers for the stage that the environment names, until its process is gone."""
    names = (HOST_VARIABLE, CORES_VARIABLE, MEMORY_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE)
    for name in names:
        if name not in os.environ:
            raise UserError("not in the pod of a Dask worker", where=name, remedy="Leave starting workers to a stage")
    stage, cores, memory, certificate, key = (os.environ[name] for name in names)
    signal.signal(signal.SIGTERM, lambda number, frame: _end(128 + number))
    try:
        require_dask()
    except UserError as error:
        leave_message(error=str(error))
        raise
    host = follow_lifeline(stage, LIFE_PORT, lambda: _end(STAGE_GONE))
    return asyncio.run(_take_part(_Pod(stage, host, int(cores), int(memory), certificate, key)))


def _end(status: int, error: str = "") -> NoReturn:
    """End this process at once; its other processes end with it."""
    leave_message(error=error)
    os._exit(status)


async def _take_part(pod: _Pod) -> NoReturn:
    """Run workers in one session after the other."""
    _configure()
    while True:
        with suppress(OSError):  # Dask's errors of connections are such: no session is open, or it has just ended
            await _session(pod)
        await asyncio.sleep(CALL_SECONDS)


async def _session(pod: _Pod) -> None:
    from distributed.core import rpc

    secure = security(pod.certificate, pod.key)
    async with rpc(pod.scheduler, connection_args=secure.get_connection_args("worker")) as scheduler:
        whole = await scheduler.get_metadata(keys=[WHOLE_MEMBERS], default=None)
    if whole is None:
        return
    processes = 1 if whole else pod.cores
    spawn = multiprocessing.get_context("spawn")
    others = [
        spawn.Process(target=_further_process, args=(pod, processes, os.getpid()), daemon=True)
        for _ in range(processes - 1)
    ]
    ends = list[asyncio.Task[None]]()
    try:
        for each in others:
            each.start()
        ends = [asyncio.create_task(_serve(pod, processes)), *(asyncio.create_task(_ended(each)) for each in others)]
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in done:
            end.result()
    finally:
        for each in others:
            each.kill()
        for end in ends:
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)


async def _ended(process: Any) -> None:
    await asyncio.to_thread(process.join)
    if process.exitcode:
        _end(1, f"a process of it ended: {diagnose_exit(process.exitcode).summary}")


def _further_process(pod: _Pod, processes: int, parent: int) -> None:
    """A further worker, in a process of its own."""
    end_with_parent(parent)
    _configure()
    with suppress(OSError):
        asyncio.run(_serve(pod, processes))


async def _serve(pod: _Pod, processes: int) -> None:
    """One worker, until its scheduler ends it."""
    from distributed import Worker

    async with Worker(
        pod.scheduler, host=pod.host, nthreads=1, memory_limit=pod.memory // processes, local_directory=_FOLDER,
        security=security(pod.certificate, pod.key), dashboard=False, death_timeout=CONNECT_SECONDS,
    ) as worker:  # fmt: skip
        await worker.finished()


def _configure() -> None:
    import dask.config
    import distributed  # noqa: F401  # its defaults, which ours must not hide

    dask.config.set(CONFIG)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
