"""Threads of OpenMP and OpenBLAS: spinning before they sleep, and the number that Numba starts.

GNU's library, which torch and Numba compute with, lets an idle thread spin 300,000 times before it sleeps: some
milliseconds. That is fastest while no other thread needs the core. A stage shares it with other stages, trials and its
own read-ahead threads, and a container pays for it out of its CPU quota. With more threads of its own than cores the
library spins 100 times; it does not know about other processes.

OpenBLAS, which NumPy computes with, starts its threads when it is loaded, and each spins for 2**26 ticks of the
processor, some 25 ms, even if nothing is ever multiplied.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, MutableMapping

_SPINS, _SPIN_COUNT = "GOMP_SPINCOUNT", "1000"
_CHOSEN_BY = (_SPINS, "OMP_WAIT_POLICY")
"""Variables by which a user may have chosen already; the second selects spinning or sleeping."""
_NUMBA = "NUMBA_NUM_THREADS"
_LOGARITHM, _TICKS = "OPENBLAS_THREAD_TIMEOUT", 16
"""Logarithm of the spins before a thread sleeps, and its replacement: some 25 µs."""


def available_cpus() -> int:
    """Processors that this process may use (affinity, not the machine's count)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sleep_soon(environment: MutableMapping[str, str] = os.environ) -> None:
    """Have threads sleep after 1,000 spins or 2**16 ticks, unless the environment says otherwise.

    The libraries read the variables when they are loaded: call it before torch and NumPy are imported. Child processes
    inherit them.
    """
    if not any(name in environment for name in _CHOSEN_BY):
        environment[_SPINS] = _SPIN_COUNT
    environment.setdefault(_LOGARITHM, str(_TICKS))


def limit_numba(threads: int) -> None:
    """Limit the threads that Numba starts in this process, which has not computed with it yet.

    When Numba starts its threads, it sets OpenMP's number in the calling thread to theirs, hence torch's too. By
    default it takes one for each core, whatever torch was set to before.
    """
    os.environ[_NUMBA] = str(threads)
    _reload_numba()


@contextlib.contextmanager
def numba_threads(threads: int) -> Iterator[None]:
    """Within the block, Numba computes with this number of threads, unless the environment sets one.

    For a stage: in a pod Numba sees the cores of the whole node, and `numba.set_num_threads` applies to the calling
    thread only. A process that has computed with Numba before keeps its threads.
    """
    if _NUMBA in os.environ:
        yield
        return
    try:
        with contextlib.suppress(RuntimeError):
            limit_numba(threads)
        yield
    finally:
        os.environ.pop(_NUMBA, None)
        with contextlib.suppress(RuntimeError):
            _reload_numba()


def _reload_numba() -> None:
    """Have Numba read the environment again if it is imported already, such as before this process was forked.

    Raises:
        RuntimeError: the number has changed, and Numba has started its threads.
    """
    numba, pool = sys.modules.get("numba"), sys.modules.get("numba.np.ufunc.parallel")
    if numba is not None:
        numba.config.reload_config()
    if pool is not None:
        setattr(pool, "NUM_THREADS", pool.get_thread_count())  # noqa: B010  # read at import
