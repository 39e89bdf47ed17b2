"""Seconds for which a stage's process compiled kernels: work of a machine's first run, not of the stage.

Compilers call `begin` and `end` (`tasks.lib.kernels.numba_cache` does so for Numba); `execute` reads the sum.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable


class CompileClock:
    """Sums wall and CPU seconds between `begin` and `end`.

    Kernels that are compiled for another one count within it. Threads that compile one after the other, as Numba's
    lock has it, add up; CPU seconds are those of the thread that compiles.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._depth = threading.local()
        self.reset()

    def reset(self, on_begin: Callable[[], None] | None = None) -> None:
        """Start again from zero; `on_begin` is called once, at the first compilation."""
        with self._guard:
            self._wall_s = self._cpu_s = 0.0
            self._on_begin = on_begin

    def begin(self) -> None:
        """A compilation begins in this thread."""
        depth = getattr(self._depth, "value", 0)
        self._depth.value = depth + 1
        if depth:
            return
        with self._guard:
            on_begin, self._on_begin = self._on_begin, None
        self._depth.began = time.perf_counter(), time.thread_time()
        if on_begin is not None:
            with contextlib.suppress(OSError, ValueError):  # the reader has gone, which must not fail the kernel
                on_begin()

    def end(self) -> None:
        """The compilation that this thread began last has ended, well or not."""
        self._depth.value = getattr(self._depth, "value", 0) - 1
        if self._depth.value:
            return
        wall, cpu = self._depth.began
        with self._guard:
            self._wall_s += time.perf_counter() - wall
            self._cpu_s += time.thread_time() - cpu

    @property
    def seconds(self) -> tuple[float, float]:
        """Wall and CPU seconds of what has ended."""
        with self._guard:
            return self._wall_s, self._cpu_s


clock = CompileClock()
"""Clock of this process."""
