"""Launches of one process that want the same dataset at the same moment take turns in looking for its Job.

The first one makes the Job, and the others see it: trials of a sweep begin together, and a Job of each would hold
processors and memory only to wait for the first. Launchers of other processes are not seen: of Jobs that two of them
make in the same instant, one computes, by the lock of the dataset, and the others wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable

LOOK_SECONDS = 0.05

_taken = set[str]()
_guard = threading.Lock()


@contextlib.asynccontextmanager
async def turn(output: str) -> AsyncIterator[Callable[[], None]]:
    """Be the only one in this process, whatever its event loop, that is about to make this dataset.

    Args:
        output: URI of the dataset.

    Yields:
        What ends the turn; it ends with the block at the latest.
    """
    while not _take(output):
        await asyncio.sleep(LOOK_SECONDS)
    mine = True

    def end() -> None:
        nonlocal mine
        if mine:
            mine = False
            with _guard:
                _taken.discard(output)

    try:
        yield end
    finally:
        end()


def _take(output: str) -> bool:
    with _guard:
        if output in _taken:
            return False
        _taken.add(output)
        return True
