"""Python's collector of unreachable cycles, off while a stage's process starts.

A start makes hundreds of thousands of objects, all of which stay. The collector looks through them again and again as
they become more, and once more when the process ends: a sixth of what starting a small stage takes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_off = False


@contextmanager
def not_collecting(starts: bool) -> Iterator[None]:
    """Within the block, where a process `starts`, nothing is collected until `collect` is called."""
    global _off
    if not starts or _off or not gc.isenabled():
        yield
        return
    gc.disable()
    _off = True
    try:
        yield
    finally:
        collect()


def collect() -> None:
    """Collect from now on, but nothing of what is there already; no more than that it was not collecting changes."""
    global _off
    if _off:
        _off = False
        gc.freeze()
        gc.enable()
