"""A worker of a process pool that loses no run when it is restarted: `python -m superworkflow.worker POOL`.

When Prefect's own worker is stopped, it kills its runs, and they stay `Running` for good. This one stops them, waits
until they have closed their records, and requeues them for the next worker. If it was killed itself, it requeues them
when it starts again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio

from superworkflow.infra.base.extras import require_extra

PATIENCE_SECONDS = 40.0
"""Seconds that runs have to close their records."""


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(prog="python -m superworkflow.worker", description=__doc__)
    parser.add_argument("pool", help="work pool of type process; created if it does not exist")
    parser.add_argument(
        "--name", default="worker", help="name of the worker in the pool, the same after a restart (default: worker)"
    )
    options = parser.parse_args()
    require_extra("flow")
    from prefect.client.orchestration import get_client

    from superworkflow.infra.orchestration.requeue import hand_back, resume_left

    with get_client(sync_client=True) as client:
        _report(resume_left(client, options.pool, options.name))
    runs = anyio.run(_serve, options.pool, options.name)
    with get_client(sync_client=True) as client:
        _report(hand_back(client, runs))


async def _serve(pool: str, name: str) -> set[UUID]:
    """Start runs until a signal comes; returns the runs that it interrupted."""
    from prefect.workers.process import ProcessWorker

    ended: set[UUID] = set()
    ending = anyio.Event()

    worker = ProcessWorker(work_pool_name=pool, name=name)
    submit = worker.get_and_submit_flow_runs

    async def submit_unless_ending() -> list[Any]:
        """Start no run once those in progress are being ended: it would take their place."""
        return [] if ending.is_set() else await submit()

    worker.get_and_submit_flow_runs = submit_unless_ending  # type: ignore[method-assign]

    async def end() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                break
        ending.set()
        ended.update(await _end_runs())
        work.cancel_scope.cancel()

    async with anyio.create_task_group() as work:
        work.start_soon(end)
        await worker.start(with_healthcheck=True)
    return ended


async def _end_runs() -> set[UUID]:
    """Signal all runs of this process to end and wait for them; Prefect kills those that remain."""
    until, signalled = time.monotonic() + PATIENCE_SECONDS, dict[int, UUID]()
    while time.monotonic() < until:
        running = _runs()
        for process in running.keys() - signalled.keys():  # a run may have been started since the last round
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGTERM)
        signalled |= running
        if not running:
            break
        await anyio.sleep(0.2)
    return set(signalled.values())


def _runs() -> dict[int, UUID]:
    """Flow runs by process: children of this process that lead a process group, as all that Prefect starts do."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        for process in (task / "children").read_text().split():
            with contextlib.suppress(OSError, ValueError, KeyError):
                lines = Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace").split("\0")
                environment = dict(line.partition("=")[::2] for line in lines)
                if os.getpgid(int(process)) == int(process):
                    found[int(process)] = UUID(environment["PREFECT__FLOW_RUN_ID"])
    return found


def _report(resumed: list[UUID]) -> None:
    for run in resumed:
        sys.stdout.write(f"flow run {run} continues with the next worker\n")


if __name__ == "__main__":
    main()
