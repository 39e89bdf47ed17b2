"""Single flight: launches in one process that want the same dataset look for its Job one at a time.

The first one makes the Job, and the others find it: trials of a sweep begin together, and a Job of each would hold
processors and memory only to wait for the first. Launchers in other processes are not seen: of Jobs that two of them
make in the same instant, one computes, by the lock of the dataset, and the others wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

LOOK_SECONDS = 0.05

_owners: dict[str, object] = {}


@contextlib.asynccontextmanager
async def turn(output: str) -> AsyncIterator[Callable[[], None]]:
    """Be the only one in this process, in any thread and event loop, that is about to make this dataset.

    Args:
        output: URI of the dataset.

    Yields:
        What ends the turn; it ends with the block at the latest.
    """
    me = object()
    while _owners.setdefault(output, me) is not me:  # one step of the interpreter, so that one thread wins
        await asyncio.sleep(LOOK_SECONDS)

    def end() -> None:
        if _owners.get(output) is me:
            del _owners[output]

    try:
        yield end
    finally:
        end()
