"""A worker of a process pool that loses no run when it is restarted: `python -m superworkflow.worker POOL`.

Prefect's own kills its runs when it is told to end, and they stay `Running` for good. This one asks them to end, waits
until they have closed their records, and hands them back, so that they go on with the next worker; and it takes up what
it had when it was killed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from uuid import UUID

import anyio

from superworkflow.infra.base.extras import require_extra

PATIENCE_SECONDS = 40.0
"""Given to runs to close their records."""


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(prog="python -m superworkflow.worker", description=__doc__)
    parser.add_argument("pool", help="work pool of type process; made where there is none")
    parser.add_argument(
        "--name", default="worker", help="its own in the pool, the same after a restart (default: worker)"
    )
    options = parser.parse_args()
    require_extra("flow")
    from prefect.client.orchestration import get_client

    from superworkflow.infra.orchestration.requeue import hand_back, resume_left

    with get_client(sync_client=True) as client:
        _tell(resume_left(client, options.pool, options.name))
    runs = anyio.run(_serve, options.pool, options.name)
    with get_client(sync_client=True) as client:
        _tell(hand_back(client, runs))


async def _serve(pool: str, name: str) -> set[UUID]:
    """Start runs until a signal comes; those that were going on then."""
    from prefect.workers.process import ProcessWorker

    ended: set[UUID] = set()

    async def end() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                break
        ended.update(await _end_runs())
        work.cancel_scope.cancel()

    async with anyio.create_task_group() as work:
        work.start_soon(end)
        await ProcessWorker(work_pool_name=pool, name=name).start(with_healthcheck=True)
    return ended


async def _end_runs() -> set[UUID]:
    """Ask all runs of this process to end, and wait for that; what is left then is killed by Prefect."""
    until, asked = time.monotonic() + PATIENCE_SECONDS, dict[int, UUID]()
    while time.monotonic() < until:
        going = _runs()
        for process in going.keys() - asked.keys():  # a run may have been started meanwhile
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGTERM)
        asked |= going
        if not going:
            break
        await anyio.sleep(0.2)
    return set(asked.values())


def _runs() -> dict[int, UUID]:
    """The flow run of each of this process's children that leads a process group, as all do that Prefect starts."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        for process in (task / "children").read_text().split():
            with contextlib.suppress(OSError, ValueError, KeyError):
                lines = Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace").split("\0")
                environment = dict(line.partition("=")[::2] for line in lines)
                if os.getpgid(int(process)) == int(process):
                    found[int(process)] = UUID(environment["PREFECT__FLOW_RUN_ID"])
    return found


def _tell(resumed: list[UUID]) -> None:
    for run in resumed:
        sys.stdout.write(f"flow run {run} goes on with the next worker\n")


if __name__ == "__main__":
    main()
